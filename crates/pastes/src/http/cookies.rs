//! The cookies of the service: the owner of this browser's pastes, and the delete token of a new paste.
//! What all cookies have in common is in [`leasehold_http::cookies`].

use axum::http::{HeaderMap, HeaderValue};
use leasehold_http::cookies::{self, find};
use leasehold_http::problems::CommonProblem;

use crate::code::{OwnerToken, ShortCode};

/// How long the author of a paste has to see its delete token.
const MADE_SECONDS: u32 = 600;
const OWNER_SECONDS: u32 = 365 * 24 * 60 * 60;

/// Names depend on the transport: browsers accept `__Host-` only over https, and then guarantee that no
/// other host and no path of this one wrote the cookie.
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

    /// Returns the owner whose token the browser has.
    pub fn owner(self, headers: &HeaderMap) -> Option<OwnerToken> {
        find(headers, self.owner_name()).and_then(OwnerToken::parse)
    }

    pub fn forget_owner(self) -> HeaderValue {
        self.set(self.owner_name(), "", "/", 0)
    }

    pub fn remember_owner(self, owner: &OwnerToken) -> HeaderValue {
        self.set(self.owner_name(), owner.as_str(), "/", OWNER_SECONDS)
    }

    /// Returns what this browser claims is the delete token of the paste that it just created. Any
    /// client can send it, so the caller must verify it.
    pub fn made<'a>(self, headers: &'a HeaderMap, code: &ShortCode) -> Option<&'a str> {
        // Most readers have no such cookie and return here.
        let value = find(headers, "made")?;
        value.split_once('.').filter(|(made, _)| *made == code.as_str()).map(|(_, token)| token)
    }

    pub fn remember_made(self, code: &ShortCode, token: &str) -> HeaderValue {
        self.set("made", &format!("{code}.{token}"), &format!("/{code}"), MADE_SECONDS)
    }

    pub fn forget_made(self, code: &ShortCode) -> HeaderValue {
        self.set("made", "", &format!("/{code}"), 0)
    }

    fn set(self, name: &str, value: &str, path: &str, seconds: u32) -> HeaderValue {
        cookies::set_cookie(name, value, path, seconds, self.secure)
    }

    /// Refuses a form that another site made the browser send.
    pub fn own_form(self, headers: &HeaderMap, base_url: &str) -> Result<(), CommonProblem> {
        match cookies::is_own_form(headers, base_url) {
            true => Ok(()),
            false => Err(CommonProblem::CrossSite),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, header};

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn owner_cookie_is_strict_and_bound_to_the_host() {
        let (https, http) = (Cookies::new("https://a"), Cookies::new("http://a"));
        let owner = OwnerToken::random();
        let written = https.remember_owner(&owner);
        let written = written.to_str().unwrap_or_default();
        assert!(written.starts_with("__Host-owner="), "{written}");
        for part in ["; Path=/;", "; HttpOnly;", "; SameSite=Strict;", "; Secure;"] {
            assert!(written.contains(part), "{part} in {written}");
        }
        let sent =
            HeaderValue::from_str(&format!("x=1; owner={}", owner.as_str())).expect("a value");
        let sent = HeaderMap::from_iter([(header::COOKIE, sent)]);
        assert_eq!(http.owner(&sent), Some(owner));
        assert_eq!(https.owner(&sent), None, "a cookie without __Host- is ignored");
    }

    #[test]
    fn token_of_a_new_paste_is_found_only_for_its_code() {
        let cookies = Cookies::new("http://a");
        let code: ShortCode = "abc".parse().expect("a code");
        let other: ShortCode = "abd".parse().expect("a code");
        let sent = headers(&[(header::COOKIE, "made=abc.T0ken")]);
        assert_eq!(cookies.made(&sent, &code), Some("T0ken"));
        assert_eq!(cookies.made(&sent, &other), None);
    }
}
