//! What every handler uses: the service, the limits, and the caller.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use leasehold_http::body::{Budget, MemoryPermit};
use leasehold_http::cookies;
use leasehold_http::limits::{self, Limit};
use leasehold_http::problems::CommonProblem;
use leasehold_http::request;
use leasehold_http::responses::HealthCheck;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errors::Failure;
use crate::error::Refused;
use crate::id::{AnnotationId, Token};
use crate::model::{Cursor, User};
use crate::service::Annotations;

pub use leasehold_http::request::query as given;
pub use leasehold_http::responses::empty;

pub type HandlerResult = Result<Response, Failure>;
pub type Shared = Arc<Web>;

/// Memory for request bodies.
const RECEIVING: usize = 64 * 1024 * 1024;
/// The largest body: a note's text with every character written as `\u0041`, and its quote.
pub const LARGEST_BODY: usize =
    6 * (crate::save::LONGEST_TEXT + crate::save::LONGEST_QUOTE) + 32 * 1024;
/// Memory for responses that are being made, or that slow clients have not read yet.
const MAKING: usize = 192 * 1024 * 1024;
/// The memory that a response with many notes may need: the rows, and their serialized form.
const ANSWER: usize = 6 * 1024 * 1024;
/// How long a response waits for memory.
const TURN: Duration = Duration::from_secs(5);
/// As long as `annotations.log_in` lets a session last.
const SESSION_SECONDS: u32 = 30 * 24 * 60 * 60;

pub struct Web {
    pub annotations: Annotations,
    /// Without a slash at the end.
    pub base_url: String,
    /// `base_url` begins with https.
    pub secure: bool,
    pub saves: Limit,
    pub reads: Limit,
    budget: Budget,
    making: Budget,
    proxies: usize,
    health: HealthCheck,
    origins: Vec<String>,
}

/// The caller, and how they were identified.
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
            making: Budget::new(MAKING),
            health: HealthCheck::default(),
            proxies: limits.trusted_proxies,
            origins: settings.origins.clone(),
            secure: base_url.starts_with("https://"),
            base_url,
            annotations,
        }
    }

    fn client(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
        limits::client(extensions, headers, self.proxies)
    }

    pub fn admit_read(&self, request: &Request) -> Result<(), Failure> {
        Ok(self.reads.admit(self.client(request.extensions(), request.headers()))?)
    }

    pub fn admit_save(&self, request: &Request) -> Result<(), Failure> {
        Ok(self.saves.admit(self.client(request.extensions(), request.headers()))?)
    }

    /// Reserves memory for a response with many notes, per client no more than its share. Waits up to
    /// `TURN`.
    pub fn room(
        &self,
        request: &Request,
    ) -> impl Future<Output = Result<MemoryPermit, Failure>> + Send + use<> {
        self.room_for(request.extensions(), request.headers())
    }

    /// Like [`Self::room`], for a request whose body was taken.
    pub fn room_for(
        &self,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> impl Future<Output = Result<MemoryPermit, Failure>> + Send + use<> {
        let share = self.making.of(self.client(extensions, headers));
        async move { Ok(share.hold(ANSWER, TURN).await?) }
    }

    /// Returns whether the database responds. Asks it at most once per second, however often it is
    /// called.
    pub async fn health(&self) -> Response {
        self.health.respond(self.annotations.is_healthy()).await
    }

    /// Returns a cursor as clients carry it.
    pub fn sealed(&self, cursor: &Cursor) -> String {
        self.annotations.0.seal.close(cursor)
    }

    /// `?cursor=`
    pub fn cursor(&self, request: &Request) -> Result<Option<Cursor>, Failure> {
        let Some(text) = given(request, "cursor") else { return Ok(None) };
        let wrong = || Failure::malformed("cursor must be `next` of an earlier response.");
        self.annotations.0.seal.open(&text).map(Some).ok_or_else(wrong)
    }

    /// Returns the caller. A token must belong to a user; a cookie may have outlived its session.
    pub async fn viewer(&self, headers: &HeaderMap) -> Result<Viewer, Failure> {
        if let Some(token) = bearer(headers)? {
            let user = self.annotations.who(&token).await?.ok_or(Failure::UnknownToken)?;
            return Ok(Viewer { user: Some(user), by_cookie: false });
        }
        let user = match self.session(headers) {
            Some(session) => self.annotations.session_user(&session).await?,
            None => None,
        };
        Ok(Viewer { user, by_cookie: true })
    }

    /// Returns the user who changes something of their own, by a token or on our own pages.
    pub async fn author(&self, headers: &HeaderMap) -> Result<User, Failure> {
        let viewer = self.viewer(headers).await?;
        let user = viewer.user.ok_or(CommonProblem::NoToken)?;
        if viewer.by_cookie {
            self.own_form(headers)?;
        }
        Ok(user)
    }

    /// Returns the author of a note, who may also use a page of an allowed origin.
    pub async fn note_author(&self, headers: &HeaderMap) -> Result<User, Failure> {
        match self.allowed_origin(headers) {
            Some(_) => Ok(self.viewer(headers).await?.user.ok_or(CommonProblem::NoToken)?),
            None => self.author(headers).await,
        }
    }

    /// Refuses a request that another site made the browser send.
    pub fn own_form(&self, headers: &HeaderMap) -> Result<(), Failure> {
        match cookies::is_own_form(headers, &self.base_url) {
            true => Ok(()),
            false => Err(CommonProblem::CrossSite.into()),
        }
    }

    /// Returns the origin of the page that sent the request, if the settings allow it.
    pub fn allowed_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.origins.iter().any(|known| known.as_bytes() == origin.as_bytes()).then_some(origin)
    }

    fn cookie(&self) -> &'static str {
        if self.secure { "__Host-notes" } else { "notes" }
    }

    /// Returns the session in the browser's cookie.
    pub fn session(&self, headers: &HeaderMap) -> Option<Token> {
        cookies::find(headers, self.cookie()).and_then(Token::parse)
    }

    /// Returns the header that gives the browser its session.
    pub fn session_cookie(&self, session: &Token) -> HeaderValue {
        cookies::set_cookie(self.cookie(), session.as_str(), "/", SESSION_SECONDS, self.secure)
    }

    /// Returns the header that removes the session from the browser.
    pub fn no_session_cookie(&self) -> HeaderValue {
        cookies::set_cookie(self.cookie(), "", "/", 0, self.secure)
    }

    /// Reads a JSON body.
    pub async fn json<T: DeserializeOwned>(&self, parts: &Parts, body: Body) -> Result<T, Failure> {
        let share = self.budget.of(self.client(&parts.extensions, &parts.headers));
        Ok(share.json(&parts.headers, body, LARGEST_BODY).await?.0)
    }

    /// Refuses a body where none is expected, because the service would ignore its content.
    pub async fn no_body(&self, parts: &Parts, body: Body, why: &str) -> Result<(), Failure> {
        let taken = self.budget.read(&parts.headers, body, 16 * 1024).await?;
        match taken.bytes.is_empty() {
            true => Ok(()),
            false => Err(Failure::malformed(why.to_owned())),
        }
    }

    /// Reads the form of a page.
    pub async fn form(
        &self,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Vec<(String, String)>, Failure> {
        let taken = self.budget.read(headers, body, 16 * 1024).await?;
        Ok(url::form_urlencoded::parse(&taken.bytes).into_owned().collect())
    }
}

/// Returns the token of `Authorization: Bearer …`. `None`: no such header. A malformed token is unknown.
pub fn bearer(headers: &HeaderMap) -> Result<Option<Token>, Failure> {
    let shown = request::bearer(headers).map(Token::parse);
    shown.map(|token| token.ok_or(Failure::UnknownToken)).transpose()
}

/// Returns the segment of a path after `before` others, unescaped.
pub fn segment(request: &Request, before: usize) -> Result<String, Failure> {
    let part = request::segment(request.uri().path(), before).filter(|part| !part.is_empty());
    part.and_then(request::percent_decode).ok_or(Failure::NoRoute)
}

/// Returns the note in a path. A text that is not an id is not a note either.
pub fn id_in(request: &Request, before: usize) -> Result<AnnotationId, Failure> {
    let id = segment(request, before).ok().and_then(|part| part.parse().ok());
    id.ok_or(Failure::Refused(Refused::NotFound))
}

/// Returns a query parameter; an empty one counts as absent, because forms send it so.
pub fn query(request: &Request, name: &str) -> Option<String> {
    given(request, name).filter(|value| !value.is_empty())
}

pub fn answer(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    Ok(leasehold_http::responses::json(status, value)?)
}
