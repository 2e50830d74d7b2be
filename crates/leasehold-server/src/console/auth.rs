//! Who may look.
//!
//! # What is true
//! - Without a token the console listens on this machine only, and answers only to names of this
//!   machine: a page of somebody else that makes its own name lead here gets nothing. Nor does anybody who
//!   comes through a proxy that says so, and a browser changes nothing from a page of another machine's name.
//! - With a token, every request shows it, by `Authorization: Bearer` or by the cookie that the log-in
//!   gives. The cookie is made from the token and tells nothing of it.
//! - A form of another page changes nothing here: browsers say where a request comes from.
//!
//! # What can go wrong
//! - A proxy on this machine says nothing of itself, as nginx unless it is told to: then whoever comes
//!   through it looks like somebody of this machine, and sees everything. Any proxy needs the token.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};
use leasehold_http::cookies;
use leasehold_http::request::bearer;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::exit::Failure;

const SHORTEST: usize = 16;
const COOKIE: &str = "leasehold_console";

#[derive(Clone)]
pub struct Gatekeeper(Option<Token>);

#[derive(Clone)]
struct Token {
    text: String,
    cookie: String,
}

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Open,
    /// It must show the token first.
    Closed,
    /// It came by a name that is not ours.
    Stranger,
    /// It came through a proxy, from who knows where.
    Proxied,
}

/// What proxies add that say so.
const PROXIED: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/// Why a form of another page is not taken.
const ANOTHER_PAGE: &str = "this came from another page\n";

/// What whoever put a proxy in front is to do.
pub const BEHIND_A_PROXY: &str = "this came through a proxy, and there is no token: anybody might be behind it. \
     Set LEASEHOLD_CONSOLE_TOKEN (openssl rand -hex 24) where this was started\n";

impl Gatekeeper {
    pub fn new(token: Option<String>) -> Result<Self, Failure> {
        let Some(text) = token else { return Ok(Self(None)) };
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage(format!(
                "LEASEHOLD_CONSOLE_TOKEN is too short, or holds blanks; it has {SHORTEST} characters or more"
            ))
            .hint("make one: openssl rand -hex 24"));
        }
        let digest = Sha256::digest(format!("leasehold console cookie {text}").as_bytes());
        let cookie = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(Some(Token { text, cookie })))
    }

    pub fn may_listen(&self, address: SocketAddr) -> Result<(), Failure> {
        if self.0.is_some() || address.ip().is_loopback() {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{address} can be reached from other machines, and there is no token"
        ))
        .hint("set LEASEHOLD_CONSOLE_TOKEN (openssl rand -hex 24), or listen on 127.0.0.1"))
    }

    /// What this request may do.
    pub fn admit(&self, headers: &HeaderMap) -> Entry {
        match &self.0 {
            None if PROXIED.iter().any(|name| headers.contains_key(*name)) => Entry::Proxied,
            None if is_of_this_machine(host(headers)) => Entry::Open,
            None => Entry::Stranger,
            Some(token) => {
                let bearer = bearer(headers).is_some_and(|shown| same(shown, &token.text));
                let cookie = cookies::all(headers, COOKIE).any(|value| same(value, &token.cookie));
                if bearer || cookie { Entry::Open } else { Entry::Closed }
            }
        }
    }

    /// Whether a request that was let in may change something; else why not.
    pub fn may_change(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        if !comes_from_here(headers) {
            return Err(ANOTHER_PAGE);
        }
        match (&self.0, origin(headers)) {
            // Our own page under a name that is not of this machine: a proxy stands between that says
            // nothing of itself.
            (None, Some(origin)) if !is_of_this_machine(Some(origin)) => Err(BEHIND_A_PROXY),
            _ => Ok(()),
        }
    }

    /// The cookie for whoever shows the token.
    pub fn cookie_for(&self, shown: &str) -> Option<String> {
        let token = self.0.as_ref().filter(|token| same(shown, &token.text))?;
        let cookie = &token.cookie;
        Some(format!("{COOKIE}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800"))
    }
}

/// Whether a request that changes something comes from a page of ours.
fn comes_from_here(headers: &HeaderMap) -> bool {
    match text(headers, header::HeaderName::from_static("sec-fetch-site")) {
        Some(site) => site == "same-origin",
        None => match text(headers, header::ORIGIN) {
            // No browser: then nobody's rights are borrowed.
            None => true,
            Some(origin) => {
                origin.split_once("://").is_some_and(|(_, from)| Some(from) == host(headers))
            }
        },
    }
}

/// Whose page it is, as browsers say: host and port; what has none, such as `null`, as it is.
fn origin(headers: &HeaderMap) -> Option<&str> {
    let origin = text(headers, header::ORIGIN)?;
    Some(origin.split_once("://").map_or(origin, |(_, host)| host))
}

fn host(headers: &HeaderMap) -> Option<&str> {
    text(headers, header::HOST)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn same(shown: &str, wanted: &str) -> bool {
    shown.as_bytes().ct_eq(wanted.as_bytes()).into()
}

/// `localhost`, or an address of this machine, with or without a port.
fn is_of_this_machine(host: Option<&str>) -> bool {
    let Some(host) = host else { return false };
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = header::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        map
    }

    const TOKEN: &str = "0123456789abcdef0123";

    #[test]
    fn without_a_token_only_names_of_this_machine_are_answered() {
        let keeper = Gatekeeper::new(None).expect("no token");
        for (host, entry) in [
            ("localhost:8090", Entry::Open),
            ("127.0.0.1:8090", Entry::Open),
            ("[::1]:8090", Entry::Open),
            ("evil.example:8090", Entry::Stranger),
            ("127.0.0.1.evil.example", Entry::Stranger),
            ("10.0.0.1", Entry::Stranger),
        ] {
            assert_eq!(keeper.admit(&headers(&[("host", host)])), entry, "{host}");
        }
        assert_eq!(keeper.admit(&headers(&[])), Entry::Stranger);
        for name in PROXIED {
            let through = headers(&[("host", "localhost"), (name, "203.0.113.9")]);
            assert_eq!(keeper.admit(&through), Entry::Proxied, "{name}");
        }
        assert!(keeper.may_listen("0.0.0.0:1".parse().expect("an address")).is_err());
        assert!(keeper.may_listen("[::1]:1".parse().expect("an address")).is_ok());
    }

    #[test]
    fn with_a_token_it_must_be_shown_or_its_cookie() {
        let keeper = Gatekeeper::new(Some(TOKEN.to_owned())).expect("long enough");
        assert!(keeper.may_listen("0.0.0.0:1".parse().expect("an address")).is_ok());
        assert_eq!(keeper.admit(&headers(&[("host", "localhost")])), Entry::Closed);
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(keeper.admit(&headers(&[("authorization", &bearer)])), Entry::Open);
        let proxied = headers(&[("authorization", &bearer), ("x-forwarded-for", "203.0.113.9")]);
        assert_eq!(keeper.admit(&proxied), Entry::Open, "with a token a proxy is welcome");
        assert_eq!(keeper.admit(&headers(&[("authorization", "Bearer no")])), Entry::Closed);
        assert_eq!(keeper.cookie_for("no"), None);
        let cookie = keeper.cookie_for(TOKEN).expect("a cookie");
        assert!(!cookie.contains(TOKEN) && cookie.contains("HttpOnly"), "{cookie}");
        let pair = cookie.split(';').next().expect("a pair");
        assert_eq!(keeper.admit(&headers(&[("cookie", &format!("a=b; {pair}"))])), Entry::Open);
        for bad in ["short", "has a blank in the middle", ""] {
            assert!(Gatekeeper::new(Some(bad.to_owned())).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_form_of_another_page_is_turned_away() {
        for (pairs, here) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("origin", "http://localhost:8090"), ("host", "localhost:8090")], true),
            (&[("origin", "http://evil.example"), ("host", "localhost:8090")], false),
            (&[("origin", "null"), ("host", "localhost:8090")], false),
            (&[("host", "localhost:8090")], true),
        ] {
            assert_eq!(comes_from_here(&headers(pairs)), here, "{pairs:?}");
        }
    }

    #[test]
    fn without_a_token_nothing_is_changed_through_a_proxy_that_says_nothing() {
        let keeper = Gatekeeper::new(None).expect("no token");
        // As nginx passes a request on when it is told nothing but where to.
        let through = |origin| {
            headers(&[
                ("host", "127.0.0.1:8090"),
                ("origin", origin),
                ("sec-fetch-site", "same-origin"),
            ])
        };
        for own in ["http://localhost:8090", "http://127.0.0.1:8090", "http://[::1]:8090"] {
            assert_eq!(keeper.may_change(&through(own)), Ok(()), "{own}");
        }
        for other in ["https://console.example", "http://10.0.0.1", "http://localhost.evil", "null"]
        {
            assert_eq!(keeper.may_change(&through(other)), Err(BEHIND_A_PROXY), "{other}");
        }
        let program = headers(&[("host", "127.0.0.1:8090")]);
        assert_eq!(keeper.may_change(&program), Ok(()));
        let elsewhere = headers(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]);
        assert_eq!(keeper.may_change(&elsewhere), Err(ANOTHER_PAGE));
        let keeper = Gatekeeper::new(Some(TOKEN.to_owned())).expect("long enough");
        assert_eq!(keeper.may_change(&through("https://console.example")), Ok(()));
    }
}
