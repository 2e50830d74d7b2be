//! Headers that guard: what a browser may do with an answer, and how long anyone may keep it.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

pub const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
pub const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What someone pasted can do nothing, even when a browser is made to show it.
pub const RAW_CSP: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");
/// Our own pages: our own files, no other host, no frame around them.
pub const PAGE_CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);
/// Everything else.
const NOTHING_CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

pub const DELETE_TOKEN: HeaderName = HeaderName::from_static("x-delete-token");
pub const EXPIRES_AT: HeaderName = HeaderName::from_static("x-expires-at");
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Set to `true` on an answer that repeats an earlier one.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Every answer carries these. `secure`: people reach us by https, and shall not be led to http.
pub fn guard(map: &mut HeaderMap, secure: bool) {
    if secure {
        let year = HeaderValue::from_static("max-age=31536000");
        map.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    map.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    map.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    map.insert(OPENER, SAME_ORIGIN);
    map.insert(RESOURCE, SAME_ORIGIN);
    map.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING_CSP);
}

/// The longest that a copy may be kept.
const KEEP: u64 = 60;

/// How long a copy may be kept: never longer than the paste lives.
///
/// What was read may be a second old, so a second is taken off.
pub fn keep(life: Duration) -> HeaderValue {
    match life.as_secs().saturating_sub(1) {
        KEEP.. => HeaderValue::from_static("private, max-age=60"),
        0 => HeaderValue::from_static("private, max-age=0"),
        left => text(&format!("private, max-age={left}")),
    }
}

/// Whole seconds, rounded up, at least one.
pub fn seconds_up(time: Duration) -> HeaderValue {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    HeaderValue::from(seconds.max(1))
}

/// A header of a text of our own. Characters that no header can hold make it empty.
pub fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e16_no_copy_outlives_its_paste() {
        for (life, kept) in
            [(0.0, 0), (0.9, 0), (1.5, 0), (2.0, 1), (30.9, 29), (61.0, 60), (1e6, 60)]
        {
            let value = keep(Duration::from_secs_f64(life));
            assert_eq!(value.to_str().ok(), Some(&*format!("private, max-age={kept}")), "{life}");
            assert!(f64::from(kept) <= life);
        }
    }

    #[test]
    fn waits_are_whole_seconds_and_never_nothing() {
        let seconds = |ms| seconds_up(Duration::from_millis(ms)).to_str().map(str::to_owned).ok();
        assert_eq!(
            [0, 1, 1000, 1001].map(seconds),
            ["1", "1", "1", "2"].map(|s| Some(s.to_owned()))
        );
    }
}
