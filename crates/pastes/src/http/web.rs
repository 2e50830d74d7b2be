//! The state that every handler shares.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::HeaderMap;
use leasehold_http::body::{Budget, Held};
use leasehold_http::limits::{self, Limit};
use leasehold_http::request::{self, segment, unescape};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::cookies::Cookies;
use super::errors::Failure;
use super::headers::CREATE_TOKEN;
use super::rendered::Rendered;
use crate::code::{Bearer, OwnerToken, ShortCode};
use crate::error::CreateError;
use crate::service::Pastes;

/// The least memory for bodies that are being received.
const RECEIVING: usize = 256 * 1024 * 1024;
/// The least memory for responses that are being made, or that slow clients have not read yet.
const ANSWERING: usize = 256 * 1024 * 1024;
/// Responses up to this size are not counted: the connection takes them in one piece.
const SMALL_ANSWER: usize = 64 * 1024;
/// How long a response waits for memory.
const TURN: Duration = Duration::from_secs(5);
/// How long the result of a health check is reused.
const HEALTH: Duration = Duration::from_secs(1);

pub struct Web {
    pub pastes: Pastes,
    /// Without a slash at the end.
    pub base_url: String,
    pub creates: Limit,
    pub reads: Limit,
    pub budget: Budget,
    answers: Budget,
    pub cookies: Cookies,
    pub rendered: Rendered,
    /// Links begin with https.
    pub secure: bool,
    proxies: usize,
    health: Mutex<Option<(Instant, bool)>>,
}

pub type Shared = Arc<Web>;

impl Web {
    pub fn new(pastes: Pastes) -> Self {
        let settings = pastes.settings();
        let limits = &settings.limits;
        let base_url = settings.base_url.trim_end_matches('/').to_owned();
        Self {
            creates: Limit::new(limits.creates_per_second, limits.create_burst),
            reads: Limit::new(limits.reads_per_second, limits.read_burst),
            budget: Budget::with_share(
                RECEIVING.max(settings.max_size.saturating_mul(16)),
                // JSON with every character escaped as six.
                settings.max_size.saturating_mul(6).saturating_add(1 << 20),
            ),
            answers: Budget::with_share(
                ANSWERING.max(settings.max_size.saturating_mul(16)),
                largest_json(settings.max_size),
            ),
            cookies: Cookies::new(&base_url),
            rendered: Rendered::new(settings.cache_bytes / 2),
            secure: base_url.starts_with("https://"),
            proxies: limits.trusted_proxies,
            health: Mutex::new(None),
            base_url,
            pastes,
        }
    }

    pub fn client(&self, request: &Request) -> Option<IpAddr> {
        limits::client(request.extensions(), request.headers(), self.proxies)
    }

    /// Reserves memory for a response of up to `bytes` bytes, per client no more than its share. Waits up
    /// to `TURN`. Give it to [`leasehold_http::body::keep`] with the response.
    pub async fn room(&self, client: Option<IpAddr>, bytes: usize) -> Result<Held, Failure> {
        match bytes <= SMALL_ANSWER {
            true => Ok(Held::default()),
            false => Ok(self.answers.of(client).hold(bytes, TURN).await?),
        }
    }

    /// Returns the delete token if this browser created exactly this paste.
    pub fn made(&self, headers: &HeaderMap, code: &ShortCode, paste: Uuid) -> Option<String> {
        let token = self.cookies.made(headers, code)?;
        (self.pastes.0.tokens.paste(code, token)? == paste).then(|| token.to_owned())
    }

    /// Counts a request that reads.
    pub fn admit_read(&self, request: &Request) -> Result<(), Failure> {
        Ok(self.reads.admit(self.client(request))?)
    }

    /// Counts a request that stores something.
    pub fn admit_create(&self, request: &Request) -> Result<(), Failure> {
        Ok(self.creates.admit(self.client(request))?)
    }

    /// Refuses clients without the token of a private service.
    pub fn admit_maker(&self, shown: Option<&str>) -> Result<(), Failure> {
        let Some(wanted) = &self.pastes.settings().create_token else { return Ok(()) };
        match shown.map(str::trim).filter(|shown| !shown.is_empty()) {
            Some(shown) if wanted.is(shown) => Ok(()),
            Some(_) => Err(Failure::WrongToken),
            None => Err(Failure::Private),
        }
    }

    /// Returns true if the database responds. Asks it at most once per second, however often this is
    /// called.
    pub async fn is_healthy(&self) -> bool {
        let mut known = self.health.lock().await;
        if let Some((asked, healthy)) = *known
            && asked.elapsed() < HEALTH
        {
            return healthy;
        }
        let healthy = self.pastes.is_healthy().await;
        *known = Some((Instant::now(), healthy));
        healthy
    }
}

/// Returns an upper bound for a paste as JSON, and the copy of its text that is written: JSON may escape
/// one character as six.
pub fn largest_json(size: usize) -> usize {
    size.saturating_mul(7).saturating_add(16 * 1024)
}

/// Returns the code in a path such as `/raw/{code}`: the segment after `before` others. A malformed
/// code is not found.
pub fn code_in(request: &Request, before: usize) -> Result<ShortCode, Failure> {
    let segment = segment(request.uri().path(), before).ok_or(Failure::NOT_FOUND)?;
    let code = match segment.contains('%') {
        true => unescape(segment).and_then(|segment| segment.parse().ok()),
        false => segment.parse().ok(),
    };
    code.ok_or(Failure::NOT_FOUND)
}

/// Reads `Authorization: Bearer …`. Returns `None` without such a header, and an error for a malformed
/// one.
pub fn bearer(headers: &HeaderMap) -> Result<Option<Bearer>, Failure> {
    let shown = request::bearer(headers).map(Bearer::new);
    shown.map(|bearer| bearer.ok_or(Failure::NoToken)).transpose()
}

/// Returns the owner that a program acts for.
pub fn owner(headers: &HeaderMap) -> Result<Option<OwnerToken>, Failure> {
    match bearer(headers)? {
        Some(bearer) => match OwnerToken::parse(bearer.as_str()) {
            Some(owner) => Ok(Some(owner)),
            None => Err(CreateError::UnknownOwner.into()),
        },
        None => Ok(None),
    }
}

/// `X-Create-Token`
pub fn create_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(CREATE_TOKEN)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::header;

    fn code(path: &str) -> Option<String> {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a request");
        code_in(&request, 1).ok().map(|code| code.to_string())
    }

    #[test]
    fn h4_only_codes_are_found_in_paths() {
        assert_eq!(code("/raw/aB3xYz").as_deref(), Some("aB3xYz"));
        assert_eq!(code("/raw/aB3%78Yz").as_deref(), Some("aB3xYz"));
        for bad in [
            "/raw/",
            "/raw",
            "/raw/..",
            "/raw/%2e%2e",
            "/raw/%2E%2E%2Fx",
            "/raw/a%2Fb",
            "/raw/a%00",
            "/raw/%",
            "/raw/%4",
            "/raw/%zz",
            "/raw/%ff",
            "/raw/%C3%A4",
            "/raw/a%5cb",
            "/raw/a%27--",
        ] {
            assert_eq!(code(bad), None, "{bad}");
        }
    }

    #[test]
    fn tokens_come_from_the_authorization_header() {
        let with = |value: &str| {
            bearer(&HeaderMap::from_iter([(
                header::AUTHORIZATION,
                value.parse().expect("a value"),
            )]))
        };
        assert!(bearer(&HeaderMap::new()).is_ok_and(|found| found.is_none()));
        assert!(with("Bearer 0123456789abcdef").is_ok_and(|found| found.is_some()));
        assert!(with("bearer  0123456789abcdef").is_ok_and(|found| found.is_some()));
        for bad in ["0123456789abcdef", "Basic 0123456789abcdef", "Bearer short", "Bearer "] {
            assert!(with(bad).is_err(), "{bad}");
        }
    }
}
