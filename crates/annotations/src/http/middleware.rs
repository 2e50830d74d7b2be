//! The security headers of every response, whichever handler or layer wrote it.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use leasehold_http::headers;

use super::web::Shared;

pub async fn add_security_headers(
    State(web): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    headers::add_security_headers(response.headers_mut(), web.secure);
    response
}
