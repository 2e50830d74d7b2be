//! Security headers: what a browser may do with a response.

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
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Who may load a response. A response for other origins sets it before [`guard`] runs.
pub const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Adds the headers of every response. `secure`: browsers reach us by https and must not fall back to
/// http.
pub fn guard(map: &mut HeaderMap, secure: bool) {
    if secure {
        let year = HeaderValue::from_static("max-age=31536000");
        map.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    map.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    map.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    map.insert(OPENER, SAME_ORIGIN);
    map.entry(RESOURCE).or_insert(SAME_ORIGIN);
    map.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING_CSP);
}

/// Returns whole seconds, rounded up, at least one.
pub fn seconds_up(time: Duration) -> HeaderValue {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// Returns a header value. Text with characters that no header can hold becomes empty.
pub fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// Returns the media type of a body, without its parameters, in lower case.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let kind = value.split(';').next().unwrap_or_default().trim();
    Some(kind.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_whole_seconds_and_never_nothing() {
        let seconds = |ms| seconds_up(Duration::from_millis(ms)).to_str().map(str::to_owned).ok();
        assert_eq!(
            [0, 1, 1000, 1001].map(seconds),
            ["1", "1", "1", "2"].map(|s| Some(s.to_owned()))
        );
    }

    #[test]
    fn an_answer_for_others_may_say_so_and_nothing_else_is_for_them() {
        let mut map = HeaderMap::new();
        guard(&mut map, false);
        assert_eq!(map[RESOURCE], "same-origin");
        let mut map = HeaderMap::from_iter([(RESOURCE, HeaderValue::from_static("cross-origin"))]);
        guard(&mut map, true);
        assert_eq!(map[RESOURCE], "cross-origin");
        assert!(map.contains_key(header::STRICT_TRANSPORT_SECURITY));
    }
}
