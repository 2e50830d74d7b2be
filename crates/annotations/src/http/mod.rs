//! HTTP: the interface for programs and browsers.
//!
//! In reading order:
//! - [`api`] creates, reads, changes, deletes and finds notes, in the W3C's shape ([`wire`],
//!   [`convert`]), and only in the version that the client has seen if it sends one ([`precondition`]);
//! - [`accounts`] has users, [`groups`] and [`invitations`] who reads together, [`session`] the same as
//!   pages;
//! - [`reader`] is the page with the text and the notes beside it, and the page of one note;
//! - [`operator`] is for operators;
//! - [`cors`] lets pages of other origins in, [`middleware`] adds the security headers, [`errors`] describes
//!   failures;
//! - [`web`] identifies the caller; [`leasehold_http`] bounds what a client can cost.
//!
//! # Invariants
//! - Unknown notes, deleted ones and those of groups that the caller is not in get the same response,
//!   byte for byte.
//! - GET and HEAD change nothing.
//! - No request waits for the index longer than its limit.
//! - A response has a bound in notes and in bytes. Responses in the making, or not yet read by slow
//!   clients, are counted for all clients together and per client.

mod accounts;
mod api;
mod convert;
mod cors;
mod errors;
mod groups;
mod invitations;
mod middleware;
mod openapi;
mod operator;
mod precondition;
mod reader;
mod session;
mod web;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::{delete, get, patch, post};
use leasehold_http::middleware::respond;
use leasehold_http::problems::CommonProblem;
use leasehold_http::responses;

use self::errors::Failure;
use self::web::{HandlerResult, Shared, Web};
use crate::assets::ASSETS;
use crate::service::Annotations;

pub use leasehold_http::server::{ServerLimits, serve, serve_within};

/// Returns the routes of the service.
pub fn router(annotations: Annotations) -> Router {
    let document = openapi::document(annotations.settings());
    let cors = cors::layer(&annotations.settings().origins);
    let web: Shared = Arc::new(Web::new(annotations));
    let own = Router::new()
        .route("/", get(reader::reader))
        .route("/margin", get(reader::fragment))
        .route("/note/{key}", get(reader::note))
        .route("/account", get(session::account))
        .route("/account/signup", post(session::sign_up))
        .route("/account/login", post(session::log_in))
        .route("/account/logout", post(session::log_out))
        .route("/account/{what}", post(session::act))
        .route("/api/users", post(accounts::sign_up))
        .route("/api/users/{name}", patch(accounts::change_user).delete(accounts::delete_user))
        .route("/api/groups", get(groups::groups).post(groups::make_group))
        .route("/api/groups/{id}/members", post(groups::add_member).delete(groups::leave_group))
        .route("/api/groups/{id}/members/{name}", delete(groups::remove_member))
        .route("/api/groups/{id}/owner", post(groups::hand_over))
        .route("/api/groups/{id}/move", post(groups::move_group))
        .route("/api/invitations", get(invitations::invitations))
        .route("/api/invitations/{id}", delete(invitations::decline))
        .route("/api/blocks", get(invitations::blocks).post(invitations::block))
        .route("/api/blocks/{name}", delete(invitations::unblock))
        .route("/api/v1/reindex", post(operator::reindex))
        .route("/api/v1/reindex/{id}", get(operator::progress).delete(operator::cancel))
        .route("/assets/{name}", get(asset))
        .route("/openapi.json", get(async move || responses::openapi_document(document.clone())))
        .route("/healthz", get(health))
        .route("/robots.txt", get(responses::robots))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn(respond::<Failure>));
    // What the script for other pages needs.
    let shared = Router::new()
        .route("/embed.js", get(reader::embed))
        .route("/api/annotations", post(api::create))
        .route("/api/annotations/{key}", get(api::read).patch(api::change).delete(api::delete))
        .route("/api/search", get(api::search))
        .route("/api/profile", get(accounts::profile))
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn(respond::<Failure>));
    let shared = match cors {
        Some(cors) => shared.layer(cors),
        None => shared,
    };
    own.merge(shared)
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&web),
            middleware::add_security_headers,
        ))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(web)
}

/// `GET /assets/{name}`
async fn asset(request: Request) -> HandlerResult {
    let asset = ASSETS.find(&web::segment(&request, 1)?).ok_or(Failure::NoRoute)?;
    Ok(responses::asset(asset))
}

/// `GET /healthz`: 200 if the database responds. The index may be down: the service is up then. Not
/// rate-limited: otherwise the readers behind a proxy would use up what the proxy's own health check
/// needs.
async fn health(State(web): State<Shared>) -> HandlerResult {
    Ok(web.health().await)
}

async fn no_route() -> Failure {
    Failure::NoRoute
}

async fn wrong_method() -> Failure {
    CommonProblem::WrongMethod.into()
}
