//! Listens, counts connections, and closes those that stall.
//!
//! # What is true
//! - A client has a time limit for its request's head, for the body, and for taking the response; an
//!   idle connection is closed.
//! - The number of open connections is limited. Beyond that, clients wait in the system's accept
//!   queue until another connection ends. One address may have only some of them; further ones are
//!   closed at once.
//! - A client must take a response at a minimum speed, and whole within a time limit: see
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

use crate::answers;
use crate::connections::Connections;
use crate::frame::RequestDeadline;
use crate::stall::{Answers, Stalling, Timed};

pub use crate::connections::ServerLimits;

/// How long a router's own frame has to report a late response, before the connection does.
const FRAME_FIRST: Duration = Duration::from_secs(1);

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
    let places = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let limits = Arc::new(limits);
    let addresses = Arc::new(Connections::new(limits.connections_per_address));
    let graceful = GracefulShutdown::new();
    let http = connection(&limits);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // A permit first: connections that we cannot serve stay in the system's queue.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (accept(&listener).await, place)
        };
        let ((stream, peer), place) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        // Dropped, and so closed: a response would cost us exactly what such a client wants us to
        // spend.
        let Some(entered) = addresses.enter(peer.ip()) else { continue };
        let answers = Answers::default();
        let io = TokioIo::new(Stalling::new(stream, &limits, answers.clone()));
        let service = Connection {
            router: TowerToHyperService::new(router.clone()),
            peer,
            limits: Arc::clone(&limits),
            answers,
        };
        let connection = graceful.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            // A client that disconnects is no error of ours.
            let _ = connection.await;
            drop((place, entered));
        });
    }
    drop(listener);
    if tokio::time::timeout(limits.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still running at the end of the grace time and are given up");
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
            Err(error) if gone_already(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections just now; trying again");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Returns true if the client disconnected before we accepted it.
fn gone_already(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The router for one connection: it adds the peer's address and the time limits to each request.
struct Connection {
    router: TowerToHyperService<Router>,
    peer: SocketAddr,
    limits: Arc<ServerLimits>,
    answers: Answers,
}

impl Service<hyper::Request<Incoming>> for Connection {
    type Response = Response;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let body_limit = self.limits.body;
        let mut request = request.map(|body| Timed::body(body, body_limit));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        request.extensions_mut().insert(RequestDeadline(self.limits.request));
        let answering = self.router.call(request);
        let deadline = self.limits.request + FRAME_FIRST;
        let answers = self.answers.clone();
        Box::pin(async move {
            let answered = tokio::time::timeout(deadline, answering).await;
            answers.begin();
            match answered {
                Ok(answered) => answered,
                Err(_) => Ok(too_late()),
            }
        })
    }
}

/// For routers without a [`crate::frame`], which would report the service's own failure.
fn too_late() -> Response {
    let mut response = answers::plain("the answer took too long\n");
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    crate::headers::guard(response.headers_mut(), false);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failures::{self, IntoProblem, ProblemDetails};
    use crate::frame::answered;
    use axum::response::IntoResponse;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    enum Failure {
        Late,
        Broken,
    }

    impl IntoResponse for Failure {
        fn into_response(self) -> Response {
            failures::carry(self)
        }
    }

    impl IntoProblem for Failure {
        fn problem(&self) -> ProblemDetails {
            match self {
                Self::Late => {
                    ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, "late", "Come back later.")
                }
                Self::Broken => {
                    ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, "broken", "Noted.")
                }
            }
        }

        fn page(told: &ProblemDetails) -> bytes::Bytes {
            format!("<p>{}", told.detail).into()
        }

        fn timed_out() -> Self {
            Self::Late
        }

        fn broken() -> Self {
            Self::Broken
        }
    }

    const SHORT: Duration = Duration::from_millis(10);
    /// Longer than any slow machine needs.
    const LONG: Duration = Duration::from_secs(600);

    /// Returns the raw response of a server with this router and this time limit for requests.
    async fn hear(router: Router, request: &str, deadline: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let limits = ServerLimits { head: LONG, request: deadline, ..ServerLimits::default() };
        let serving = tokio::spawn(serve_within(listener, router, limits, std::future::pending()));
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut heard = String::new();
        let reading = stream.read_to_string(&mut heard);
        tokio::time::timeout(Duration::from_secs(60), reading)
            .await
            .expect("an end in time")
            .expect("an answer");
        serving.abort();
        heard
    }

    fn router() -> Router {
        async fn broken() -> Response {
            panic!("a defect")
        }
        Router::new().route("/slow", get(std::future::pending::<Response>)).route("/x", get(broken))
    }

    #[tokio::test]
    async fn h11_a_late_answer_is_told_in_the_words_of_the_service() {
        let framed = router().layer(axum::middleware::from_fn(answered::<Failure>));
        let heard = hear(framed, "GET /slow", SHORT).await;
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        assert!(heard.ends_with("Come back later.\n"), "{heard}");
    }

    #[tokio::test]
    async fn h11_an_answer_that_nobody_watches_is_cut_off_too() {
        let heard = hear(router(), "GET /slow", SHORT).await;
        assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
        assert!(heard.contains("\r\nx-content-type-options: nosniff\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn a_panic_is_a_500_and_a_method_that_is_not_taken_names_those_that_are() {
        async fn wrong_method() -> Failure {
            Failure::Late
        }
        let framed = router()
            .method_not_allowed_fallback(wrong_method)
            .layer(axum::middleware::from_fn(answered::<Failure>));
        let heard = hear(framed.clone(), "GET /x", LONG).await;
        assert!(heard.starts_with("HTTP/1.1 500 ") && heard.ends_with("Noted.\n"), "{heard}");
        let heard = hear(framed, "DELETE /x", LONG).await;
        assert!(heard.contains("\r\nallow: GET,HEAD\r\n"), "{heard}");
    }
}
