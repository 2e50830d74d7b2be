//! Failures: each service has its own type, and all of them are reported in the same way.
//!
//! A handler returns its service's failure. It travels inside the response ([`carry`]) until
//! [`crate::frame`] knows which format the client reads, and [`answer`] writes it.
//!
//! # What is true
//! - Programs get problems as JSON, terminals plain text, browsers pages.
//! - Clients see what [`IntoProblem::problem`] returns and nothing else; [`IntoProblem::trouble`] is for the
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

/// Why a request failed.
pub trait IntoProblem: Sized + Send + Sync + 'static {
    /// Returns the status and the text: one exhaustive match per service.
    fn problem(&self) -> ProblemDetails;

    /// Renders the page that browsers show.
    fn page(told: &ProblemDetails) -> Bytes;

    /// Returns the failure of a request that took too long.
    fn timed_out() -> Self;

    /// Returns the failure for a defect of ours, which was logged.
    fn broken() -> Self;

    /// Returns details that operators find in the log and clients never see.
    fn trouble(&self) -> Option<&dyn Display> {
        None
    }

    /// Returns the format of a response to this path, for a client with these headers.
    fn format(path: &str, headers: &HeaderMap) -> ResponseFormat {
        ResponseFormat::of(path, headers)
    }

    /// Runs work to its end even if the client disconnects, so that it is never left half done.
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

    /// Logs the trouble, if there is any.
    fn log(&self) {
        if let Some(error) = self.trouble() {
            tracing::warn!(%error, "a request was answered with 503");
        }
    }
}

/// What the client sees of a failure.
#[derive(Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    pub status: StatusCode,
    /// An error code for programs. It never changes.
    pub code: &'static str,
    /// A sentence for users: what is wrong, and what to do.
    pub detail: Cow<'static, str>,
    pub retry_after: Option<Duration>,
    /// The rest of the body is not read: the connection closes after the response.
    pub closes: bool,
}

impl ProblemDetails {
    pub fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code, detail: detail.into(), retry_after: None, closes: false }
    }

    /// Uses an error's own text, as a sentence.
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

/// Returns an error's own text as a sentence: with a capital and a full stop.
pub fn sentence(error: &dyn Display) -> String {
    let text = error.to_string();
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).chain(['.']).collect(),
        None => text,
    }
}

/// The format in which a client reads failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// `application/problem+json`, under `/api`.
    Json,
    /// One line of plain text, for curl.
    Text,
    /// A page, for browsers.
    Html,
}

impl ResponseFormat {
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
    fn of(told: &ProblemDetails) -> Self {
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

/// Returns a response that carries the failure, for [`crate::frame`] to write.
pub fn carry<F: IntoProblem>(failure: F) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = failure.problem().status;
    response.extensions_mut().insert(Travelling(Arc::new(failure)));
    response
}

/// Takes the failure out of a response that carries one.
pub(crate) fn carried<F: IntoProblem>(response: &mut Response) -> Option<Arc<F>> {
    if response.status().is_success() {
        return None;
    }
    response.extensions_mut().remove::<Travelling<F>>().map(|travelling| travelling.0)
}

/// Writes a failure in the client's format.
pub(crate) fn answer<F: IntoProblem>(failure: &F, format: ResponseFormat) -> Response {
    failure.log();
    let told = failure.problem();
    let (content_type, body) = match format {
        ResponseFormat::Json => {
            (PROBLEM, serde_json::to_vec(&Problem::of(&told)).unwrap_or_default().into())
        }
        ResponseFormat::Text => (TEXT, Bytes::from(format!("{}\n", told.detail))),
        ResponseFormat::Html => (HTML, F::page(&told)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = told.status;
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, content_type);
    map.insert(header::CACHE_CONTROL, NO_STORE);
    if format == ResponseFormat::Html {
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
        assert_eq!(ResponseFormat::of("/x", &browser), ResponseFormat::Html);
        assert_eq!(ResponseFormat::of("/x", &curl), ResponseFormat::Text);
        assert_eq!(ResponseFormat::of("/x", &HeaderMap::new()), ResponseFormat::Text);
        assert_eq!(ResponseFormat::of("/api/x", &browser), ResponseFormat::Json);
        assert_eq!(ResponseFormat::of("/openapi.json", &browser), ResponseFormat::Json);
    }

    #[test]
    fn an_error_becomes_a_sentence() {
        assert_eq!(sentence(&"the name is taken"), "The name is taken.");
        assert_eq!(sentence(&"ßtrange"), "SStrange.");
        assert_eq!(sentence(&""), "");
    }
}
