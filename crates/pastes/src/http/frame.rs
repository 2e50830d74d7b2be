//! What surrounds every answer: failures in the form that the client reads, headers that guard.
//!
//! # What is true
//! - Nothing leaves without the guarding headers, whoever wrote the answer.
//! - A panic is a 500 for one request; the connection and the process go on.

use std::panic::AssertUnwindSafe;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::errors::{self, Failure};
use super::headers;
use super::negotiate::Face;
use super::web::Shared;

pub async fn frame(State(web): State<Shared>, request: Request, next: Next) -> Response {
    let face = Face::of(request.uri().path(), request.headers());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!("answering a request panicked; this is a defect");
        Failure::Broken.into_response()
    });
    if let Some(failure) = errors::carried(&mut response) {
        let said = std::mem::take(response.headers_mut());
        response = errors::answer(&failure, face);
        // Such as Allow.
        for (name, value) in &said {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    headers::guard(response.headers_mut(), web.secure);
    response
}

/// Work that goes on when the client goes away: half of it must not be left behind.
pub async fn undisturbed<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Failure>
where
    T: Send + 'static,
    E: Send + 'static,
    Failure: From<E>,
{
    match leasehold_http::undisturbed(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Failure::Broken),
    }
}
