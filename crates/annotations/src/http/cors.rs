//! Access for pages of other origins, which embed the script of this service.
//!
//! # Invariants
//! - Browsers let in only the origins in the settings; there are none by default. Pages of these origins read
//!   and write notes, and learn who is logged in; accounts and the list of groups are for our own pages. A
//!   note names its group, so an allowed origin can learn the ids of groups that wrote on a page.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use leasehold_http::headers::IDEMPOTENCY_KEY;
use tower_http::cors::{AllowCredentials, AllowOrigin, CorsLayer};

const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::PATCH, Method::DELETE];
const HEADERS: [HeaderName; 4] =
    [header::AUTHORIZATION, header::CONTENT_TYPE, IDEMPOTENCY_KEY, header::IF_MATCH];
/// How long a browser may cache the response to a preflight request.
const PREFLIGHT: Duration = Duration::from_secs(600);

/// Returns the layer for routes that pages of these origins may use; `None`: there are no such origins.
pub fn layer(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> =
        origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let allowed = origins.clone();
    let credentials = AllowCredentials::predicate(move |origin, _| allowed.contains(origin));
    Some(
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_credentials(credentials)
            .allow_methods(METHODS)
            .allow_headers(HEADERS)
            .expose_headers([header::ETAG])
            .max_age(PREFLIGHT)
            .vary([header::ORIGIN]),
    )
}
