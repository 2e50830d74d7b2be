//! What surrounds every answer: it comes in time, failures are in the form that the client reads, and
//! a panic is a failure like any other.
//!
//! # What is true
//! - A panic is a 500 for one request; the connection and the process go on.
//! - [`crate::server`] says how long an answer may take; here is where it is said in the service's own
//!   words that it took longer.
//!
//! The guarding headers are the service's to add, last of all: see [`crate::headers::guard`].

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;

use crate::failures::{Failing, answer, carried, carry};

/// How long the answer to a request may take; [`crate::server`] puts it into every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience(pub Duration);

/// The answer to a request, whatever becomes of it.
pub async fn answered<F: Failing>(request: Request, next: Next) -> Response {
    let face = F::face(request.uri().path(), request.headers());
    let patience = request.extensions().get::<Patience>().copied();
    let answering = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = match patience {
        Some(Patience(time)) => tokio::time::timeout(time, answering).await,
        None => Ok(answering.await),
    };
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("answering a request panicked; this is a defect");
            carry(F::broken())
        }
        Err(_) => carry(F::timed_out()),
    };
    if let Some(failure) = carried::<F>(&mut response) {
        let said = std::mem::take(response.headers_mut());
        response = answer(&*failure, face);
        // Such as Allow.
        for (name, value) in &said {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    response
}
