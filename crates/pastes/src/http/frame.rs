//! The middleware around every response, see [`leasehold_http::frame`], and the security headers.
//!
//! # What is true
//! - Every response has the security headers, whichever handler or layer wrote it.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use leasehold_http::frame::answered;

use super::errors::Failure;
use super::headers;
use super::web::Shared;

pub async fn frame(State(web): State<Shared>, request: Request, next: Next) -> Response {
    let mut response = answered::<Failure>(request, next).await;
    headers::guard(response.headers_mut(), web.secure);
    response
}
