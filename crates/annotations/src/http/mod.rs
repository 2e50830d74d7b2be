//! HTTP: what programs and browsers see of the service.
//!
//! In reading order:
//! - [`api`] makes, reads, changes, deletes and finds notes, in the W3C's shape ([`wire`],
//!   [`convert`]), as they were seen where a client says so ([`precondition`]);
//! - [`people`] has accounts and groups, [`session`] the same as pages;
//! - [`reader`] is the page with the text and the notes beside it;
//! - [`operator`] is for whoever runs the service;
//! - [`frame`] surrounds every answer, [`errors`] says what went wrong;
//! - [`web`] tells who is asking; [`leasehold_http`] bounds what a client can cost us.
//!
//! # What is true
//! - Unknown notes, deleted ones and those of other people's groups get one answer, byte for byte.
//! - No answer changes anything on GET or HEAD.
//! - No request waits for the index longer than its limit.

mod api;
mod convert;
mod errors;
mod frame;
mod openapi;
mod operator;
mod people;
mod precondition;
mod reader;
mod session;
mod web;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::routing::{get, patch, post};
use leasehold_http::answers;

use self::errors::Failure;
use self::web::{Answer, Shared, Web};
use crate::assets::ASSETS;
use crate::service::Annotations;

pub use leasehold_http::server::{ServerLimits, serve, serve_within};

/// Everything that the service answers.
pub fn router(annotations: Annotations) -> Router {
    let document = openapi::document(annotations.settings());
    let web: Shared = Arc::new(Web::new(annotations));
    Router::new()
        .route("/", get(reader::reader))
        .route("/margin", get(reader::fragment))
        .route("/embed.js", get(reader::embed))
        .route("/account", get(session::account))
        .route("/account/signup", post(session::sign_up))
        .route("/account/login", post(session::log_in))
        .route("/account/logout", post(session::log_out))
        .route("/account/{what}", post(session::act))
        .route("/api/annotations", post(api::create))
        .route("/api/annotations/{key}", get(api::read).patch(api::change).delete(api::delete))
        .route("/api/search", get(api::search))
        .route("/api/profile", get(people::profile))
        .route("/api/users", post(people::sign_up))
        .route("/api/users/{name}", patch(people::change_user).delete(people::delete_user))
        .route("/api/groups", get(people::groups).post(people::make_group))
        .route("/api/groups/{id}/members", post(people::add_member).delete(people::leave_group))
        .route("/api/groups/{id}/move", post(people::move_group))
        .route("/api/v1/reindex", post(operator::reindex))
        .route("/api/v1/reindex/{id}", get(operator::progress).delete(operator::cancel))
        .route("/assets/{name}", get(asset))
        .route("/openapi.json", get(async move || answers::document(document.clone())))
        .route("/healthz", get(health))
        .route("/robots.txt", get(answers::robots))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&web), frame::frame))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(web)
}

/// `GET /assets/{name}`
async fn asset(request: Request) -> Answer {
    let asset = ASSETS.find(&web::segment(&request, 1)?).ok_or(Failure::NoRoute)?;
    Ok(answers::asset(asset))
}

/// `GET /healthz`: 200 when the database answers. The index may be down: the service is up then.
async fn health(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    Ok(answers::health(web.annotations.is_healthy().await))
}

async fn no_route() -> Failure {
    Failure::NoRoute
}

async fn wrong_method() -> Failure {
    Failure::WrongMethod
}
