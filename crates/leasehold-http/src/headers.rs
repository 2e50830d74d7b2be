//! Header values, and the security headers: what a browser may do with a response.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Policy of our own pages: our own files, no other host, no frame around them.
pub const PAGE_CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);
/// Policy of every other response.
const NOTHING_CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Set to `true` on a response that repeats an earlier one.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
/// Which origins may load a response. A response for other origins sets it before
/// [`add_security_headers`] runs.
pub const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Adds the security headers of every response. `secure`: browsers reach us by https and must not fall
/// back to http.
pub fn add_security_headers(map: &mut HeaderMap, secure: bool) {
    if secure {
        let year = HeaderValue::from_static("max-age=31536000");
        map.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    map.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    map.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    map.insert(CROSS_ORIGIN_OPENER_POLICY, SAME_ORIGIN);
    map.entry(CROSS_ORIGIN_RESOURCE_POLICY).or_insert(SAME_ORIGIN);
    map.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING_CSP);
}

/// Returns whole seconds, rounded up, at least one: the value of `Retry-After`.
pub fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// Returns a header value. Text with characters that no header can hold becomes empty.
pub fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the media type of a body, without its parameters, in lower case.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let media_type = value.split(';').next().unwrap_or_default().trim();
    Some(media_type.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_rounds_up_and_returns_at_least_one() {
        let seconds = |ms| whole_seconds(Duration::from_millis(ms));
        assert_eq!([0, 1, 1000, 1001].map(seconds), [1, 1, 1, 2]);
    }

    #[test]
    fn response_is_for_other_origins_only_with_its_own_header() {
        let mut map = HeaderMap::new();
        add_security_headers(&mut map, false);
        assert_eq!(map[CROSS_ORIGIN_RESOURCE_POLICY], "same-origin");
        let cross_origin = HeaderValue::from_static("cross-origin");
        let mut map = HeaderMap::from_iter([(CROSS_ORIGIN_RESOURCE_POLICY, cross_origin)]);
        add_security_headers(&mut map, true);
        assert_eq!(map[CROSS_ORIGIN_RESOURCE_POLICY], "cross-origin");
        assert!(map.contains_key(header::STRICT_TRANSPORT_SECURITY));
    }
}
