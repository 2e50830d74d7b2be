//! What can go wrong with a request.
//!
//! Handlers return a [`Failure`]; [`leasehold_http::frame`] writes it in the format that the client
//! reads. [`super::told`] has its status and its text.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use leasehold_http::body::BodyError;
use leasehold_http::failures;
use leasehold_http::json::JsonError;
use leasehold_http::limits::TooMany;

use crate::code::ShortCode;
use crate::error::{CreateError, DeleteError, OperateError, ReadError};

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    Create(CreateError),
    Read(ReadError),
    Delete(DeleteError),
    Operate(OperateError),
    /// The upload of the paste is in progress.
    Uploading {
        retry_after: Duration,
    },
    /// The paste can be read once, and only on an explicit request.
    Burns(ShortCode),
    /// The client asked to burn a paste that does not burn.
    DoesNotBurn(ShortCode),
    /// The request cannot be understood; the text says what it should look like.
    Malformed(Cow<'static, str>),
    TooLarge {
        limit: usize,
    },
    /// The body did not arrive in time.
    TooSlow,
    /// The body has a type that is not accepted here.
    WrongType(&'static str),
    /// A token is required, and there was none.
    NoToken,
    /// Creating pastes requires a token, and there was none.
    Private,
    /// The token is wrong.
    WrongToken,
    /// A form that another site made the browser send.
    CrossSite,
    TooMany {
        retry_after: Duration,
    },
    /// The memory for bodies, or for responses, is used up.
    Busy,
    /// The request took too long.
    TimedOut,
    NoRoute,
    WrongMethod,
    /// A bug in the service; it was logged.
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

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit } => Self::TooLarge { limit },
            BodyError::TooSlow => Self::TooSlow,
            BodyError::Busy => Self::Busy,
            BodyError::Packed => {
                Self::WrongType("Send the body as it is, without Content-Encoding.")
            }
            BodyError::Broken => {
                Self::malformed("The body broke off or its chunks cannot be read.")
            }
        }
    }
}

impl From<TooMany> for Failure {
    fn from(TooMany { retry_after }: TooMany) -> Self {
        Self::TooMany { retry_after }
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::NotJson => {
                Self::WrongType("Send JSON, with Content-Type: application/json.")
            }
            JsonError::Body(error) => error.into(),
            JsonError::Misfit(text) => Self::malformed(text),
        }
    }
}

impl Failure {
    pub const NOT_FOUND: Self = Self::Read(ReadError::NotFound);

    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        failures::carry(self)
    }
}
