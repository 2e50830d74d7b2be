//! Listening, within the limits of [`leasehold_http::server`].

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use leasehold_http::server::{self, Late};
use tokio::net::TcpListener;

use super::errors::{self, Face, Failure};

pub use leasehold_http::server::ServerLimits;

/// An answer took too long.
struct TimedOut;

impl Late for TimedOut {
    type Face = Face;

    fn face(path: &str, headers: &HeaderMap) -> Face {
        Face::of(path, headers)
    }

    fn answer(face: Face) -> Response {
        errors::answer(&Failure::TimedOut, face)
    }
}

/// Serves until `stop` is ready, then lets running requests end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_within(listener, router, ServerLimits::default(), stop).await;
}

/// The same with other limits.
pub async fn serve_within(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) {
    server::serve_within::<TimedOut>(listener, router, limits, stop).await;
}
