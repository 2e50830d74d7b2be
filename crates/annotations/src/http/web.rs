//! What every handler has at hand: the service, the limits, and who is asking.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use leasehold_http::body::Budget;
use leasehold_http::cookies;
use leasehold_http::limits::{self, Limit};
use leasehold_http::request;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errors::Failure;
use crate::error::Refused;
use crate::id::{AnnotationId, Token};
use crate::model::User;
use crate::service::Annotations;

pub use leasehold_http::answers::empty;
pub use leasehold_http::request::query as given;

pub type Answer = Result<Response, Failure>;
pub type Shared = Arc<Web>;

/// Memory for bodies that are being received.
const RECEIVING: usize = 64 * 1024 * 1024;
/// The largest body: a note's text with every letter written as `\u0041`, and its quote.
pub const LARGEST_BODY: usize =
    6 * (crate::save::LONGEST_TEXT + crate::save::LONGEST_QUOTE) + 32 * 1024;
const SESSION_SECONDS: u32 = 30 * 24 * 60 * 60;

pub struct Web {
    pub annotations: Annotations,
    /// Without a slash at the end.
    pub base_url: String,
    /// Links begin with https.
    pub secure: bool,
    pub saves: Limit,
    pub reads: Limit,
    budget: Budget,
    proxies: usize,
    origins: Vec<String>,
}

/// Who asks, and how we know.
pub struct Viewer {
    pub user: Option<User>,
    /// By a cookie, which other sites can make a browser send.
    pub by_cookie: bool,
}

impl Viewer {
    pub fn id(&self) -> Option<i64> {
        self.user.as_ref().map(|user| user.id)
    }
}

impl Web {
    pub fn new(annotations: Annotations) -> Self {
        let settings = annotations.settings();
        let base_url = settings.base_url.trim_end_matches('/').to_owned();
        let limits = &settings.limits;
        Self {
            saves: Limit::new(limits.saves_per_second, limits.save_burst),
            reads: Limit::new(limits.reads_per_second, limits.read_burst),
            budget: Budget::new(RECEIVING),
            proxies: limits.trusted_proxies,
            origins: settings.origins.clone(),
            secure: base_url.starts_with("https://"),
            base_url,
            annotations,
        }
    }

    pub fn admit_read(&self, request: &Request) -> Result<(), Failure> {
        let client = limits::client(request.extensions(), request.headers(), self.proxies);
        Ok(self.reads.admit(client)?)
    }

    pub fn admit_save(&self, request: &Request) -> Result<(), Failure> {
        let client = limits::client(request.extensions(), request.headers(), self.proxies);
        Ok(self.saves.admit(client)?)
    }

    /// Who asks. A token that is sent must be somebody's; a cookie may have outlived its account.
    pub async fn viewer(&self, headers: &HeaderMap) -> Result<Viewer, Failure> {
        if let Some(token) = bearer(headers)? {
            let user = self.annotations.who(&token).await?.ok_or(Failure::UnknownToken)?;
            return Ok(Viewer { user: Some(user), by_cookie: false });
        }
        let user = match self.session(headers) {
            Some(token) => self.annotations.who(&token).await?,
            None => None,
        };
        Ok(Viewer { user, by_cookie: true })
    }

    /// Who wants to change something of theirs, by a token or on our own pages.
    pub async fn author(&self, headers: &HeaderMap) -> Result<User, Failure> {
        let viewer = self.viewer(headers).await?;
        let user = viewer.user.ok_or(Failure::NoToken)?;
        if viewer.by_cookie {
            self.own_form(headers)?;
        }
        Ok(user)
    }

    /// Who writes a note: the pages of other origins that the settings allow may do that, too.
    pub async fn note_author(&self, headers: &HeaderMap) -> Result<User, Failure> {
        match self.allowed_origin(headers) {
            Some(_) => self.viewer(headers).await?.user.ok_or(Failure::NoToken),
            None => self.author(headers).await,
        }
    }

    /// Refuses what another site made the browser send.
    pub fn own_form(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match cookies::is_own_form(headers, &self.base_url) {
            true => Ok(()),
            false => Err(Failure::CrossSite),
        }
    }

    /// The origin of the page that asks, when the settings allow it.
    pub fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().any(|known| known.as_bytes() == origin.as_bytes()).then_some(origin)
    }

    pub fn has_origins(&self) -> bool {
        !self.origins.is_empty()
    }

    fn cookie(&self) -> &'static str {
        if self.secure { "__Host-notes" } else { "notes" }
    }

    /// The token that this browser keeps.
    pub fn session(&self, headers: &HeaderMap) -> Option<Token> {
        cookies::find(headers, self.cookie()).and_then(Token::parse)
    }

    pub fn remember(&self, token: &Token) -> HeaderValue {
        cookies::write(self.cookie(), token.as_str(), "/", SESSION_SECONDS, self.secure)
    }

    pub fn forget(&self) -> HeaderValue {
        cookies::write(self.cookie(), "", "/", 0, self.secure)
    }

    /// Receives a body of JSON.
    pub async fn json<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<T, Failure> {
        Ok(self.budget.json(headers, body, LARGEST_BODY).await?.0)
    }

    /// Receives a form of a page.
    pub async fn form(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<(String, String)>, Failure> {
        let taken = self.budget.read(headers, body, 16 * 1024).await?;
        Ok(url::form_urlencoded::parse(&taken.bytes).into_owned().collect())
    }
}

/// `Authorization: Bearer …`. `None`: no such header; an odd one is nobody's token.
pub fn bearer(headers: &HeaderMap) -> Result<Option<Token>, Failure> {
    let shown = request::bearer(headers).map(Token::parse);
    shown.map(|token| token.ok_or(Failure::UnknownToken)).transpose()
}

/// The part of a path after `before` others, with its escapes undone.
pub fn segment(request: &Request, before: usize) -> Result<String, Failure> {
    let part = request::segment(request.uri().path(), before).filter(|part| !part.is_empty());
    part.and_then(request::unescape).ok_or(Failure::NoRoute)
}

/// The note in a path. Whatever is no id is no note either.
pub fn id_in(request: &Request, before: usize) -> Result<AnnotationId, Failure> {
    let id = segment(request, before).ok().and_then(|part| part.parse().ok());
    id.ok_or(Failure::Refused(Refused::NotFound))
}

/// A value of the query; an empty one says nothing, as a form sends it.
pub fn query(request: &Request, name: &str) -> Option<String> {
    given(request, name).filter(|value| !value.is_empty())
}

pub fn answer(status: StatusCode, value: &impl Serialize) -> Answer {
    leasehold_http::answers::json(status, value)
}
