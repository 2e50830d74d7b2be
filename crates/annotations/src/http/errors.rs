//! What can go wrong with a request, and its status and words.
//!
//! Handlers return a [`Failure`]; [`leasehold_http::frame`] writes it in the form that the client
//! reads.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use leasehold_http::body::BodyError;
use leasehold_http::failures::{self, Failing, Told};
use leasehold_http::json::JsonError;
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

impl Failing for Failure {
    fn told(&self) -> Told {
        use StatusCode as S;
        match self {
            Self::Refused(refused) => told_refused(refused),
            Self::Malformed(text) => Told::new(S::BAD_REQUEST, "malformed", text.clone()),
            Self::Body(error) => told_body(error).closing(),
            Self::NotJson => Told::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "wrong_type",
                "Send JSON, with Content-Type: application/json.",
            ),
            Self::NoToken => Told::new(
                S::UNAUTHORIZED,
                "no_token",
                "Log in, or send a token: Authorization: Bearer …",
            ),
            Self::UnknownToken => Told::new(
                S::UNAUTHORIZED,
                "unknown_token",
                "This token is not known, or not any more.",
            ),
            Self::WrongToken => {
                Told::new(S::FORBIDDEN, "wrong_token", "This token does not allow it.")
            }
            Self::NoSignUp => Told::new(
                S::FORBIDDEN,
                "no_sign_up",
                "Accounts are made by whoever runs this service.",
            ),
            Self::CrossSite => Told::new(
                S::FORBIDDEN,
                "cross_site",
                "This came from another site and was not done.",
            ),
            Self::TooMany(too_many) => Told::new(
                S::TOO_MANY_REQUESTS,
                "too_many",
                "Too many requests from your address; wait a moment.",
            )
            .retry_after(too_many.retry_after),
            Self::TimedOut => Told::new(
                S::SERVICE_UNAVAILABLE,
                "timed_out",
                "The answer took too long; try again.",
            )
            .retry_after(SOON),
            Self::NoRoute => Told::new(S::NOT_FOUND, "not_found", "There is nothing here."),
            Self::WrongMethod => {
                Told::new(S::METHOD_NOT_ALLOWED, "wrong_method", "This cannot be done here.")
            }
            Self::Broken => Told::new(
                S::INTERNAL_SERVER_ERROR,
                "broken",
                "Something broke on our side; it was noted.",
            ),
        }
    }

    fn page(told: &Told) -> Bytes {
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

fn told_refused(refused: &Refused) -> Told {
    use StatusCode as S;
    let (status, code) = match refused {
        Refused::NotFound => (S::NOT_FOUND, "not_found"),
        Refused::NoSuchPerson => (S::NOT_FOUND, "no_such_person"),
        Refused::NoSuchPage => (S::NOT_FOUND, "no_such_page"),
        Refused::NoSuchReindex => (S::NOT_FOUND, "no_such_reindex"),
        Refused::NoSuchGroup => (S::NOT_FOUND, "no_such_group"),
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
    soon_if_unavailable(Told::error(status, code, refused))
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
    soon_if_unavailable(Told::error(status, code, error))
}

fn soon_if_unavailable(told: Told) -> Told {
    match told.status {
        StatusCode::SERVICE_UNAVAILABLE => told.retry_after(SOON),
        _ => told,
    }
}
