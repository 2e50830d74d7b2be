//! Cookies and where a form came from: what a browser remembers for us, and for whom.
//!
//! # What is true
//! - Cookies are HttpOnly and SameSite=Strict: no script and no other site can use them.
//! - A form counts only when our own page sent it. Browsers say where a request comes from in
//!   `Sec-Fetch-Site`, and older ones in `Origin`.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::errors::Failure;
use super::headers::text;
use crate::code::{OwnerToken, ShortCode};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// How long the person who made a paste has to see its delete token.
const MADE_SECONDS: u32 = 600;
const OWNER_SECONDS: u32 = 365 * 24 * 60 * 60;

/// Names differ with the transport: browsers take `__Host-` only over https, and then guarantee that
/// no other host and no path of this one wrote it.
#[derive(Clone, Copy, Debug)]
pub struct Cookies {
    secure: bool,
}

impl Cookies {
    pub fn new(base_url: &str) -> Self {
        Self { secure: base_url.starts_with("https://") }
    }

    fn owner_name(self) -> &'static str {
        if self.secure { "__Host-owner" } else { "owner" }
    }

    /// Whose browser this is.
    pub fn owner(self, headers: &HeaderMap) -> Option<OwnerToken> {
        find(headers, self.owner_name()).and_then(OwnerToken::parse)
    }

    pub fn remember_owner(self, owner: &OwnerToken) -> HeaderValue {
        self.write(self.owner_name(), owner.as_str(), "/", OWNER_SECONDS)
    }

    /// The delete token of the paste that this browser just made.
    pub fn made(self, headers: &HeaderMap, code: &ShortCode) -> Option<String> {
        // Most readers made nothing: look no further.
        let value = find(headers, "made")?;
        let (made, token) = value.split_once('.')?;
        (made == code.as_str() && token.bytes().all(|byte| byte.is_ascii_alphanumeric()))
            .then(|| token.to_owned())
    }

    pub fn remember_made(self, code: &ShortCode, token: &str) -> HeaderValue {
        self.write("made", &format!("{code}.{token}"), &format!("/{code}"), MADE_SECONDS)
    }

    pub fn forget_made(self, code: &ShortCode) -> HeaderValue {
        self.write("made", "", &format!("/{code}"), 0)
    }

    fn write(self, name: &str, value: &str, path: &str, seconds: u32) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        text(&format!(
            "{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        ))
    }

    /// Refuses a form that another site made the browser send. Programs send neither header and have
    /// no cookies that could be abused.
    pub fn own_form(self, headers: &HeaderMap, base_url: &str) -> Result<(), Failure> {
        if let Some(site) = headers.get(FETCH_SITE) {
            let own = matches!(site.as_bytes(), b"same-origin" | b"none");
            return if own { Ok(()) } else { Err(Failure::CrossSite) };
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.as_bytes();
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let named = origin.strip_prefix(b"https://").or(origin.strip_prefix(b"http://"));
        let own = named.is_some() && named == host
            || origin == origin_of(base_url)
            // Over plain http some browsers hide where they come from; what is left is SameSite.
            || origin == b"null" && !self.secure;
        if own { Ok(()) } else { Err(Failure::CrossSite) }
    }
}

/// Scheme and host of a URL.
fn origin_of(url: &str) -> &[u8] {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(start..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| start + at);
    url.get(..end).unwrap_or(url).as_bytes()
}

fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn h10_forms_of_other_sites_are_refused() {
        let (https, http) = (Cookies { secure: true }, Cookies { secure: false });
        let own = |cookies: Cookies, pairs: &[(HeaderName, &'static str)]| {
            cookies.own_form(&headers(pairs), "https://p.example/pastes").is_ok()
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
    fn cookies_are_strict_and_bound_to_the_host() {
        let (https, http) = (Cookies::new("https://a"), Cookies::new("http://a"));
        let owner = OwnerToken::random();
        let written = https.remember_owner(&owner);
        let written = written.to_str().unwrap_or_default();
        assert!(written.starts_with("__Host-owner=") && written.ends_with("; Secure"), "{written}");
        for part in ["; Path=/;", "; HttpOnly;", "; SameSite=Strict"] {
            assert!(written.contains(part), "{part} in {written}");
        }
        let sent =
            HeaderValue::from_str(&format!("x=1; owner={}", owner.as_str())).expect("a value");
        let sent = HeaderMap::from_iter([(header::COOKIE, sent)]);
        assert_eq!(http.owner(&sent), Some(owner));
        assert_eq!(https.owner(&sent), None, "a cookie without __Host- is not believed");
    }

    #[test]
    fn the_token_of_a_new_paste_is_for_its_page_only() {
        let cookies = Cookies::new("http://a");
        let code: ShortCode = "abc".parse().expect("a code");
        let other: ShortCode = "abd".parse().expect("a code");
        let sent = headers(&[(header::COOKIE, "made=abc.T0ken")]);
        assert_eq!(cookies.made(&sent, &code).as_deref(), Some("T0ken"));
        assert_eq!(cookies.made(&sent, &other), None);
        assert_eq!(cookies.made(&headers(&[(header::COOKIE, "made=abc.<script>")]), &code), None);
    }
}
