//! Wraps every response: failures in the format that the client accepts, security headers, and access
//! for the origins that the operator allowed.
//!
//! # What is true
//! - Every response has the security headers, whichever handler wrote it.
//! - Browsers let in only origins from the settings; there are none by default. These origins read and
//!   write notes, and learn who is logged in; accounts and the list of groups are for our own pages. A
//!   note names its group, so an allowed origin can learn the ids of groups that wrote on a page.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use leasehold_http::frame::answered;
use leasehold_http::headers;

use super::errors::Failure;
use super::web::Shared;

pub async fn frame(State(web): State<Shared>, request: Request, next: Next) -> Response {
    let origin = web.allowed_origin(request.headers()).cloned();
    let origin = origin.filter(|_| is_for_other_pages(request.uri().path()));
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match asks_first && origin.is_some() {
        true => permission(),
        false => answered::<Failure>(request, next).await,
    };
    let map = response.headers_mut();
    if web.has_origins() {
        map.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = origin {
        allow(map, origin);
    }
    headers::guard(map, web.secure);
    response
}

/// Returns whether the script that other sites embed needs this path.
fn is_for_other_pages(path: &str) -> bool {
    matches!(path, "/api/search" | "/api/profile" | "/api/annotations" | "/embed.js")
        || path.starts_with("/api/annotations/")
}

fn allow(map: &mut HeaderMap, origin: HeaderValue) {
    map.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    map.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    map.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag"));
    map.insert(headers::RESOURCE, HeaderValue::from_static("cross-origin"));
}

/// Answers a CORS preflight request of an allowed origin.
fn permission() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let map = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, PATCH, DELETE");
    map.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = HeaderValue::from_static("authorization, content-type, idempotency-key, if-match");
    map.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
    map.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}
