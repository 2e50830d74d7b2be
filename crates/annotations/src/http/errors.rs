//! What can go wrong with a request, and how it is written for whoever asked.
//!
//! Handlers return a [`Failure`]; [`super::frame`] writes it in the form that the client reads.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_http::body::BodyError;
use leasehold_http::headers::{self, HTML, NO_STORE, TEXT};
use leasehold_http::limits::TooMany;

use crate::error::Refused;
use crate::pages;

/// Why a request was not granted.
#[derive(Debug)]
pub enum Failure {
    Refused(Refused),
    /// The request cannot be understood; the text says what it should look like.
    Malformed(Cow<'static, str>),
    Body(BodyError),
    NotJson,
    /// No token, where one is needed.
    NoToken,
    /// A token that is nobody's.
    UnknownToken,
    /// A token, but not the right one.
    WrongToken,
    /// People cannot make accounts for themselves here.
    NoSignUp,
    /// Something that another site made the browser send.
    CrossSite,
    TooMany(TooMany),
    TimedOut,
    NoRoute,
    WrongMethod,
    /// A defect of ours; it was logged.
    Broken,
}

impl From<Refused> for Failure {
    fn from(error: Refused) -> Self {
        Self::Refused(error)
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl From<TooMany> for Failure {
    fn from(error: TooMany) -> Self {
        Self::TooMany(error)
    }
}

/// What a client is told.
pub struct Told {
    pub status: StatusCode,
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub detail: Cow<'static, str>,
    pub retry_after: Option<Duration>,
}

const SOON: Duration = Duration::from_secs(2);

impl Failure {
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }

    pub fn told(&self) -> Told {
        use StatusCode as S;
        let say = |status, code, detail: &'static str| Told {
            status,
            code,
            detail: detail.into(),
            retry_after: None,
        };
        match self {
            Self::Refused(refused) => told_refused(refused),
            Self::Malformed(text) => Told {
                status: S::BAD_REQUEST,
                code: "malformed",
                detail: text.clone(),
                retry_after: None,
            },
            Self::Body(error) => told_body(error),
            Self::NotJson => say(
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong_type",
                "Send JSON, with Content-Type: application/json.",
            ),
            Self::NoToken => {
                say(S::UNAUTHORIZED, "no_token", "Log in, or send a token: Authorization: Bearer …")
            }
            Self::UnknownToken => {
                say(S::UNAUTHORIZED, "unknown_token", "This token is not known, or not any more.")
            }
            Self::WrongToken => say(S::FORBIDDEN, "wrong_token", "This token does not allow it."),
            Self::NoSignUp => {
                say(S::FORBIDDEN, "no_sign_up", "Accounts are made by whoever runs this service.")
            }
            Self::CrossSite => {
                say(S::FORBIDDEN, "cross_site", "This came from another site and was not done.")
            }
            Self::TooMany(too_many) => Told {
                retry_after: Some(too_many.retry_after),
                ..say(
                    S::TOO_MANY_REQUESTS,
                    "too_many",
                    "Too many requests from your address; wait a moment.",
                )
            },
            Self::TimedOut => Told {
                retry_after: Some(SOON),
                ..say(S::SERVICE_UNAVAILABLE, "timed_out", "The answer took too long; try again.")
            },
            Self::NoRoute => say(S::NOT_FOUND, "not_found", "There is nothing here."),
            Self::WrongMethod => {
                say(S::METHOD_NOT_ALLOWED, "wrong_method", "This cannot be done here.")
            }
            Self::Broken => say(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something broke on our side; it was noted.",
            ),
        }
    }
}

fn told_refused(refused: &Refused) -> Told {
    use StatusCode as S;
    let (status, code) = match refused {
        Refused::NotFound => (S::NOT_FOUND, "not_found"),
        Refused::NoSuchGroup => (S::NOT_FOUND, "no_such_group"),
        Refused::NotYours => (S::FORBIDDEN, "not_yours"),
        Refused::HasReplies => (S::CONFLICT, "has_replies"),
        Refused::NameTaken => (S::CONFLICT, "name_taken"),
        Refused::KeyReused => (S::CONFLICT, "key_reused"),
        Refused::Malformed(_) => (S::UNPROCESSABLE_ENTITY, "not_allowed"),
        Refused::Unavailable(why) => {
            // Operators are told what clients are not.
            tracing::warn!(error = %why, "a request was answered with 503");
            (S::SERVICE_UNAVAILABLE, "unavailable")
        }
    };
    let retry_after = (status == S::SERVICE_UNAVAILABLE).then_some(SOON);
    Told { status, code, detail: sentence(&refused.to_string()).into(), retry_after }
}

fn told_body(error: &BodyError) -> Told {
    use StatusCode as S;
    let (status, code) = match error {
        BodyError::TooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "too_large"),
        BodyError::TooSlow => (S::REQUEST_TIMEOUT, "too_slow"),
        BodyError::Busy => (S::SERVICE_UNAVAILABLE, "busy"),
        BodyError::Packed => (S::UNSUPPORTED_MEDIA_TYPE, "packed"),
        BodyError::Broken => (S::BAD_REQUEST, "malformed"),
    };
    let retry_after = (status == S::SERVICE_UNAVAILABLE).then_some(SOON);
    Told { status, code, detail: sentence(&error.to_string()).into(), retry_after }
}

/// Begins with a capital and ends with a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// In which form a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    Json,
    Text,
    Html,
}

impl Face {
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        let browser = headers
            .get_all(header::ACCEPT)
            .iter()
            .any(|value| value.as_bytes().windows(9).any(|part| part == b"text/html"));
        match (path.starts_with("/api/") || path == "/openapi.json", browser) {
            (true, _) => Self::Json,
            (false, true) => Self::Html,
            (false, false) => Self::Text,
        }
    }
}

/// The failure travels inside the response until the frame knows how to write it.
#[derive(Clone)]
struct Travelling(Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.extensions_mut().insert(Travelling(Arc::new(self)));
        response
    }
}

/// Takes the failure out of a response that carries one.
pub fn carried(response: &mut Response) -> Option<Arc<Failure>> {
    response.extensions_mut().remove::<Travelling>().map(|travelling| travelling.0)
}

/// Writes a failure for whoever asked.
pub fn answer(failure: &Failure, face: Face) -> Response {
    let told = failure.told();
    let (content_type, body) = match face {
        Face::Json => (HeaderValue::from_static("application/problem+json"), problem(&told)),
        Face::Text => (TEXT, format!("{}\n", told.detail)),
        Face::Html => (HTML, pages::failure(told.status.as_u16(), &told.detail).into_string()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = told.status;
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, content_type);
    map.insert(header::CACHE_CONTROL, NO_STORE);
    if face == Face::Html {
        map.insert(header::CONTENT_SECURITY_POLICY, headers::PAGE_CSP);
    }
    if let Some(after) = told.retry_after {
        map.insert(header::RETRY_AFTER, headers::seconds_up(after));
    }
    if told.status == StatusCode::UNAUTHORIZED {
        map.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if matches!(failure, Failure::Body(_)) {
        // The rest of the body is not wanted.
        map.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// RFC 9457.
fn problem(told: &Told) -> String {
    serde_json::json!({
        "type": "about:blank",
        "title": told.status.canonical_reason().unwrap_or_default(),
        "status": told.status.as_u16(),
        "code": told.code,
        "detail": told.detail,
    })
    .to_string()
}
