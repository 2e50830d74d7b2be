//! Wraps every request: it bounds the time, writes problems in the format that the client reads, and
//! turns a panic into a problem.
//!
//! # Invariants
//! - A panic becomes a 500 for one request; the connection and the process continue.
//! - [`crate::server`] sets how long a response may take; this module reports the timeout as the
//!   service's own problem.
//!
//! The service adds the security headers, last of all: see [`crate::headers::add_security_headers`].

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;

use crate::problems::{CommonProblem, IntoProblem, problem_response, take_problem, write_problem};

/// How long the response to a request may take; [`crate::server`] puts it into every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestDeadline(pub Duration);

/// Returns the response to a request, even after a panic or a timeout.
pub async fn respond<P: IntoProblem>(request: Request, next: Next) -> Response {
    let format = P::format(request.uri().path(), request.headers());
    let deadline = request.extensions().get::<RequestDeadline>().copied();
    let handling = AssertUnwindSafe(next.run(request)).catch_unwind();
    let handled = match deadline {
        Some(RequestDeadline(time)) => tokio::time::timeout(time, handling).await,
        None => Ok(handling.await),
    };
    let mut response = match handled {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!("the handler of a request panicked; this is a defect");
            problem_response(P::from(CommonProblem::Defect))
        }
        Err(_) => problem_response(P::from(CommonProblem::TimedOut)),
    };
    if let Some(problem) = take_problem::<P>(&mut response) {
        let headers = std::mem::take(response.headers_mut());
        response = write_problem(&*problem, format);
        // Keep headers that the router set, such as Allow.
        for (name, value) in &headers {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
    response
}
