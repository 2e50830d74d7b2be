//! Problems: each service has its own type, and all of them are reported in the same way.
//!
//! A handler returns its service's problem. It travels inside the response ([`problem_response`]) until
//! [`crate::middleware`] knows which format the client reads, and [`write_problem`] writes it.
//!
//! # Invariants
//! - Programs get problems as JSON, terminals plain text, browsers pages.
//! - A problem that every service can have is a [`CommonProblem`]: one status, one code, one text.
//! - Clients see what [`IntoProblem::problem`] returns and nothing else; the reason in
//!   [`CommonProblem::Unavailable`] is for the log.

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

use crate::body::BodyError;
use crate::headers::{HTML, NO_STORE, PAGE_CSP, TEXT, whole_seconds};
use crate::json::JsonError;
use crate::limits::RateLimited;
use crate::request::is_browser;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Retry-After while the memory for bodies and responses is used up: most requests are short.
const RETRY_BUSY: Duration = Duration::from_secs(2);
/// Retry-After while the database does not respond, or after a timeout.
const RETRY_UNAVAILABLE: Duration = Duration::from_secs(5);

/// The problems of one service.
pub trait IntoProblem: From<CommonProblem> + Sized + Send + Sync + 'static {
    /// Returns the status and the text: one exhaustive match per service.
    fn problem(&self) -> ProblemDetails;

    /// Returns the problem that all services share, if this is one.
    fn common(&self) -> Option<&CommonProblem>;

    /// Renders the page that browsers show.
    fn page(problem: &ProblemDetails) -> Bytes;

    /// Returns the format of a response to this path, for a client with these headers.
    fn format(path: &str, headers: &HeaderMap) -> ResponseFormat {
        ResponseFormat::of(path, headers)
    }

    /// Runs work to its end even if the client disconnects, so that it is never left half done.
    fn run_to_end<T, E>(
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
                    Err(CommonProblem::Defect.into())
                }
            }
        }
    }

    /// Logs the reason that clients do not see, if there is one.
    fn log(&self) {
        if let Some(CommonProblem::Unavailable(reason)) = self.common() {
            tracing::warn!(%reason, "a request was answered with 503");
        }
    }
}

/// A problem that every service can have. A service embeds it as one variant of its own type, with
/// [`embed_common_problem`](crate::embed_common_problem).
#[derive(Debug)]
pub enum CommonProblem {
    /// The request cannot be understood; the text says what it should look like.
    Malformed(Cow<'static, str>),
    BodyTooLarge {
        limit: usize,
    },
    /// The body did not arrive in time.
    BodyTooSlow,
    /// The body ended early, or its chunks are malformed.
    BodyBroken,
    /// The body has a `Content-Encoding`.
    BodyCompressed,
    NotJson,
    /// A token is required, and there is none.
    NoToken,
    /// The token does not allow the request.
    WrongToken,
    /// Another site made the browser send the request.
    CrossSite,
    RateLimited(RateLimited),
    /// The memory for bodies, or for responses, is used up, for this address or in total.
    Busy,
    /// The request took too long.
    TimedOut,
    WrongMethod,
    /// The database is unreachable or returned an error: the reason, for the log.
    Unavailable(String),
    /// A defect of the service; it was logged.
    Defect,
}

impl CommonProblem {
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }

    pub fn unavailable(reason: &impl Display) -> Self {
        Self::Unavailable(reason.to_string())
    }

    /// Returns the status and the text.
    pub fn problem(&self) -> ProblemDetails {
        use StatusCode as S;
        match self {
            Self::Malformed(text) => ProblemDetails::new(S::BAD_REQUEST, "malformed", text.clone()),
            Self::BodyTooLarge { limit } => {
                let text = format!("The body has more than {limit} bytes. Send a smaller one.");
                ProblemDetails::new(S::PAYLOAD_TOO_LARGE, "too_large", text).closing()
            }
            Self::BodyTooSlow => ProblemDetails::new(
                S::REQUEST_TIMEOUT,
                "too_slow",
                "The body did not arrive in time. Nothing was changed; send it again.",
            )
            .closing(),
            Self::BodyBroken => ProblemDetails::new(
                S::BAD_REQUEST,
                "malformed",
                "The body ended early, or its chunks are malformed. Send it again.",
            )
            .closing(),
            Self::BodyCompressed => ProblemDetails::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong_type",
                "The body has a Content-Encoding. Send it uncompressed.",
            )
            .closing(),
            Self::NotJson => ProblemDetails::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong_type",
                "Send JSON, with Content-Type: application/json.",
            ),
            Self::NoToken => ProblemDetails::new(
                S::UNAUTHORIZED,
                "no_token",
                "This needs a token. Send it as Authorization: Bearer <token>.",
            ),
            Self::WrongToken => {
                ProblemDetails::new(S::FORBIDDEN, "wrong_token", "This token does not allow the request.")
            }
            Self::CrossSite => ProblemDetails::new(
                S::FORBIDDEN,
                "cross_site",
                "The request came from another site, and nothing was changed. Open the page here and \
                 send it again."
                    ,
            ),
            Self::RateLimited(RateLimited { retry_after }) => {
                let seconds = whole_seconds(*retry_after);
                let text =
                    format!("Too many requests from this address. Try again in {seconds} s.");
                ProblemDetails::new(S::TOO_MANY_REQUESTS, "too_many", text)
                    .retry_after(*retry_after)
            }
            Self::Busy => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "The service has no memory left for this request. Nothing was changed; try again \
                 shortly."
                    ,
            )
            .retry_after(RETRY_BUSY)
            .closing(),
            Self::TimedOut => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "The request took too long, and may still take effect. To repeat a change, send the \
                 same Idempotency-Key."
                    ,
            )
            .retry_after(RETRY_UNAVAILABLE),
            Self::WrongMethod => ProblemDetails::new(
                S::METHOD_NOT_ALLOWED,
                "wrong_method",
                "This address does not accept the method. The header Allow lists those that it does."
                    ,
            ),
            Self::Unavailable(_) => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "unavailable",
                "The service cannot reach its database. Try again shortly.",
            )
            .retry_after(RETRY_UNAVAILABLE),
            Self::Defect => ProblemDetails::new(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "The request failed because of a defect in the service, which was logged.",
            ),
        }
    }
}

impl From<BodyError> for CommonProblem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::BodyTooLarge { limit },
            BodyError::TooSlow => Self::BodyTooSlow,
            BodyError::Busy => Self::Busy,
            BodyError::Compressed => Self::BodyCompressed,
            BodyError::Broken => Self::BodyBroken,
        }
    }
}

impl From<JsonError> for CommonProblem {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::NotJson => Self::NotJson,
            JsonError::Body(error) => error.into(),
            JsonError::Invalid(text) => Self::malformed(text),
        }
    }
}

impl From<RateLimited> for CommonProblem {
    fn from(error: RateLimited) -> Self {
        Self::RateLimited(error)
    }
}

/// Embeds [`CommonProblem`] into a service's type as its variant `Common`: `?` converts the errors of
/// this crate, and handlers may return the type.
#[macro_export]
macro_rules! embed_common_problem {
    ($problem:ty) => {
        impl From<$crate::problems::CommonProblem> for $problem {
            fn from(problem: $crate::problems::CommonProblem) -> Self {
                Self::Common(problem)
            }
        }

        impl From<$crate::body::BodyError> for $problem {
            fn from(error: $crate::body::BodyError) -> Self {
                Self::Common(error.into())
            }
        }

        impl From<$crate::json::JsonError> for $problem {
            fn from(error: $crate::json::JsonError) -> Self {
                Self::Common(error.into())
            }
        }

        impl From<$crate::limits::RateLimited> for $problem {
            fn from(error: $crate::limits::RateLimited) -> Self {
                Self::Common(error.into())
            }
        }

        impl axum::response::IntoResponse for $problem {
            fn into_response(self) -> axum::response::Response {
                $crate::problems::problem_response(self)
            }
        }
    };
}

/// What the client sees of a problem.
#[derive(Debug, PartialEq, Eq)]
pub struct ProblemDetails {
    pub status: StatusCode,
    /// An error code for programs. It never changes.
    pub code: &'static str,
    /// Sentences for users: what is wrong, and what to do.
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

/// The format in which a client reads problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// `application/problem+json`, under `/api`.
    Json,
    /// Plain text, for curl.
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

/// What is wrong with a request (RFC 9457).
#[derive(Serialize, ToSchema)]
pub struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    /// A code for programs. It does not change.
    code: &'static str,
    /// What is wrong, and what to do.
    detail: String,
}

impl Problem {
    fn of(problem: &ProblemDetails) -> Self {
        Self {
            r#type: "about:blank",
            title: problem.status.canonical_reason().unwrap_or_default(),
            status: problem.status.as_u16(),
            code: problem.code,
            detail: problem.detail.clone().into_owned(),
        }
    }
}

/// A problem inside the response that carries it.
struct Carried<P>(Arc<P>);

// Not derived: the problem itself need not be `Clone`.
impl<P> Clone for Carried<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Returns a response that carries the problem, for [`crate::middleware`] to write.
pub fn problem_response<P: IntoProblem>(problem: P) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = problem.problem().status;
    response.extensions_mut().insert(Carried(Arc::new(problem)));
    response
}

/// Takes the problem out of a response that carries one.
pub(crate) fn take_problem<P: IntoProblem>(response: &mut Response) -> Option<Arc<P>> {
    if response.status().is_success() {
        return None;
    }
    response.extensions_mut().remove::<Carried<P>>().map(|carried| carried.0)
}

/// Writes a problem in the client's format.
pub(crate) fn write_problem<P: IntoProblem>(problem: &P, format: ResponseFormat) -> Response {
    problem.log();
    let problem = problem.problem();
    let (content_type, body) = match format {
        ResponseFormat::Json => {
            (PROBLEM_JSON, serde_json::to_vec(&Problem::of(&problem)).unwrap_or_default().into())
        }
        ResponseFormat::Text => (TEXT, Bytes::from(format!("{}\n", problem.detail))),
        ResponseFormat::Html => (HTML, P::page(&problem)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = problem.status;
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, content_type);
    map.insert(header::CACHE_CONTROL, NO_STORE);
    if format == ResponseFormat::Html {
        map.insert(header::CONTENT_SECURITY_POLICY, PAGE_CSP);
    }
    if let Some(after) = problem.retry_after {
        map.insert(header::RETRY_AFTER, whole_seconds(after).into());
    }
    if problem.status == StatusCode::UNAUTHORIZED {
        map.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if problem.closes {
        map.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_the_path_and_the_accept_header() {
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
    fn sentence_has_a_capital_and_a_full_stop() {
        assert_eq!(sentence(&"the name is taken"), "The name is taken.");
        assert_eq!(sentence(&"ßtrange"), "SStrange.");
        assert_eq!(sentence(&""), "");
    }

    #[test]
    fn unavailable_does_not_reveal_its_reason() {
        let problem = CommonProblem::unavailable(&"password=hunter2").problem();
        assert!(!problem.detail.contains("hunter2"), "{problem:?}");
        assert!(problem.retry_after.is_some());
    }
}
