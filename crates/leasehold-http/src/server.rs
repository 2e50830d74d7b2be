//! Listens, counts connections, and closes those that stall.
//!
//! # Invariants
//! - A client has a time limit for its request's head, for the body, and for reading the response; an
//!   idle connection is closed.
//! - The number of open connections is limited. Beyond that, clients wait in the system's accept
//!   queue until another connection ends. One address may have only some of them; further ones are
//!   closed at once.
//! - A client must read a response at a minimum speed, and all of it within a time limit: see
//!   [`ServerLimits`].
//! - HTTP/1.1 only: a client cannot open and reset streams by the thousand.
//! - A stop lets running requests end, and accepts no new ones.
//!
//! # What can go wrong
//! - No file descriptor is left: accepting pauses for 200 ms and tries again.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::connections::Connections;
use crate::middleware::RequestDeadline;
use crate::responses;
use crate::stall::{ResponseCount, TimedBody, TimedWrites};

pub use crate::connections::ServerLimits;

/// How long the middleware of a router has to report a late response, before the connection does.
const MIDDLEWARE_HEAD_START: Duration = Duration::from_secs(1);

/// Serves until `stop` is ready, then lets running requests end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_within(listener, router, ServerLimits::default(), stop).await;
}

/// Like [`serve`], with other limits.
pub async fn serve_within(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let limits = Arc::new(limits);
    let addresses = Arc::new(Connections::new(limits.connections_per_address));
    let graceful = GracefulShutdown::new();
    let http = connection(&limits);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // A permit first: connections that we cannot serve stay in the system's queue.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (accept(&listener).await, permit)
        };
        let ((stream, peer), permit) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        // Dropped, and so closed: a response would cost us exactly what such a client wants us to
        // spend.
        let Some(of_address) = addresses.enter(peer.ip()) else { continue };
        let responses = ResponseCount::default();
        let io = TokioIo::new(TimedWrites::new(stream, &limits, responses.clone()));
        let service = Connection {
            router: TowerToHyperService::new(router.clone()),
            peer,
            limits: Arc::clone(&limits),
            responses,
        };
        let connection = graceful.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            // A client that disconnects is no error of ours.
            let _ = connection.await;
            drop((permit, of_address));
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests still ran at the end of the grace period and are aborted");
    }
}

fn connection(limits: &ServerLimits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_header_size(limits.head_bytes)
        // The smallest that hyper takes is 8 KiB.
        .max_buf_size(limits.head_bytes.max(8 * 1024) + 1024)
        .half_close(false);
    http
}

/// Accepts a connection, and waits while the system is short of resources.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it small responses are delayed; if the system refuses, they are only
                // slower.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again in 200 ms");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Returns true if the client disconnected before we accepted it.
fn is_gone(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The router for one connection: it adds the peer's address and the time limits to each request.
struct Connection {
    router: TowerToHyperService<Router>,
    peer: SocketAddr,
    limits: Arc<ServerLimits>,
    responses: ResponseCount,
}

impl Service<hyper::Request<Incoming>> for Connection {
    type Response = Response;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let body_limit = self.limits.body;
        let mut request = request.map(|body| TimedBody::wrap(body, body_limit));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        request.extensions_mut().insert(RequestDeadline(self.limits.request));
        let handling = self.router.call(request);
        let deadline = self.limits.request + MIDDLEWARE_HEAD_START;
        let responses = self.responses.clone();
        Box::pin(async move {
            let handled = tokio::time::timeout(deadline, handling).await;
            responses.begin();
            match handled {
                Ok(response) => response,
                Err(_) => Ok(timed_out()),
            }
        })
    }
}

/// For routers without [`crate::middleware`], which reports the timeout as the service's own problem.
fn timed_out() -> Response {
    let mut response = responses::text("the response took too long\n");
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    crate::headers::add_security_headers(response.headers_mut(), false);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::respond;
    use crate::problems::{CommonProblem, IntoProblem, ProblemDetails};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    enum TestProblem {
        Common(CommonProblem),
    }

    crate::embed_common_problem!(TestProblem);

    impl IntoProblem for TestProblem {
        fn problem(&self) -> ProblemDetails {
            let Self::Common(problem) = self;
            problem.problem()
        }

        fn common(&self) -> Option<&CommonProblem> {
            let Self::Common(problem) = self;
            Some(problem)
        }

        fn page(problem: &ProblemDetails) -> bytes::Bytes {
            format!("<p>{}", problem.detail).into()
        }
    }

    const SHORT: Duration = Duration::from_millis(10);
    /// Longer than any slow machine needs.
    const LONG: Duration = Duration::from_secs(600);

    /// Returns the raw response of a server with this router and this time limit for requests.
    async fn request(router: Router, request: &str, deadline: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let limits = ServerLimits { head: LONG, request: deadline, ..ServerLimits::default() };
        let serving = tokio::spawn(serve_within(listener, router, limits, std::future::pending()));
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut response = String::new();
        let reading = stream.read_to_string(&mut response);
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("an end in time")
            .expect("a response");
        serving.abort();
        response
    }

    fn router() -> Router {
        async fn broken() -> Response {
            panic!("a defect")
        }
        Router::new().route("/slow", get(std::future::pending::<Response>)).route("/x", get(broken))
    }

    #[tokio::test]
    async fn h11_middleware_reports_a_late_response_as_a_problem() {
        let wrapped = router().layer(axum::middleware::from_fn(respond::<TestProblem>));
        let response = request(wrapped, "GET /slow", SHORT).await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.ends_with("send the same Idempotency-Key.\n"), "{response}");
    }

    #[tokio::test]
    async fn h11_late_response_without_middleware_is_cut_off() {
        let response = request(router(), "GET /slow", SHORT).await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.contains("\r\nx-content-type-options: nosniff\r\n"), "{response}");
    }

    #[tokio::test]
    async fn panic_is_reported_as_500() {
        let wrapped = router().layer(axum::middleware::from_fn(respond::<TestProblem>));
        let response = request(wrapped, "GET /x", LONG).await;
        assert!(response.starts_with("HTTP/1.1 500 "), "{response}");
        assert!(response.ends_with("which was logged.\n"), "{response}");
    }

    #[tokio::test]
    async fn wrong_method_lists_the_allowed_ones() {
        let wrapped = router()
            .method_not_allowed_fallback(async || TestProblem::from(CommonProblem::WrongMethod))
            .layer(axum::middleware::from_fn(respond::<TestProblem>));
        let response = request(wrapped, "DELETE /x", LONG).await;
        assert!(response.contains("\r\nallow: GET,HEAD\r\n"), "{response}");
    }
}
