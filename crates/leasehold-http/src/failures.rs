//! Failures: each service has its own, and they are all told in the same way.
//!
//! A handler returns its service's failure. It travels inside the response ([`carry`]) until
//! [`crate::frame`] knows in which form the client reads, and [`answer`] writes it.
//!
//! # What is true
//! - Programs get problems as JSON, terminals plain text, browsers pages.
//! - Clients are told what [`Failing::told`] says and nothing else; [`Failing::trouble`] is for the
//!   log.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::headers::{HTML, NO_STORE, PAGE_CSP, TEXT, seconds_up};
use crate::request::is_browser;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Why a request was not granted.
pub trait Failing: Sized + Send + Sync + 'static {
    /// The status and the words: one exhaustive match in each service.
    fn told(&self) -> Told;

    /// What people see.
    fn page(told: &Told) -> Bytes;

    /// The answer took too long.
    fn timed_out() -> Self;

    /// A defect of ours; it was logged.
    fn broken() -> Self;

    /// What operators are told and clients are not.
    fn trouble(&self) -> Option<&dyn Display> {
        None
    }

    /// The form of an answer to this path, for a client with these headers.
    fn face(path: &str, headers: &HeaderMap) -> Face {
        Face::of(path, headers)
    }

    /// Work that goes on when the client goes away: half of it must not be left behind.
    fn undisturbed<T, E>(
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Self>> + Send
    where
        T: Send + 'static,
        E: Send + 'static,
        Self: From<E>,
    {
        async {
            match tokio::spawn(work).await {
                Ok(done) => Ok(done?),
                Err(_) => {
                    tracing::error!("the work of a request panicked; this is a defect");
                    Err(Self::broken())
                }
            }
        }
    }

    /// Writes the trouble into the log, if there is any.
    fn log(&self) {
        if let Some(error) = self.trouble() {
            tracing::warn!(%error, "a request was answered with 503");
        }
    }
}

/// What the client is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub status: StatusCode,
    /// A word for programs. It does not change.
    pub code: &'static str,
    /// A sentence for people: what is wrong, and what to do.
    pub detail: Cow<'static, str>,
    pub retry_after: Option<Duration>,
    /// The rest of the body is not wanted: the connection ends with the answer.
    pub closes: bool,
}

impl Told {
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, closes: false }
    }

    /// An error's own text, as a sentence.
    pub fn error(status: StatusCode, code: &'static str, error: &dyn Display) -> Self {
        Self::new(status, code, sentence(error))
    }

    #[must_use]
    pub fn retry_after(self, time: Duration) -> Self {
        Self { retry_after: Some(time), ..self }
    }

    #[must_use]
    pub fn closing(self) -> Self {
        Self { closes: true, ..self }
    }
}

/// An error's own text as a sentence: with a capital and a full stop.
pub fn sentence(error: &dyn Display) -> String {
    let text = error.to_string();
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).chain(['.']).collect(),
        None => text,
    }
}

/// In which form a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// `application/problem+json`, under `/api`.
    Json,
    /// One line of plain text, for curl.
    Text,
    /// A page, for browsers.
    Html,
}

impl Face {
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        if path.starts_with("/api/") || path == "/openapi.json" {
            Self::Json
        } else if is_browser(headers) {
            Self::Html
        } else {
            Self::Text
        }
    }
}

/// What went wrong (RFC 9457).
#[derive(Serialize, ToSchema)]
pub struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    /// A word for programs. It does not change.
    code: &'static str,
    /// What is wrong, and what to do.
    detail: String,
}

impl Problem {
    fn of(told: &Told) -> Self {
        Self {
            r#type: "about:blank",
            title: told.status.canonical_reason().unwrap_or_default(),
            status: told.status.as_u16(),
            code: told.code,
            detail: told.detail.clone().into_owned(),
        }
    }
}

struct Travelling<F>(Arc<F>);

// Not derived: the failure itself need not be `Clone`.
impl<F> Clone for Travelling<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// A response with the failure inside, for [`crate::frame`] to write.
pub fn carry<F: Failing>(failure: F) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = failure.told().status;
    response.extensions_mut().insert(Travelling(Arc::new(failure)));
    response
}

/// Takes the failure out of a response that carries one.
pub(crate) fn carried<F: Failing>(response: &mut Response) -> Option<Arc<F>> {
    if response.status().is_success() {
        return None;
    }
    response.extensions_mut().remove::<Travelling<F>>().map(|travelling| travelling.0)
}

/// Writes a failure for whoever asked.
pub(crate) fn answer<F: Failing>(failure: &F, face: Face) -> Response {
    failure.log();
    let told = failure.told();
    let (content_type, body) = match face {
        Face::Json => (PROBLEM, serde_json::to_vec(&Problem::of(&told)).unwrap_or_default().into()),
        Face::Text => (TEXT, Bytes::from(format!("{}\n", told.detail))),
        Face::Html => (HTML, F::page(&told)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = told.status;
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, content_type);
    map.insert(header::CACHE_CONTROL, NO_STORE);
    if face == Face::Html {
        map.insert(header::CONTENT_SECURITY_POLICY, PAGE_CSP);
    }
    if let Some(after) = told.retry_after {
        map.insert(header::RETRY_AFTER, seconds_up(after));
    }
    if told.status == StatusCode::UNAUTHORIZED {
        map.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if told.closes {
        map.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_terminals_and_browsers_get_what_they_read() {
        let accepting =
            |value| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]);
        let (browser, curl) = (accepting("text/html,application/xhtml+xml"), accepting("*/*"));
        assert_eq!(Face::of("/x", &browser), Face::Html);
        assert_eq!(Face::of("/x", &curl), Face::Text);
        assert_eq!(Face::of("/x", &HeaderMap::new()), Face::Text);
        assert_eq!(Face::of("/api/x", &browser), Face::Json);
        assert_eq!(Face::of("/openapi.json", &browser), Face::Json);
    }

    #[test]
    fn an_error_becomes_a_sentence() {
        assert_eq!(sentence(&"the name is taken"), "The name is taken.");
        assert_eq!(sentence(&"ßtrange"), "SStrange.");
        assert_eq!(sentence(&""), "");
    }
}
