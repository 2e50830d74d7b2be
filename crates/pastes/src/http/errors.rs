//! From what went wrong to what the client is told: one exhaustive match, in one place.
//!
//! # What is true
//! - Handlers return a [`Failure`]; [`super::frame`] writes it in the form that the client reads.
//! - "Not there" has one text for every reason, so that nobody learns which one it was.
//! - No answer holds words of the database, of the store or of a panic.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::headers::{self, NO_STORE};
use super::negotiate::Face;
use crate::code::ShortCode;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};

/// Why a request was not granted.
#[derive(Debug)]
pub enum Failure {
    Create(CreateError),
    Read(ReadError),
    Delete(DeleteError),
    Operate(OperateError),
    /// The upload of the paste goes on.
    Uploading {
        retry_after: Duration,
    },
    /// The paste can be read once, and only by asking for it.
    Burns(ShortCode),
    /// Asked to burn what can be read as often as one likes.
    DoesNotBurn(ShortCode),
    /// The request cannot be understood; the text says what it should look like.
    Malformed(Cow<'static, str>),
    TooLarge {
        limit: usize,
    },
    /// The body did not arrive in time.
    TooSlow,
    /// The body is of a kind that is not taken here.
    WrongType(&'static str),
    /// No token, where one is needed.
    NoToken,
    /// A token, but not the right one.
    WrongToken,
    /// A form that another site made the browser send.
    CrossSite,
    TooMany {
        retry_after: Duration,
    },
    /// As much is being received as fits into memory.
    Busy,
    /// The answer took too long.
    TimedOut,
    NoRoute,
    WrongMethod,
    /// A defect of ours; it was logged.
    Broken,
}

macro_rules! from {
    ($($error:ident => $variant:ident),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}
from!(CreateError => Create, ReadError => Read, DeleteError => Delete, OperateError => Operate);

/// What the client is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Told {
    pub status: StatusCode,
    /// A word for programs. It does not change.
    pub code: &'static str,
    /// A sentence for people: what is wrong, and what to do.
    pub detail: Cow<'static, str>,
    pub retry_after: Option<Duration>,
}

const NOT_FOUND: &str = "There is no such paste, or not any more.";
const UNAVAILABLE: Duration = Duration::from_secs(5);

impl Failure {
    pub const NOT_FOUND: Self = Self::Read(ReadError::NotFound);

    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }

    /// The one place where a failure becomes a status and a text.
    pub fn told(&self) -> Told {
        use StatusCode as S;
        let told = |status, code, detail: Cow<'static, str>| Told {
            status,
            code,
            detail,
            retry_after: None,
        };
        let later = |status, code, detail: Cow<'static, str>, after| Told {
            status,
            code,
            detail,
            retry_after: Some(after),
        };
        let sentence =
            |error: &dyn std::fmt::Display| -> Cow<'static, str> { sentence(error).into() };
        match self {
            Self::Create(error) => match error {
                CreateError::Empty => told(S::BAD_REQUEST, "empty", sentence(error)),
                CreateError::TooLarge { limit, .. } => too_large(*limit),
                CreateError::BadAlias => {
                    told(S::UNPROCESSABLE_ENTITY, "bad_alias", sentence(error))
                }
                CreateError::AliasTaken(_) => {
                    told(S::CONFLICT, "alias_taken", format!("{} Choose another one.", sentence(error)).into())
                }
                CreateError::BadExpiry { least, most } => told(
                    S::UNPROCESSABLE_ENTITY,
                    "bad_expiry",
                    format!(
                        "A paste lives between {} and {} here. Write 10m, 1d or 2 weeks.",
                        length(*least),
                        length(*most)
                    )
                    .into(),
                ),
                CreateError::BadLanguage => {
                    told(S::UNPROCESSABLE_ENTITY, "bad_language", sentence(error))
                }
                CreateError::BadKey => {
                    told(S::BAD_REQUEST, "bad_idempotency_key", sentence(error))
                }
                CreateError::KeyReused => {
                    told(S::CONFLICT, "idempotency_key_reused", sentence(error))
                }
                CreateError::Banned => told(S::FORBIDDEN, "banned", sentence(error)),
                CreateError::StagingFull { retry_after } => later(
                    S::SERVICE_UNAVAILABLE,
                    "staging_full",
                    "Too much waits for its upload just now. Nothing was stored; try again later."
                        .into(),
                    *retry_after,
                ),
                CreateError::UnknownOwner => {
                    told(S::UNAUTHORIZED, "unknown_owner", sentence(error))
                }
                CreateError::Unavailable(_) => unavailable(),
            },
            Self::Read(ReadError::NotFound) | Self::Operate(OperateError::NotFound) => {
                told(S::NOT_FOUND, "not_found", NOT_FOUND.into())
            }
            Self::Read(ReadError::StoreDown { retry_after }) => later(
                S::SERVICE_UNAVAILABLE,
                "store_down",
                "The paste is there, but its content cannot be fetched just now. Try again later."
                    .into(),
                *retry_after,
            ),
            Self::Read(ReadError::Unavailable(_))
            | Self::Delete(DeleteError::Unavailable(_))
            | Self::Operate(OperateError::Unavailable(_)) => unavailable(),
            Self::Delete(DeleteError::NotYours) => told(
                S::FORBIDDEN,
                "not_yours",
                "This token does not belong to the paste. Use the delete token that came with it, or its owner's token.".into(),
            ),
            Self::Operate(OperateError::BadHash) => {
                told(S::BAD_REQUEST, "bad_hash", sentence(&OperateError::BadHash))
            }
            Self::Uploading { retry_after } => later(
                S::SERVICE_UNAVAILABLE,
                "uploading",
                "The paste is stored and still being uploaded. Try again shortly.".into(),
                *retry_after,
            ),
            Self::Burns(code) => told(
                S::CONFLICT,
                "burns",
                format!(
                    "This paste can be read once, and is gone then. To read it: POST /api/v1/pastes/{code}/burn, or POST /{code}/burn for the bytes alone."
                )
                .into(),
            ),
            Self::DoesNotBurn(code) => told(
                S::CONFLICT,
                "does_not_burn",
                format!("This paste stays when it is read. To read it: GET /raw/{code}").into(),
            ),
            Self::Malformed(detail) => told(S::BAD_REQUEST, "malformed", detail.clone()),
            Self::TooLarge { limit } => too_large(*limit),
            Self::TooSlow => told(
                S::REQUEST_TIMEOUT,
                "too_slow",
                "The body did not arrive in time. Nothing was stored.".into(),
            ),
            Self::WrongType(wanted) => told(S::UNSUPPORTED_MEDIA_TYPE, "wrong_type", (*wanted).into()),
            Self::NoToken => told(
                S::UNAUTHORIZED,
                "no_token",
                "This needs a token: Authorization: Bearer <token>".into(),
            ),
            Self::WrongToken => {
                told(S::FORBIDDEN, "wrong_token", "This token does not allow that.".into())
            }
            Self::CrossSite => told(
                S::FORBIDDEN,
                "cross_site",
                "The form came from another site. Open the page here and send it again.".into(),
            ),
            Self::TooMany { retry_after } => later(
                S::TOO_MANY_REQUESTS,
                "too_many",
                "Too many requests from this address. Wait a little.".into(),
                *retry_after,
            ),
            Self::Busy => later(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "Too many uploads at once. Nothing was stored; try again shortly.".into(),
                Duration::from_secs(2),
            ),
            Self::TimedOut => later(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "This took too long. If it made something, repeat it with its Idempotency-Key.".into(),
                UNAVAILABLE,
            ),
            Self::NoRoute => told(S::NOT_FOUND, "not_found", NOT_FOUND.into()),
            Self::WrongMethod => told(
                S::METHOD_NOT_ALLOWED,
                "wrong_method",
                "This address does not take that method; Allow lists those that it takes.".into(),
            ),
            Self::Broken => told(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something is wrong on our side, and it was noted.".into(),
            ),
        }
    }

    /// Tells operators what clients are not told.
    pub fn log(&self) {
        let unavailable = match self {
            Self::Create(CreateError::Unavailable(why))
            | Self::Read(ReadError::Unavailable(why))
            | Self::Delete(DeleteError::Unavailable(why))
            | Self::Operate(OperateError::Unavailable(why)) => why,
            _ => return,
        };
        tracing::warn!(error = %unavailable, "a request was answered with 503");
    }
}

fn too_large(limit: usize) -> Told {
    Told {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        code: "too_large",
        detail: format!("A paste has at most {limit} bytes here. Nothing was stored.").into(),
        retry_after: None,
    }
}

fn unavailable() -> Told {
    Told {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "unavailable",
        detail: "The service cannot reach its database just now. Try again shortly.".into(),
        retry_after: Some(UNAVAILABLE),
    }
}

/// An error's own text as a sentence.
fn sentence(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).chain(['.']).collect(),
        None => text,
    }
}

/// A length of time in its largest whole unit.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    for (unit, name) in [(86_400, "day"), (3600, "hour"), (60, "minute")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            let count = seconds / unit;
            return format!("{count} {name}{}", if count == 1 { "" } else { "s" });
        }
    }
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
}

/// The failure travels inside the response until the frame knows how to write it.
#[derive(Clone)]
struct Travelling(Arc<Failure>);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.told().status;
        response.extensions_mut().insert(Travelling(Arc::new(self)));
        response
    }
}

/// Takes the failure out of a response that carries one.
pub fn carried(response: &mut Response) -> Option<Arc<Failure>> {
    if response.status().is_success() {
        return None;
    }
    response.extensions_mut().remove::<Travelling>().map(|travelling| travelling.0)
}

/// Writes a failure for whoever asked.
pub fn answer(failure: &Failure, face: Face) -> Response {
    failure.log();
    let told = failure.told();
    let (content_type, body): (_, Bytes) = match face {
        Face::Json => ("application/problem+json", problem(&told).into()),
        Face::Text => ("text/plain; charset=utf-8", format!("{}\n", told.detail).into()),
        Face::Html => ("text/html; charset=utf-8", super::view::failure(&told)),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = told.status;
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
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
    if matches!(failure, Failure::TooLarge { .. } | Failure::TooSlow | Failure::Busy) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h9_every_reason_for_not_there_reads_the_same() {
        let told = Failure::NOT_FOUND.told();
        assert_eq!(told, Failure::NoRoute.told());
        assert_eq!(told, Failure::Operate(OperateError::NotFound).told());
        assert_eq!(told.status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn words_of_the_database_stay_inside() {
        let secret = crate::Unavailable::NoConnection("password=hunter2".to_owned());
        let told = Failure::Create(CreateError::Unavailable(secret)).told();
        assert!(!told.detail.contains("hunter2"), "{told:?}");
        assert!(told.retry_after.is_some());
    }

    #[test]
    fn lengths_are_written_for_people() {
        let written = [1, 60, 3600, 90_000, 86_400 * 365].map(|s| length(Duration::from_secs(s)));
        assert_eq!(written, ["1 second", "1 minute", "1 hour", "25 hours", "365 days"]);
    }
}
