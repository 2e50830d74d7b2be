//! The one exhaustive match from a failure to a status and words.
//!
//! # What is true
//! - "Not there" has one text for every reason, so that nobody learns which one it was.
//! - No text holds words of the database, of the store or of a panic.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;

use super::errors::Failure;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};

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
