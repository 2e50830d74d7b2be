//! The state that every handler shares.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderMap;
use leasehold_http::body::{Budget, MemoryPermit};
use leasehold_http::limits::{self, Limit};
use leasehold_http::problems::CommonProblem;
use leasehold_http::request::{self, percent_decode, segment};
use leasehold_http::responses::HealthCheck;
use uuid::Uuid;

use super::cookies::Cookies;
use super::headers::CREATE_TOKEN;
use super::problems::PasteProblem;
use super::rendered::Rendered;
use crate::code::{Bearer, OwnerToken, ShortCode};
use crate::error::CreateError;
use crate::service::Pastes;

/// The least memory for bodies that are being received.
const RECEIVING: usize = 256 * 1024 * 1024;
/// The least memory for responses that the service is building, or that slow clients have not read.
const RESPONDING: usize = 256 * 1024 * 1024;
/// Responses up to this size are not counted: the connection takes them in one piece.
const SMALL_RESPONSE: usize = 64 * 1024;
/// How long a response waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Web {
    pub pastes: Pastes,
    /// Without a slash at the end.
    pub base_url: String,
    pub creates: Limit,
    pub reads: Limit,
    pub budget: Budget,
    response_budget: Budget,
    pub cookies: Cookies,
    pub rendered: Rendered,
    /// Links begin with https.
    pub secure: bool,
    proxies: usize,
    pub health: HealthCheck,
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
            response_budget: Budget::with_share(
                RESPONDING.max(settings.max_size.saturating_mul(16)),
                largest_json(settings.max_size),
            ),
            cookies: Cookies::new(&base_url),
            rendered: Rendered::new(settings.cache_bytes / 2),
            secure: base_url.starts_with("https://"),
            proxies: limits.trusted_proxies,
            health: HealthCheck::default(),
            base_url,
            pastes,
        }
    }

    pub fn client(&self, request: &Request) -> Option<IpAddr> {
        limits::client(request.extensions(), request.headers(), self.proxies)
    }

    /// Reserves memory for a response of up to `bytes` bytes, per client no more than its share. Waits up
    /// to `MEMORY_TIMEOUT`. Give it to [`leasehold_http::body::hold_memory`] with the response.
    pub async fn reserve(
        &self,
        client: Option<IpAddr>,
        bytes: usize,
    ) -> Result<MemoryPermit, PasteProblem> {
        match bytes <= SMALL_RESPONSE {
            true => Ok(MemoryPermit::default()),
            false => Ok(self.response_budget.of(client).hold(bytes, MEMORY_TIMEOUT).await?),
        }
    }

    /// Returns the delete token if this browser created exactly this paste.
    pub fn made(&self, headers: &HeaderMap, code: &ShortCode, paste: Uuid) -> Option<String> {
        let token = self.cookies.made(headers, code)?;
        (self.pastes.0.tokens.paste(code, token)? == paste).then(|| token.to_owned())
    }

    /// Counts a request that reads.
    pub fn admit_read(&self, request: &Request) -> Result<(), PasteProblem> {
        Ok(self.reads.admit(self.client(request))?)
    }

    /// Counts a request that stores something.
    pub fn admit_create(&self, request: &Request) -> Result<(), PasteProblem> {
        Ok(self.creates.admit(self.client(request))?)
    }

    /// Refuses clients without the token of a private service.
    pub fn admit_creator(&self, shown: Option<&str>) -> Result<(), PasteProblem> {
        let Some(wanted) = &self.pastes.settings().create_token else { return Ok(()) };
        match shown.map(str::trim).filter(|shown| !shown.is_empty()) {
            Some(shown) if wanted.is(shown) => Ok(()),
            Some(_) => Err(CommonProblem::WrongToken.into()),
            None => Err(PasteProblem::Private),
        }
    }
}

/// Returns an upper bound for a paste as JSON, and the copy of its text that is written: JSON may escape
/// one character as six.
pub fn largest_json(size: usize) -> usize {
    size.saturating_mul(7).saturating_add(16 * 1024)
}

/// Returns the code in a path such as `/raw/{code}`: the segment after `before` others. A malformed
/// code is not found.
pub fn code_in(request: &Request, before: usize) -> Result<ShortCode, PasteProblem> {
    let segment = segment(request.uri().path(), before).ok_or(PasteProblem::NOT_FOUND)?;
    let code = match segment.contains('%') {
        true => percent_decode(segment).and_then(|segment| segment.parse().ok()),
        false => segment.parse().ok(),
    };
    code.ok_or(PasteProblem::NOT_FOUND)
}

/// Reads `Authorization: Bearer …`. Returns `None` without such a header, and an error for a malformed
/// one.
pub fn bearer(headers: &HeaderMap) -> Result<Option<Bearer>, PasteProblem> {
    let shown = request::bearer(headers).map(Bearer::new);
    Ok(shown.map(|bearer| bearer.ok_or(CommonProblem::NoToken)).transpose()?)
}

/// Returns the owner that a program acts for.
pub fn owner(headers: &HeaderMap) -> Result<Option<OwnerToken>, PasteProblem> {
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
    fn bearer_accepts_tokens_of_16_to_128_characters() {
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
