//! Headers of this service only, and how long clients may cache a response. The others are in
//! [`leasehold_http::headers`].

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};

pub use leasehold_http::headers::{
    IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, NO_STORE, TEXT, add_security_headers, header_value,
    whole_seconds,
};

/// Keeps pasted content inactive, even if a browser is made to render it.
pub const RAW_CSP: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");

pub const DELETE_TOKEN: HeaderName = HeaderName::from_static("x-delete-token");
pub const CREATE_TOKEN: HeaderName = HeaderName::from_static("x-create-token");
pub const EXPIRES_AT: HeaderName = HeaderName::from_static("x-expires-at");

/// The longest time that a client may cache a copy, in seconds.
const LONGEST_CACHE: u64 = 60;

/// Returns the Cache-Control of a copy: never longer than the paste lives.
///
/// The lookup may be a second old, so a second is subtracted.
pub fn cache_control(life: Duration) -> HeaderValue {
    match life.as_secs().saturating_sub(1) {
        LONGEST_CACHE.. => HeaderValue::from_static("private, max-age=60"),
        0 => HeaderValue::from_static("private, max-age=0"),
        left => header_value(&format!("private, max-age={left}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e16_cached_copy_does_not_outlive_its_paste() {
        for (life, cached) in
            [(0.0, 0), (0.9, 0), (1.5, 0), (2.0, 1), (30.9, 29), (61.0, 60), (1e6, 60)]
        {
            let value = cache_control(Duration::from_secs_f64(life));
            assert_eq!(value.to_str().ok(), Some(&*format!("private, max-age={cached}")), "{life}");
            assert!(f64::from(cached) <= life);
        }
    }
}
