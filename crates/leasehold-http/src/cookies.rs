//! Cookies, and which site a form came from.
//!
//! # Invariants
//! - Cookies are HttpOnly and SameSite=Strict: no script and no other site can use them.
//! - A form is accepted only if our own page sent it. Browsers name the origin of a request in
//!   `Sec-Fetch-Site`, older ones in `Origin`.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use cookie::time::Duration;
use cookie::{Cookie, SameSite};

use crate::headers::header_value;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the value of a cookie that the browser sent.
pub fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    all(headers, name).next()
}

/// Returns every value of this name: a page under another path may have set one, too.
pub fn all<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(found, _)| *found == name)
        .map(|(_, value)| value)
}

/// Returns the value of a `Set-Cookie` header.
pub fn set_cookie(name: &str, value: &str, path: &str, seconds: u32, secure: bool) -> HeaderValue {
    let cookie = Cookie::build((name, value))
        .path(path)
        .max_age(Duration::seconds(seconds.into()))
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(secure);
    header_value(&cookie.to_string())
}

/// Returns false for a form that another site made the browser send. Programs send neither header and
/// have no cookies that could be abused.
pub fn is_own_form(headers: &HeaderMap, base_url: &str) -> bool {
    if let Some(site) = headers.get(FETCH_SITE) {
        return matches!(site.as_bytes(), b"same-origin" | b"none");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.as_bytes();
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let named = origin.strip_prefix(b"https://").or(origin.strip_prefix(b"http://"));
    named.is_some() && named == host
        || origin == origin_of(base_url)
        // Over plain http some browsers send `null` as the origin; SameSite still protects.
        || origin == b"null" && !base_url.starts_with("https://")
}

/// Returns the scheme and host of a URL.
pub fn origin_of(url: &str) -> &[u8] {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(start..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| start + at);
    url.get(..end).unwrap_or(url).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn h10_form_of_another_site_is_refused() {
        let (https, http) = ("https://p.example/pastes", "http://p.example/pastes");
        let own = |base_url: &str, pairs: &[(HeaderName, &'static str)]| {
            is_own_form(&headers(pairs), base_url)
        };
        assert!(own(https, &[(FETCH_SITE, "same-origin")]));
        assert!(own(https, &[(FETCH_SITE, "none")]));
        assert!(own(https, &[]));
        assert!(own(https, &[(header::ORIGIN, "https://p.example")]));
        assert!(own(
            https,
            &[(header::ORIGIN, "http://localhost:1"), (header::HOST, "localhost:1")]
        ));
        assert!(own(http, &[(header::ORIGIN, "null")]));
        for bad in [
            &[(FETCH_SITE, "cross-site")][..],
            &[(FETCH_SITE, "same-site")],
            &[(FETCH_SITE, "cross-site"), (header::ORIGIN, "https://p.example")],
            &[(header::ORIGIN, "https://evil.example"), (header::HOST, "p.example")],
            &[(header::ORIGIN, "https://p.example.evil.example")],
            &[(header::ORIGIN, "null")],
        ] {
            assert!(!own(https, bad), "{bad:?}");
        }
    }

    #[test]
    fn cookie_is_found_by_its_whole_name() {
        let sent = headers(&[(header::COOKIE, "xa=1; a=2"), (header::COOKIE, "b=3")]);
        assert_eq!(find(&sent, "a"), Some("2"));
        assert_eq!(find(&sent, "b"), Some("3"));
        assert_eq!(find(&sent, "c"), None);
    }
}
