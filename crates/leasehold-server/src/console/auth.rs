//! Decides who may use the console.
//!
//! # Invariants
//! - Without a token the console listens on this machine only, and serves only requests for names of
//!   this machine: a foreign page that resolves its own name to this address (DNS rebinding) gets
//!   nothing. It rejects requests through a proxy that identifies itself, and changes from a page under
//!   the name of another machine.
//! - With a token, every request needs it as `Authorization: Bearer`, or the cookie of a log-in: see
//!   [`super::sessions`].
//! - An address that sends wrong tokens has to wait: see [`super::guesses`].
//! - Behind https the cookie is `Secure` and `__Host-`: no other port and no other host gets it.
//! - A form of another page changes nothing here: browsers name the origin of a request.
//!
//! # What can go wrong
//! - A proxy on this machine does not identify itself, as nginx by default: its clients then look like
//!   clients of this machine, and see everything. Any proxy needs the token.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use leasehold_http::cookies;
use leasehold_http::request::bearer;
use subtle::ConstantTimeEq;

use super::guesses::Guesses;
use super::sessions::{LENGTH_SECONDS, Sessions};
use crate::exit::Failure;

const SHORTEST: usize = 16;
/// The cookie names over plain http, and behind https.
const COOKIES: [&str; 2] = ["leasehold_console", "__Host-leasehold_console"];

pub struct Gatekeeper(Option<Token>);

struct Token {
    text: String,
    sessions: Sessions,
    guesses: Guesses,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Open,
    /// It must send the token first.
    Closed,
    /// Its address sent too many wrong tokens, and may send the next one after this time.
    Waiting(Duration),
    /// Its Host header is not a name of this machine.
    Stranger,
    /// It came through a proxy, so its origin is unknown.
    Proxied,
}

/// The headers by which proxies identify themselves.
const PROXIED: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/// The reason for rejecting a form of another page.
const ANOTHER_PAGE: &str =
    "the request came from a page of another site; use the console's own page\n";

/// What the operator of a proxy in front has to do.
pub const BEHIND_A_PROXY: &str = "the request came through a proxy, which may forward requests from anywhere, and no token is set. \
     Set LEASEHOLD_CONSOLE_TOKEN (openssl rand -hex 24) in the environment of the console\n";

impl Gatekeeper {
    pub fn new(token: Option<String>) -> Result<Self, Failure> {
        let Some(text) = token else { return Ok(Self(None)) };
        if text.len() < SHORTEST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::usage(format!(
                "LEASEHOLD_CONSOLE_TOKEN is too short or holds blanks; it must have {SHORTEST} characters or more"
            ))
            .hint("make one: openssl rand -hex 24"));
        }
        let sessions = Sessions::new(text.clone());
        Ok(Self(Some(Token { text, sessions, guesses: Guesses::default() })))
    }

    pub fn has_token(&self) -> bool {
        self.0.is_some()
    }

    pub fn may_listen(&self, address: SocketAddr) -> Result<(), Failure> {
        if self.0.is_some() || address.ip().is_loopback() {
            return Ok(());
        }
        Err(Failure::refused(format!("other machines can reach {address}, and no token is set"))
            .hint("set LEASEHOLD_CONSOLE_TOKEN (openssl rand -hex 24), or listen on 127.0.0.1"))
    }

    /// Decides about a request.
    pub fn admit(&self, headers: &HeaderMap, client: Option<IpAddr>) -> Entry {
        match &self.0 {
            None if PROXIED.iter().any(|name| headers.contains_key(*name)) => Entry::Proxied,
            None if is_of_this_machine(host(headers)) => Entry::Open,
            None => Entry::Stranger,
            Some(token) if token.has_session(headers) => Entry::Open,
            Some(token) => match bearer(headers) {
                Some(shown) => token.judge(shown, client),
                None => Entry::Closed,
            },
        }
    }

    /// Checks that an admitted request may change something. The error is the reason why not.
    pub fn may_change(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        if !comes_from_here(headers) {
            return Err(ANOTHER_PAGE);
        }
        match (&self.0, origin(headers)) {
            // Our own page under a name that is not of this machine: there is a proxy in between that
            // does not identify itself.
            (None, Some(origin)) if !is_of_this_machine(Some(origin)) => Err(BEHIND_A_PROXY),
            _ => Ok(()),
        }
    }

    /// Returns the cookie of a new session if the client sends the right token.
    pub fn log_in(
        &self,
        shown: &str,
        headers: &HeaderMap,
        client: Option<IpAddr>,
    ) -> Result<HeaderValue, Entry> {
        let token = self.0.as_ref().ok_or(Entry::Closed)?;
        match token.judge(shown, client) {
            Entry::Open => {
                let session = token.sessions.begin(Timestamp::now());
                Ok(cookie(headers, &session, LENGTH_SECONDS))
            }
            refused => Err(refused),
        }
    }

    /// Ends the session of this request. The returned cookie removes the old one from the browser.
    pub fn log_out(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(token) = &self.0 {
            for session in sessions_of(headers) {
                token.sessions.end(session, Timestamp::now());
            }
        }
        cookie(headers, "", 0)
    }
}

impl Token {
    fn has_session(&self, headers: &HeaderMap) -> bool {
        sessions_of(headers).any(|session| self.sessions.is_valid(session, Timestamp::now()))
    }

    /// Compares a token, unless its address guessed too often.
    fn judge(&self, shown: &str, client: Option<IpAddr>) -> Entry {
        if let Some(wait) = self.guesses.wait(client, Instant::now()) {
            return Entry::Waiting(wait);
        }
        if same(shown, &self.text) {
            return Entry::Open;
        }
        self.guesses.wrong(client, Instant::now());
        Entry::Closed
    }
}

fn sessions_of(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    COOKIES.into_iter().flat_map(|name| cookies::all(headers, name))
}

fn cookie(headers: &HeaderMap, value: &str, seconds: u32) -> HeaderValue {
    let secure = is_https(headers);
    cookies::set_cookie(COOKIES[usize::from(secure)], value, "/", seconds, secure)
}

/// True if the browser uses https, which ends at a proxy: this process speaks http only.
fn is_https(headers: &HeaderMap) -> bool {
    let is = |name: &str| text(headers, header::HeaderName::from_bytes(name.as_bytes()).ok()?);
    is("origin").is_some_and(|origin| origin.starts_with("https://"))
        || is("x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
        || is("forwarded").is_some_and(|via| via.to_ascii_lowercase().contains("proto=https"))
}

/// True if a request that changes something comes from our own page.
fn comes_from_here(headers: &HeaderMap) -> bool {
    match text(headers, header::HeaderName::from_static("sec-fetch-site")) {
        Some(site) => site == "same-origin",
        None => match text(headers, header::ORIGIN) {
            // Not a browser: no user's rights are borrowed.
            None => true,
            Some(origin) => {
                origin.split_once("://").is_some_and(|(_, from)| Some(from) == host(headers))
            }
        },
    }
}

/// Returns host and port of the page, as the browser sends it; an origin without them, such as `null`,
/// as is.
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

/// True for `localhost` or a loopback address, with or without a port.
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
    fn console_without_a_token_serves_only_local_names() {
        let keeper = Gatekeeper::new(None).expect("no token");
        for (host, entry) in [
            ("localhost:8090", Entry::Open),
            ("127.0.0.1:8090", Entry::Open),
            ("[::1]:8090", Entry::Open),
            ("evil.example:8090", Entry::Stranger),
            ("127.0.0.1.evil.example", Entry::Stranger),
            ("10.0.0.1", Entry::Stranger),
        ] {
            assert_eq!(keeper.admit(&headers(&[("host", host)]), None), entry, "{host}");
        }
        assert_eq!(keeper.admit(&headers(&[]), None), Entry::Stranger);
        for name in PROXIED {
            let through = headers(&[("host", "localhost"), (name, "203.0.113.9")]);
            assert_eq!(keeper.admit(&through, None), Entry::Proxied, "{name}");
        }
        assert!(keeper.may_listen("0.0.0.0:1".parse().expect("an address")).is_err());
        assert!(keeper.may_listen("[::1]:1".parse().expect("an address")).is_ok());
    }

    #[test]
    fn console_with_a_token_requires_it_or_a_session() {
        let keeper = Gatekeeper::new(Some(TOKEN.to_owned())).expect("long enough");
        assert!(keeper.may_listen("0.0.0.0:1".parse().expect("an address")).is_ok());
        assert_eq!(keeper.admit(&headers(&[("host", "localhost")]), None), Entry::Closed);
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(keeper.admit(&headers(&[("authorization", &bearer)]), None), Entry::Open);
        let proxied = headers(&[("authorization", &bearer), ("x-forwarded-for", "203.0.113.9")]);
        assert_eq!(keeper.admit(&proxied, None), Entry::Open, "with a token a proxy is welcome");
        let wrong = headers(&[("authorization", "Bearer no")]);
        assert_eq!(keeper.admit(&wrong, None), Entry::Closed);
        assert_eq!(keeper.log_in("no", &headers(&[]), None), Err(Entry::Closed));
        let cookie = keeper.log_in(TOKEN, &headers(&[]), None).expect("a cookie");
        let cookie = cookie.to_str().expect("ASCII");
        assert!(!cookie.contains(TOKEN) && cookie.contains("HttpOnly"), "{cookie}");
        let pair = cookie.split(';').next().expect("a pair");
        let shown = headers(&[("cookie", &format!("a=b; {pair}"))]);
        assert_eq!(keeper.admit(&shown, None), Entry::Open);
        keeper.log_out(&shown);
        assert_eq!(keeper.admit(&shown, None), Entry::Closed, "after the log-out");
        for bad in ["short", "has a blank in the middle", ""] {
            assert!(Gatekeeper::new(Some(bad.to_owned())).is_err(), "{bad}");
        }
    }

    #[test]
    fn h23_cookie_is_secure_behind_https() {
        let keeper = Gatekeeper::new(Some(TOKEN.to_owned())).expect("long enough");
        for (name, value, secure) in [
            ("origin", "https://console.example", true),
            ("x-forwarded-proto", "https", true),
            ("forwarded", "for=192.0.2.1;Proto=https", true),
            ("origin", "http://localhost:8090", false),
        ] {
            let cookie = keeper.log_in(TOKEN, &headers(&[(name, value)]), None).expect("a cookie");
            let cookie = cookie.to_str().expect("ASCII");
            assert_eq!(cookie.starts_with("__Host-leasehold_console="), secure, "{cookie}");
            assert_eq!(cookie.contains("; Secure"), secure, "{cookie}");
            let pair = cookie.split(';').next().expect("a pair");
            assert_eq!(keeper.admit(&headers(&[("cookie", pair)]), None), Entry::Open, "{cookie}");
        }
    }

    #[test]
    fn h23_address_that_guesses_is_refused_and_sessions_stay() {
        let keeper = Gatekeeper::new(Some(TOKEN.to_owned())).expect("long enough");
        let (guesser, other) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let cookie = keeper.log_in(TOKEN, &headers(&[]), guesser).expect("a cookie");
        let pair = cookie.to_str().expect("ASCII").split(';').next().expect("a pair").to_owned();
        let wrong = headers(&[("authorization", "Bearer no")]);
        for _ in 0..10 {
            assert_eq!(keeper.admit(&wrong, guesser), Entry::Closed);
        }
        assert!(matches!(keeper.admit(&wrong, guesser), Entry::Waiting(_)));
        assert!(matches!(keeper.log_in(TOKEN, &headers(&[]), guesser), Err(Entry::Waiting(_))));
        assert_eq!(keeper.admit(&wrong, other), Entry::Closed, "another address is not refused");
        assert_eq!(keeper.admit(&headers(&[("cookie", &pair)]), guesser), Entry::Open);
    }

    #[test]
    fn form_of_another_site_is_rejected() {
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
    fn console_without_a_token_rejects_changes_through_a_silent_proxy() {
        let keeper = Gatekeeper::new(None).expect("no token");
        // As nginx forwards a request by default.
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
