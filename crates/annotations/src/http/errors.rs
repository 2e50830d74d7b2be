//! What can go wrong with a request, with its status and text.
//!
//! Handlers return a [`Failure`]; [`leasehold_http::frame`] writes it in the format that the client
//! accepts.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use leasehold_http::body::BodyError;
use leasehold_http::failures::{self, IntoProblem, ProblemDetails};
use leasehold_http::json::JsonError;
use leasehold_http::limits::TooMany;

use crate::error::Refused;
use crate::pages;

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    Refused(Refused),
    /// The request cannot be understood; the text says what it should look like.
    Malformed(Cow<'static, str>),
    Body(BodyError),
    NotJson,
    /// A token is needed, and there is none.
    NoToken,
    /// The token belongs to no user.
    UnknownToken,
    /// The token is not the operator's.
    WrongToken,
    /// Users cannot create accounts for themselves here.
    NoSignUp,
    /// Another site made the browser send it.
    CrossSite,
    TooMany(TooMany),
    /// Responses in the making use all memory that is allowed, for this address or in all.
    Busy,
    TimedOut,
    NoRoute,
    WrongMethod,
    /// A defect of the service; it was logged.
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

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::NotJson => Self::NotJson,
            JsonError::Body(error) => Self::Body(error),
            JsonError::Misfit(text) => Self::malformed(text),
        }
    }
}

const SOON: Duration = Duration::from_secs(2);

impl Failure {
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        failures::carry(self)
    }
}

impl IntoProblem for Failure {
    fn problem(&self) -> ProblemDetails {
        use StatusCode as S;
        match self {
            Self::Refused(refused) => told_refused(refused),
            Self::Malformed(text) => ProblemDetails::new(S::BAD_REQUEST, "malformed", text.clone()),
            Self::Body(error) => told_body(error).closing(),
            Self::NotJson => ProblemDetails::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong_type",
                "Send JSON, with Content-Type: application/json.",
            ),
            Self::NoToken => ProblemDetails::new(
                S::UNAUTHORIZED,
                "no_token",
                "Log in, or send a token: Authorization: Bearer …",
            ),
            Self::UnknownToken => ProblemDetails::new(
                S::UNAUTHORIZED,
                "unknown_token",
                "This token is not known, or not any more.",
            ),
            Self::WrongToken => {
                ProblemDetails::new(S::FORBIDDEN, "wrong_token", "This token does not allow it.")
            }
            Self::NoSignUp => ProblemDetails::new(
                S::FORBIDDEN,
                "no_sign_up",
                "Accounts are made by whoever runs this service.",
            ),
            Self::CrossSite => ProblemDetails::new(
                S::FORBIDDEN,
                "cross_site",
                "This came from another site and was not done.",
            ),
            Self::TooMany(too_many) => ProblemDetails::new(
                S::TOO_MANY_REQUESTS,
                "too_many",
                "Too many requests from your address; wait a moment.",
            )
            .retry_after(too_many.retry_after),
            Self::Busy => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "Too many answers are being made at once; try again in a moment.",
            )
            .retry_after(SOON),
            Self::TimedOut => ProblemDetails::new(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "The answer took too long; try again.",
            )
            .retry_after(SOON),
            Self::NoRoute => {
                ProblemDetails::new(S::NOT_FOUND, "not_found", "There is nothing here.")
            }
            Self::WrongMethod => ProblemDetails::new(
                S::METHOD_NOT_ALLOWED,
                "wrong_method",
                "This cannot be done here.",
            ),
            Self::Broken => ProblemDetails::new(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something broke on our side; it was noted.",
            ),
        }
    }

    fn page(told: &ProblemDetails) -> Bytes {
        pages::failure(told.status.as_u16(), &told.detail).into_string().into()
    }

    fn timed_out() -> Self {
        Self::TimedOut
    }

    fn broken() -> Self {
        Self::Broken
    }

    fn trouble(&self) -> Option<&dyn Display> {
        match self {
            Self::Refused(Refused::Unavailable(why)) => Some(why),
            _ => None,
        }
    }
}

fn told_refused(refused: &Refused) -> ProblemDetails {
    use StatusCode as S;
    let (status, code) = match refused {
        Refused::NotFound => (S::NOT_FOUND, "not_found"),
        Refused::NoSuchPerson => (S::NOT_FOUND, "no_such_person"),
        Refused::NoSuchPage => (S::NOT_FOUND, "no_such_page"),
        Refused::NoSuchReindex => (S::NOT_FOUND, "no_such_reindex"),
        Refused::NoSuchGroup => (S::NOT_FOUND, "no_such_group"),
        Refused::OwnerLeaves => (S::CONFLICT, "owner_leaves"),
        Refused::TooManyInvitations => (S::CONFLICT, "too_many_invitations"),
        Refused::TooManyBlocked => (S::CONFLICT, "too_many_blocked"),
        Refused::NotYours => (S::FORBIDDEN, "not_yours"),
        Refused::HasReplies => (S::CONFLICT, "has_replies"),
        Refused::ReplyElsewhere => (S::BAD_REQUEST, "reply_elsewhere"),
        Refused::AccountGone => (S::UNAUTHORIZED, "unknown_token"),
        Refused::ChangedMeanwhile => (S::PRECONDITION_FAILED, "changed_meanwhile"),
        Refused::TooManyGroups => (S::CONFLICT, "too_many_groups"),
        Refused::NameTaken => (S::CONFLICT, "name_taken"),
        Refused::KeyReused => (S::CONFLICT, "key_reused"),
        Refused::Malformed(_) => (S::UNPROCESSABLE_ENTITY, "not_allowed"),
        Refused::Unavailable(_) => (S::SERVICE_UNAVAILABLE, "unavailable"),
    };
    soon_if_unavailable(ProblemDetails::error(status, code, refused))
}

fn told_body(error: &BodyError) -> ProblemDetails {
    use StatusCode as S;
    let (status, code) = match error {
        BodyError::TooLarge { .. } => (S::PAYLOAD_TOO_LARGE, "too_large"),
        BodyError::TooSlow => (S::REQUEST_TIMEOUT, "too_slow"),
        BodyError::Busy => (S::SERVICE_UNAVAILABLE, "busy"),
        BodyError::Packed => (S::UNSUPPORTED_MEDIA_TYPE, "packed"),
        BodyError::Broken => (S::BAD_REQUEST, "malformed"),
    };
    soon_if_unavailable(ProblemDetails::error(status, code, error))
}

fn soon_if_unavailable(told: ProblemDetails) -> ProblemDetails {
    match told.status {
        StatusCode::SERVICE_UNAVAILABLE => told.retry_after(SOON),
        _ => told,
    }
}
