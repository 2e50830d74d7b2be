//! The one exhaustive match from a failure to a status and words.
//!
//! # What is true
//! - "Not there" has one text for every reason, so that nobody learns which one it was.
//! - No text holds words of the database, of the store or of a panic.

use std::fmt::Display;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use leasehold_http::failures::{Face, Failing, Told, sentence};

use super::errors::Failure;
use super::view;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};

const NOT_FOUND: &str = "There is no such paste, or not any more.";
const UNAVAILABLE: Duration = Duration::from_secs(5);

impl Failing for Failure {
    /// The one place where a failure becomes a status and a text.
    fn told(&self) -> Told {
        use StatusCode as S;
        match self {
            Self::Create(error) => match error {
                CreateError::Empty => Told::error(S::BAD_REQUEST, "empty", error),
                CreateError::TooLarge { limit, .. } => too_large(*limit),
                CreateError::BadAlias => Told::error(S::UNPROCESSABLE_ENTITY, "bad_alias", error),
                CreateError::AliasTaken(_) => Told::new(
                    S::CONFLICT,
                    "alias_taken",
                    format!("{} Choose another one.", sentence(error)),
                ),
                CreateError::BadExpiry { least, most } => Told::new(
                    S::UNPROCESSABLE_ENTITY,
                    "bad_expiry",
                    format!(
                        "A paste lives between {} and {} here. Write 10m, 1d or 2 weeks.",
                        length(*least),
                        length(*most)
                    ),
                ),
                CreateError::BadLanguage => {
                    Told::error(S::UNPROCESSABLE_ENTITY, "bad_language", error)
                }
                CreateError::BadKey => Told::error(S::BAD_REQUEST, "bad_idempotency_key", error),
                CreateError::KeyReused => Told::error(S::CONFLICT, "idempotency_key_reused", error),
                CreateError::Banned => Told::error(S::FORBIDDEN, "banned", error),
                CreateError::StagingFull { retry_after } => Told::new(
                    S::SERVICE_UNAVAILABLE,
                    "staging_full",
                    "Too much waits for its upload just now. Nothing was stored; try again later.",
                )
                .retry_after(*retry_after),
                CreateError::UnknownOwner => Told::error(S::UNAUTHORIZED, "unknown_owner", error),
                CreateError::Unavailable(_) => unavailable(),
            },
            Self::Read(ReadError::NotFound) | Self::Operate(OperateError::NotFound) => {
                Told::new(S::NOT_FOUND, "not_found", NOT_FOUND)
            }
            Self::Read(ReadError::StoreDown { retry_after }) => Told::new(
                S::SERVICE_UNAVAILABLE,
                "store_down",
                "The paste is there, but its content cannot be fetched just now. Try again later.",
            )
            .retry_after(*retry_after),
            Self::Read(ReadError::Unavailable(_))
            | Self::Delete(DeleteError::Unavailable(_))
            | Self::Operate(OperateError::Unavailable(_)) => unavailable(),
            Self::Delete(DeleteError::NotYours) => Told::new(
                S::FORBIDDEN,
                "not_yours",
                "This token does not belong to the paste. Use the delete token that came with it, or its owner's token.",
            ),
            Self::Operate(OperateError::BadHash) => {
                Told::error(S::BAD_REQUEST, "bad_hash", &OperateError::BadHash)
            }
            Self::Uploading { retry_after } => Told::new(
                S::SERVICE_UNAVAILABLE,
                "uploading",
                "The paste is stored and still being uploaded. Try again shortly.",
            )
            .retry_after(*retry_after),
            Self::Burns(code) => Told::new(
                S::CONFLICT,
                "burns",
                format!(
                    "This paste can be read once, and is gone then. To read it: POST /api/v1/pastes/{code}/burn, or POST /{code}/burn for the bytes alone."
                ),
            ),
            Self::DoesNotBurn(code) => Told::new(
                S::CONFLICT,
                "does_not_burn",
                format!("This paste stays when it is read. To read it: GET /raw/{code}"),
            ),
            Self::Malformed(detail) => Told::new(S::BAD_REQUEST, "malformed", detail.clone()),
            Self::TooLarge { limit } => too_large(*limit).closing(),
            Self::TooSlow => Told::new(
                S::REQUEST_TIMEOUT,
                "too_slow",
                "The body did not arrive in time. Nothing was stored.",
            )
            .closing(),
            Self::WrongType(wanted) => Told::new(S::UNSUPPORTED_MEDIA_TYPE, "wrong_type", *wanted),
            Self::NoToken => Told::new(
                S::UNAUTHORIZED,
                "no_token",
                "This needs a token: Authorization: Bearer <token>",
            ),
            Self::WrongToken => {
                Told::new(S::FORBIDDEN, "wrong_token", "This token does not allow that.")
            }
            Self::CrossSite => Told::new(
                S::FORBIDDEN,
                "cross_site",
                "The form came from another site. Open the page here and send it again.",
            ),
            Self::TooMany { retry_after } => Told::new(
                S::TOO_MANY_REQUESTS,
                "too_many",
                "Too many requests from this address. Wait a little.",
            )
            .retry_after(*retry_after),
            Self::Busy => Told::new(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "Too many uploads at once. Nothing was stored; try again shortly.",
            )
            .retry_after(Duration::from_secs(2))
            .closing(),
            Self::TimedOut => Told::new(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "This took too long. If it made something, repeat it with its Idempotency-Key.",
            )
            .retry_after(UNAVAILABLE),
            Self::NoRoute => Told::new(S::NOT_FOUND, "not_found", NOT_FOUND),
            Self::WrongMethod => Told::new(
                S::METHOD_NOT_ALLOWED,
                "wrong_method",
                "This address does not take that method; Allow lists those that it takes.",
            ),
            Self::Broken => Told::new(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something is wrong on our side, and it was noted.",
            ),
        }
    }
    fn page(told: &Told) -> Bytes {
        view::failure(told)
    }

    fn timed_out() -> Self {
        Self::TimedOut
    }

    fn broken() -> Self {
        Self::Broken
    }

    fn trouble(&self) -> Option<&dyn Display> {
        match self {
            Self::Create(CreateError::Unavailable(why))
            | Self::Read(ReadError::Unavailable(why))
            | Self::Delete(DeleteError::Unavailable(why))
            | Self::Operate(OperateError::Unavailable(why)) => Some(why),
            _ => None,
        }
    }

    fn face(path: &str, headers: &HeaderMap) -> Face {
        match path.starts_with("/raw/") || path.starts_with("/download/") {
            // The same for everyone: these are for programs, whoever opens them.
            true => Face::Text,
            false => Face::of(path, headers),
        }
    }
}

fn too_large(limit: usize) -> Told {
    let detail = format!("A paste has at most {limit} bytes here. Nothing was stored.");
    Told::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

fn unavailable() -> Told {
    let detail = "The service cannot reach its database just now. Try again shortly.";
    Told::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retry_after(UNAVAILABLE)
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
    fn bytes_of_pastes_are_for_programs_whoever_opens_them() {
        let browser = HeaderMap::from_iter([(
            axum::http::header::ACCEPT,
            axum::http::HeaderValue::from_static("text/html"),
        )]);
        assert_eq!(Failure::face("/x", &browser), Face::Html);
        assert_eq!(Failure::face("/raw/x", &browser), Face::Text);
        assert_eq!(Failure::face("/download/x", &browser), Face::Text);
        assert_eq!(Failure::face("/api/v1/pastes/x", &browser), Face::Json);
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
