//! HTTP: the interface for programs, terminals and browsers.
//!
//! In reading order:
//! - [`mod@create`] takes pastes as raw bytes, as a form, or (in [`api`]) as JSON;
//! - [`read`] returns them as a page, as bytes, as a download;
//! - [`own`] lets owners list and delete their pastes, and readers report one;
//! - [`operator`] is for operators, [`moderation`] has its JSON;
//! - [`problems`] maps errors to statuses and texts;
//! - [`leasehold_http`] listens, and bounds what a client can cost the service.
//!
//! # Invariants
//! - Failed, expired, deleted, unknown and malformed codes get the same response, byte for byte.
//! - Every response has the security headers, whichever handler or layer wrote it.
//! - Pasted content is never active in our origin.
//! - GET and HEAD change nothing.
//! - Replays: a create that repeats its `Idempotency-Key` gets 201 with the same code, link and token,
//!   and `Idempotent-Replayed: true`; 410 if that paste has ended.

mod api;
mod cookies;
mod create;
mod form;
mod headers;
mod moderation;
mod openapi;
mod operator;
mod options;
mod own;
mod problems;
mod read;
mod rendered;
mod view;
mod web;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{delete, get, post, put};
use leasehold_http::problems::CommonProblem;
use leasehold_http::request::segment;
use leasehold_http::{middleware, responses};

use self::problems::{HandlerResult, PasteProblem};
use self::web::{Shared, Web};
use crate::assets::ASSETS;
use crate::service::Pastes;

pub use leasehold_http::server::{ServerLimits, serve, serve_within};

/// Returns the router with every route of the service.
pub fn router(pastes: Pastes) -> Router {
    let document = openapi::document(pastes.settings());
    let web: Shared = Arc::new(Web::new(pastes));
    Router::new()
        .route("/", get(create::page).post(create::post).put(create::post))
        .route("/{code}", get(read::page).put(create::put_file).delete(own::delete))
        .route("/{code}/burn", post(read::burn))
        .route("/{code}/delete", post(own::delete_form))
        .route("/{code}/report", post(own::report_form))
        .route("/raw/{code}", get(read::raw))
        .route("/download/{code}", get(read::download))
        .route("/qr/{code}", get(read::qr))
        .route("/mine", get(own::mine))
        .route("/api/v1/pastes", post(api::create).get(api::list))
        .route("/api/v1/pastes/{code}", get(api::read).delete(own::delete_by_api))
        .route("/api/v1/pastes/{code}/burn", post(api::burn))
        .route("/api/v1/pastes/{code}/reports", post(api::report))
        .route("/api/v1/owners", post(api::new_owner))
        .route("/api/v1/reports", get(operator::reports))
        .route("/api/v1/takedowns", post(operator::takedown))
        .route("/api/v1/moderation", get(operator::moderation))
        .route("/api/v1/bans", get(operator::bans))
        .route("/api/v1/bans/{hash}", put(operator::ban).merge(delete(operator::unban)))
        .route("/assets/{name}", get(asset))
        .route("/openapi.json", get(async move || responses::openapi_document(document.clone())))
        .route("/healthz", get(health))
        .route("/robots.txt", get(responses::robots))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&web), respond))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(web)
}

async fn respond(State(web): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = middleware::respond::<PasteProblem>(request, next).await;
    headers::add_security_headers(response.headers_mut(), web.secure);
    response
}

/// `GET /assets/{name}`
async fn asset(request: Request) -> HandlerResult {
    let name = segment(request.uri().path(), 1).unwrap_or_default();
    Ok(responses::asset(ASSETS.find(name).ok_or(PasteProblem::NoRoute)?))
}

/// `GET /healthz`: 200 if the database responds.
async fn health(State(web): State<Shared>) -> Response {
    web.health.respond(web.pastes.is_healthy()).await
}

async fn no_route() -> PasteProblem {
    PasteProblem::NoRoute
}

async fn wrong_method() -> PasteProblem {
    CommonProblem::WrongMethod.into()
}
