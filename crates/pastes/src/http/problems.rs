//! The problems of the paste service, with their statuses and texts.
//!
//! Handlers return a [`PasteProblem`]; [`leasehold_http::middleware`] writes it in the format that the
//! client reads.
//!
//! # Invariants
//! - "Not found" has one text for every reason, so that a reader does not learn the reason.
//! - No text contains messages of the database, of the store or of a panic.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use leasehold_http::problems::{
    CommonProblem, IntoProblem, ProblemDetails, ResponseFormat, sentence,
};

use super::options::shorten;
use super::view;
use crate::code::ShortCode;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};
use crate::highlight::{self, language};

const NOT_FOUND: &str = "There is no such paste, or it has ended.";

/// What a handler returns.
pub type HandlerResult = Result<Response, PasteProblem>;

/// Why a request failed.
#[derive(Debug)]
pub enum PasteProblem {
    /// A problem that every service can have.
    Common(CommonProblem),
    Create(CreateError),
    Read(ReadError),
    Delete(DeleteError),
    Operate(OperateError),
    /// The body is larger than a paste may be.
    TooLarge {
        limit: usize,
    },
    /// The upload of the paste is in progress.
    Uploading {
        retry_after: Duration,
    },
    /// The paste can be read once, and only on an explicit request.
    Burns(ShortCode),
    /// The client asked to burn a paste that does not burn.
    DoesNotBurn(ShortCode),
    /// Creating pastes requires a token, and there was none.
    Private,
    NoRoute,
}

leasehold_http::embed_common_problem!(PasteProblem);

macro_rules! from {
    ($($error:ident => $variant:ident),*) => {$(
        impl From<$error> for PasteProblem {
            fn from(error: $error) -> Self {
                match error {
                    $error::Unavailable(why) => Self::Common(CommonProblem::unavailable(&why)),
                    error => Self::$variant(error),
                }
            }
        }
    )*};
}
from!(CreateError => Create, ReadError => Read, DeleteError => Delete, OperateError => Operate);

impl PasteProblem {
    pub const NOT_FOUND: Self = Self::Read(ReadError::NotFound);

    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Common(CommonProblem::malformed(text))
    }
}

impl IntoProblem for PasteProblem {
    fn problem(&self) -> ProblemDetails {
        use StatusCode as S;
        match self {
            Self::Common(problem) => problem.problem(),
            Self::Create(error) => create_problem(error),
            Self::Read(ReadError::NotFound)
            | Self::Operate(OperateError::NotFound)
            | Self::NoRoute => ProblemDetails::new(S::NOT_FOUND, "not_found", NOT_FOUND),
            Self::Read(ReadError::StoreDown { retry_after }) => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "store_down",
                "The paste exists, but the store of its content does not respond. Try again later.",
            )
            .retry_after(*retry_after),
            Self::Read(ReadError::Unavailable(why))
            | Self::Delete(DeleteError::Unavailable(why))
            | Self::Operate(OperateError::Unavailable(why)) => {
                CommonProblem::unavailable(why).problem()
            }
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
            Self::TooLarge { limit } => too_large(*limit).closing(),
            Self::Uploading { retry_after } => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "uploading",
                "The paste is stored, and its upload is in progress. Try again shortly.",
            )
            .retry_after(*retry_after),
            Self::Burns(code) => ProblemDetails::new(
                S::CONFLICT,
                "burns",
                format!(
                    "This paste burns after reading. To read it once: POST /api/v1/pastes/{code}/burn, or POST /{code}/burn for the bytes alone."
                ),
            ),
            Self::DoesNotBurn(code) => ProblemDetails::new(
                S::CONFLICT,
                "does_not_burn",
                format!("This paste does not burn after reading. To read it: GET /raw/{code}"),
            ),
            Self::Private => ProblemDetails::new(
                S::UNAUTHORIZED,
                "private",
                "This service is private: creating a paste needs its token. Send it as X-Create-Token: <token>.",
            ),
        }
    }

    fn common(&self) -> Option<&CommonProblem> {
        match self {
            Self::Common(problem) => Some(problem),
            _ => None,
        }
    }

    fn page(problem: &ProblemDetails) -> Bytes {
        view::problem(problem)
    }

    fn format(path: &str, headers: &HeaderMap) -> ResponseFormat {
        match path.starts_with("/raw/") || path.starts_with("/download/") {
            // Always text: these addresses are for programs, even if a browser opens them.
            true => ResponseFormat::Text,
            false => ResponseFormat::of(path, headers),
        }
    }
}

fn create_problem(error: &CreateError) -> ProblemDetails {
    use StatusCode as S;
    match error {
        CreateError::Empty => ProblemDetails::error(S::BAD_REQUEST, "empty", error),
        CreateError::TooLarge { limit, .. } => too_large(*limit),
        CreateError::BadAlias => ProblemDetails::error(S::UNPROCESSABLE_ENTITY, "bad_alias", error),
        CreateError::AliasTaken(_) => ProblemDetails::new(
            S::CONFLICT,
            "alias_taken",
            format!("{} Choose another one.", sentence(error)),
        ),
        CreateError::BadExpiry { .. } => ProblemDetails::new(
            S::UNPROCESSABLE_ENTITY,
            "bad_expiry",
            format!("{} Write 10m, 1d or 2 weeks.", sentence(error)),
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
        CreateError::BadKey => ProblemDetails::error(S::BAD_REQUEST, "bad_idempotency_key", error),
        CreateError::KeyReused => {
            ProblemDetails::error(S::CONFLICT, "idempotency_key_reused", error)
        }
        CreateError::Banned => ProblemDetails::error(S::FORBIDDEN, "banned", error),
        CreateError::StagingFull { retry_after } => ProblemDetails::new(
            S::SERVICE_UNAVAILABLE,
            "staging_full",
            "Too many bytes wait for their upload. Nothing was stored; try again later.",
        )
        .retry_after(*retry_after),
        CreateError::QuotaFull { .. } => ProblemDetails::new(
            S::INSUFFICIENT_STORAGE,
            "quota_full",
            format!(
                "{} Nothing was stored; delete pastes, or wait until some expire.",
                sentence(error)
            ),
        ),
        CreateError::UnknownOwner => ProblemDetails::error(S::UNAUTHORIZED, "unknown_owner", error),
        CreateError::Unavailable(why) => CommonProblem::unavailable(why).problem(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h9_not_found_has_one_text_for_every_reason() {
        let problem = PasteProblem::NOT_FOUND.problem();
        assert_eq!(problem, PasteProblem::NoRoute.problem());
        assert_eq!(problem, PasteProblem::Operate(OperateError::NotFound).problem());
        assert_eq!(problem.status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn problem_of_raw_bytes_is_text_for_browsers_too() {
        let browser = HeaderMap::from_iter([(
            axum::http::header::ACCEPT,
            axum::http::HeaderValue::from_static("text/html"),
        )]);
        assert_eq!(PasteProblem::format("/x", &browser), ResponseFormat::Html);
        assert_eq!(PasteProblem::format("/raw/x", &browser), ResponseFormat::Text);
        assert_eq!(PasteProblem::format("/download/x", &browser), ResponseFormat::Text);
        assert_eq!(PasteProblem::format("/api/v1/pastes/x", &browser), ResponseFormat::Json);
    }

    #[test]
    fn message_of_the_database_is_logged_and_not_shown() {
        let secret = crate::Unavailable::NoConnection("password=hunter2".to_owned());
        let problem = PasteProblem::from(CreateError::Unavailable(secret));
        let Some(CommonProblem::Unavailable(reason)) = problem.common() else { panic!() };
        assert!(reason.contains("hunter2"), "{reason}");
        let shown = problem.problem();
        assert!(!shown.detail.contains("hunter2"), "{shown:?}");
        assert!(shown.retry_after.is_some());
    }
}
