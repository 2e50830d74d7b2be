//! What can go wrong with a request, and how it is written for whoever asked.
//!
//! Handlers return a [`Failure`]; [`super::frame`] writes it in the form that the client reads.
//! [`super::told`] has its status and its words.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use leasehold_http::body::BodyError;
use leasehold_http::limits::TooMany;

use super::headers::{self, NO_STORE};
use super::negotiate::Face;
use super::told::Told;
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

impl Failure {
    pub const NOT_FOUND: Self = Self::Read(ReadError::NotFound);

    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed(text.into())
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
