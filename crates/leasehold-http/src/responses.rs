//! Responses that every service uses.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::assets::{Asset, CACHE_CONTROL};
use crate::headers::{HTML, JSON, NO_STORE, PAGE_CSP, TEXT};
use crate::problems::CommonProblem;

/// How long the result of a health check is reused.
const HEALTH_CACHE: Duration = Duration::from_secs(1);

fn response(
    status: StatusCode,
    content_type: HeaderValue,
    cache_control: HeaderValue,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let map = response.headers_mut();
    // A page ends up with about this many headers.
    map.reserve(12);
    map.insert(header::CONTENT_TYPE, content_type);
    map.insert(header::CACHE_CONTROL, cache_control);
    response
}

/// Returns plain text.
pub fn text(text: impl Into<Body>) -> Response {
    response(StatusCode::OK, TEXT, NO_STORE, text.into())
}

/// Returns a response with a status and no body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// Redirects the browser after it sent a form (303).
pub fn see_other(location: HeaderValue) -> Response {
    let mut response = empty(StatusCode::SEE_OTHER);
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// Returns a value as JSON.
pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, CommonProblem> {
    let body = serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "a response cannot be written as JSON");
        CommonProblem::Defect
    })?;
    Ok(response(status, JSON, NO_STORE, Body::from(body)))
}

/// Returns one of our own pages, under [`PAGE_CSP`].
pub fn page(page: impl Into<Bytes>, cache_control: HeaderValue) -> Response {
    let mut response = response(StatusCode::OK, HTML, cache_control, Body::from(page.into()));
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, PAGE_CSP);
    response
}

/// Returns a file whose name changes with its bytes, so that browsers may cache it for good.
pub fn asset(asset: Asset) -> Response {
    let content_type = HeaderValue::from_static(asset.content_type);
    let cache_control = HeaderValue::from_static(CACHE_CONTROL);
    response(StatusCode::OK, content_type, cache_control, Body::from(asset.bytes))
}

/// `GET /openapi.json`
pub fn openapi_document(document: Bytes) -> Response {
    let cache_control = HeaderValue::from_static("public, max-age=300");
    response(StatusCode::OK, JSON, cache_control, Body::from(document))
}

/// `GET /robots.txt`: links are secrets, so search engines must not index them.
pub async fn robots() -> Response {
    text("User-agent: *\nAllow: /$\nDisallow: /\n")
}

/// `GET /healthz`. Asks at most once per second, however often it is called: a flood of health checks
/// costs the database one query per second.
#[derive(Default)]
pub struct HealthCheck(Mutex<Option<(Instant, bool)>>);

impl HealthCheck {
    /// Returns 200 if the database responds, else 503. `ask` finds out; it runs only if the last result
    /// is older than a second.
    pub async fn respond(&self, ask: impl Future<Output = bool>) -> Response {
        let mut known = self.0.lock().await;
        let healthy = match *known {
            Some((asked, healthy)) if asked.elapsed() < HEALTH_CACHE => healthy,
            _ => {
                let healthy = ask.await;
                *known = Some((Instant::now(), healthy));
                healthy
            }
        };
        let (status, text) = match healthy {
            true => (StatusCode::OK, "ok\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "the database does not respond\n"),
        };
        response(status, TEXT, NO_STORE, Body::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn health_check_reuses_a_fresh_result_and_asks_again_after_a_second() {
        let health = HealthCheck::default();
        let asked = std::cell::Cell::new(0);
        let check = async |healthy| {
            let ask = async {
                asked.set(asked.get() + 1);
                healthy
            };
            health.respond(ask).await.status()
        };
        assert_eq!(check(false).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(check(true).await, StatusCode::SERVICE_UNAVAILABLE, "the result is reused");
        assert_eq!(asked.get(), 1);
        if let Some((asked, _)) = health.0.lock().await.as_mut() {
            *asked -= HEALTH_CACHE;
        }
        assert_eq!(check(true).await, StatusCode::OK);
        assert_eq!(asked.get(), 2);
    }
}
