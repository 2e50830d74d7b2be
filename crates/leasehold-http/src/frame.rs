//! Wraps every request: it bounds the time, writes failures in the format that the client reads, and
//! turns a panic into a failure.
//!
//! # What is true
//! - A panic becomes a 500 for one request; the connection and the process continue.
//! - [`crate::server`] sets how long a response may take; this module reports the timeout as the
//!   service's own failure.
//!
//! The service adds the security headers, last of all: see [`crate::headers::guard`].

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;

use crate::failures::{IntoProblem, answer, carried, carry};

/// How long the response to a request may take; [`crate::server`] puts it into every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestDeadline(pub Duration);

/// Returns the response to a request, even after a panic or a timeout.
pub async fn answered<F: IntoProblem>(request: Request, next: Next) -> Response {
    let format = F::format(request.uri().path(), request.headers());
    let deadline = request.extensions().get::<RequestDeadline>().copied();
    let answering = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = match deadline {
        Some(RequestDeadline(time)) => tokio::time::timeout(time, answering).await,
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
        response = answer(&*failure, format);
        // Keep headers that the router set, such as Allow.
        for (name, value) in &said {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    response
}
