//! Responses that every service uses.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;

use crate::assets::{Asset, CACHE_CONTROL};
use crate::failures::IntoProblem;
use crate::headers::{HTML, JSON, NO_STORE, PAGE_CSP, TEXT};

fn answer(status: StatusCode, kind: HeaderValue, keep: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let map = response.headers_mut();
    // A page ends up with about this many headers.
    map.reserve(12);
    map.insert(header::CONTENT_TYPE, kind);
    map.insert(header::CACHE_CONTROL, keep);
    response
}

pub fn plain(text: impl Into<Body>) -> Response {
    answer(StatusCode::OK, TEXT, NO_STORE, text.into())
}

/// Returns a response with a status and no body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// Redirects the browser after it sent a form (303).
pub fn go_to(place: HeaderValue) -> Response {
    let mut response = empty(StatusCode::SEE_OTHER);
    response.headers_mut().insert(header::LOCATION, place);
    response
}

pub fn json<F: IntoProblem>(status: StatusCode, value: &impl Serialize) -> Result<Response, F> {
    let body = serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        F::broken()
    })?;
    Ok(answer(status, JSON, NO_STORE, Body::from(body)))
}

/// Returns one of our own pages, under [`PAGE_CSP`].
pub fn page(page: impl Into<Bytes>, keep: HeaderValue) -> Response {
    let mut response = answer(StatusCode::OK, HTML, keep, Body::from(page.into()));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, PAGE_CSP);
    response
}

/// Returns a file whose name changes with its bytes, so that browsers may cache it for good.
pub fn asset(asset: Asset) -> Response {
    let kind = HeaderValue::from_static(asset.content_type);
    let keep = HeaderValue::from_static(CACHE_CONTROL);
    answer(StatusCode::OK, kind, keep, Body::from(asset.bytes))
}

/// `GET /openapi.json`
pub fn document(document: Bytes) -> Response {
    let keep = HeaderValue::from_static("public, max-age=300");
    answer(StatusCode::OK, JSON, keep, Body::from(document))
}

/// `GET /healthz`
pub fn health(healthy: bool) -> Response {
    let (status, text) = match healthy {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n"),
    };
    answer(status, TEXT, NO_STORE, Body::from(text))
}

/// `GET /robots.txt`: links are secrets, so search engines must not index them.
pub async fn robots() -> Response {
    plain("User-agent: *\nAllow: /$\nDisallow: /\n")
}
