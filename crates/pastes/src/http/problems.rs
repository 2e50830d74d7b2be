//! The one exhaustive match from a failure to a status and a text.
//!
//! # What is true
//! - "Not found" has one text for every reason, so that a reader does not learn the reason.
//! - No text contains messages of the database, of the store or of a panic.

use std::fmt::Display;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use leasehold_http::failures::{IntoProblem, ProblemDetails, ResponseFormat, sentence};

use super::errors::Failure;
use super::options::shorten;
use super::view;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};
use crate::highlight::{self, language};

const NOT_FOUND: &str = "There is no such paste, or not any more.";
const UNAVAILABLE: Duration = Duration::from_secs(5);

impl IntoProblem for Failure {
    /// The one place where a failure becomes a status and a text.
    fn problem(&self) -> ProblemDetails {
        use StatusCode as S;
        match self {
            Self::Create(error) => match error {
                CreateError::Empty => ProblemDetails::error(S::BAD_REQUEST, "empty", error),
                CreateError::TooLarge { limit, .. } => too_large(*limit),
                CreateError::BadAlias => {
                    ProblemDetails::error(S::UNPROCESSABLE_ENTITY, "bad_alias", error)
                }
                CreateError::AliasTaken(_) => ProblemDetails::new(
                    S::CONFLICT,
                    "alias_taken",
                    format!("{} Choose another one.", sentence(error)),
                ),
                CreateError::BadExpiry { least, most } => ProblemDetails::new(
                    S::UNPROCESSABLE_ENTITY,
                    "bad_expiry",
                    format!(
                        "A paste lives between {} and {} here. Write 10m, 1d or 2 weeks.",
                        length(*least),
                        length(*most)
                    ),
                ),
                CreateError::BadLanguage(name) => ProblemDetails::new(
                    S::UNPROCESSABLE_ENTITY,
                    "bad_language",
                    format!(
                        "The language {:?} is not known. Leave it out to have it detected, or choose one: {}.",
                        shorten(name),
                        known_languages()
                    ),
                ),
                CreateError::Gone => ProblemDetails::error(S::GONE, "gone", error),
                CreateError::BadKey => {
                    ProblemDetails::error(S::BAD_REQUEST, "bad_idempotency_key", error)
                }
                CreateError::KeyReused => {
                    ProblemDetails::error(S::CONFLICT, "idempotency_key_reused", error)
                }
                CreateError::Banned => ProblemDetails::error(S::FORBIDDEN, "banned", error),
                CreateError::StagingFull { retry_after } => ProblemDetails::new(
                    S::SERVICE_UNAVAILABLE,
                    "staging_full",
                    "Too much waits for its upload just now. Nothing was stored; try again later.",
                )
                .retry_after(*retry_after),
                CreateError::QuotaFull { .. } => ProblemDetails::new(
                    S::INSUFFICIENT_STORAGE,
                    "quota_full",
                    format!(
                        "{}. Nothing was stored; delete pastes, or wait until some expire.",
                        sentence(error).trim_end_matches('.')
                    ),
                ),
                CreateError::UnknownOwner => {
                    ProblemDetails::error(S::UNAUTHORIZED, "unknown_owner", error)
                }
                CreateError::Unavailable(_) => unavailable(),
            },
            Self::Read(ReadError::NotFound) | Self::Operate(OperateError::NotFound) => {
                ProblemDetails::new(S::NOT_FOUND, "not_found", NOT_FOUND)
            }
            Self::Read(ReadError::StoreDown { retry_after }) => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "store_down",
                "The paste is there, but its content cannot be fetched just now. Try again later.",
            )
            .retry_after(*retry_after),
            Self::Read(ReadError::Unavailable(_))
            | Self::Delete(DeleteError::Unavailable(_))
            | Self::Operate(OperateError::Unavailable(_)) => unavailable(),
            Self::Delete(DeleteError::NotYours) => ProblemDetails::new(
                S::FORBIDDEN,
                "not_yours",
                "This token does not belong to the paste. Use the delete token that came with it, or its owner's token.",
            ),
            Self::Operate(OperateError::AnotherPaste) => ProblemDetails::new(
                S::CONFLICT,
                "another_paste",
                "Another paste has this name now, and nothing was taken down. Name the report, or the contentHash of the paste.",
            ),
            Self::Operate(OperateError::BadHash) => {
                ProblemDetails::error(S::BAD_REQUEST, "bad_hash", &OperateError::BadHash)
            }
            Self::Uploading { retry_after } => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "uploading",
                "The paste is stored and still being uploaded. Try again shortly.",
            )
            .retry_after(*retry_after),
            Self::Burns(code) => ProblemDetails::new(
                S::CONFLICT,
                "burns",
                format!(
                    "This paste can be read once, and is gone then. To read it: POST /api/v1/pastes/{code}/burn, or POST /{code}/burn for the bytes alone."
                ),
            ),
            Self::DoesNotBurn(code) => ProblemDetails::new(
                S::CONFLICT,
                "does_not_burn",
                format!("This paste stays when it is read. To read it: GET /raw/{code}"),
            ),
            Self::Malformed(detail) => {
                ProblemDetails::new(S::BAD_REQUEST, "malformed", detail.clone())
            }
            Self::TooLarge { limit } => too_large(*limit).closing(),
            Self::TooSlow => ProblemDetails::new(
                S::REQUEST_TIMEOUT,
                "too_slow",
                "The body did not arrive in time. Nothing was stored.",
            )
            .closing(),
            Self::WrongType(wanted) => {
                ProblemDetails::new(S::UNSUPPORTED_MEDIA_TYPE, "wrong_type", *wanted)
            }
            Self::NoToken => ProblemDetails::new(
                S::UNAUTHORIZED,
                "no_token",
                "This needs a token: Authorization: Bearer <token>",
            ),
            Self::Private => ProblemDetails::new(
                S::UNAUTHORIZED,
                "private",
                "This service is private: making a paste needs its token, as X-Create-Token: <token>",
            ),
            Self::WrongToken => {
                ProblemDetails::new(S::FORBIDDEN, "wrong_token", "This token does not allow that.")
            }
            Self::CrossSite => ProblemDetails::new(
                S::FORBIDDEN,
                "cross_site",
                "The form came from another site. Open the page here and send it again.",
            ),
            Self::TooMany { retry_after } => ProblemDetails::new(
                S::TOO_MANY_REQUESTS,
                "too_many",
                "Too many requests from this address. Wait a little.",
            )
            .retry_after(*retry_after),
            Self::Busy => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "Too much is sent or received at once. Nothing was changed; try again shortly.",
            )
            .retry_after(Duration::from_secs(2))
            .closing(),
            Self::TimedOut => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "This took too long. If it made something, repeat it with its Idempotency-Key.",
            )
            .retry_after(UNAVAILABLE),
            Self::NoRoute => ProblemDetails::new(S::NOT_FOUND, "not_found", NOT_FOUND),
            Self::WrongMethod => ProblemDetails::new(
                S::METHOD_NOT_ALLOWED,
                "wrong_method",
                "This address does not take that method; Allow lists those that it takes.",
            ),
            Self::Broken => ProblemDetails::new(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something is wrong on our side, and it was noted.",
            ),
        }
    }
    fn page(told: &ProblemDetails) -> Bytes {
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

    fn format(path: &str, headers: &HeaderMap) -> ResponseFormat {
        match path.starts_with("/raw/") || path.starts_with("/download/") {
            // Always text: these addresses are for programs, even if a browser opens them.
            true => ResponseFormat::Text,
            false => ResponseFormat::of(path, headers),
        }
    }
}

fn too_large(limit: usize) -> ProblemDetails {
    let detail = format!("A paste has at most {limit} bytes here. Nothing was stored.");
    ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
}

fn known_languages() -> String {
    let plain = std::iter::once(language::plain().id);
    let ids: Vec<&str> = plain.chain(highlight::languages().iter().map(|known| known.id)).collect();
    ids.join(", ")
}

fn unavailable() -> ProblemDetails {
    let detail = "The service cannot reach its database just now. Try again shortly.";
    ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        .retry_after(UNAVAILABLE)
}

/// Returns a length of time in its largest whole unit.
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
        let told = Failure::NOT_FOUND.problem();
        assert_eq!(told, Failure::NoRoute.problem());
        assert_eq!(told, Failure::Operate(OperateError::NotFound).problem());
        assert_eq!(told.status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn bytes_of_pastes_are_for_programs_whoever_opens_them() {
        let browser = HeaderMap::from_iter([(
            axum::http::header::ACCEPT,
            axum::http::HeaderValue::from_static("text/html"),
        )]);
        assert_eq!(Failure::format("/x", &browser), ResponseFormat::Html);
        assert_eq!(Failure::format("/raw/x", &browser), ResponseFormat::Text);
        assert_eq!(Failure::format("/download/x", &browser), ResponseFormat::Text);
        assert_eq!(Failure::format("/api/v1/pastes/x", &browser), ResponseFormat::Json);
    }

    #[test]
    fn words_of_the_database_stay_inside() {
        let secret = crate::Unavailable::NoConnection("password=hunter2".to_owned());
        let told = Failure::Create(CreateError::Unavailable(secret)).problem();
        assert!(!told.detail.contains("hunter2"), "{told:?}");
        assert!(told.retry_after.is_some());
    }

    #[test]
    fn lengths_are_written_for_people() {
        let written = [1, 60, 3600, 90_000, 86_400 * 365].map(|s| length(Duration::from_secs(s)));
        assert_eq!(written, ["1 second", "1 minute", "1 hour", "25 hours", "365 days"]);
    }
}
