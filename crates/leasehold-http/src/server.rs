//! Listening: connections are counted, and none of them can hold on for ever.
//!
//! # What is true
//! - A client has so long to send its request's head, so long for the body, and so long to take the
//!   answer; a connection that does nothing is closed.
//! - At most so many connections are open. Beyond that, clients wait in the system's own queue until
//!   one of the others ends.
//! - HTTP/1.1 only: streams that are opened and reset by the thousand do not exist here.
//! - A stop lets running requests end, and takes no new ones.
//!
//! # What can go wrong
//! - No file descriptor is left: accepting pauses and goes on.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::patience::{Stalling, Timed};

/// What a connection may cost.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// From the first wait for a request to the end of its head; also how long a connection may idle.
    /// Default: 10 s.
    pub head: Duration,
    /// From the end of the head to the end of the body. Default: 30 s.
    pub body: Duration,
    /// From the end of the head to the beginning of the answer. Default: 60 s.
    pub request: Duration,
    /// How long a client may take nothing of an answer. Default: 30 s.
    pub stall: Duration,
    /// How long running requests have after a stop. Default: 20 s.
    pub grace: Duration,
    /// Default: 1024.
    pub connections: usize,
    /// Bytes of a request's head. Default: 16 KiB.
    pub head_bytes: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            request: Duration::from_secs(60),
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(20),
            connections: 1024,
            head_bytes: 16 * 1024,
        }
    }
}

/// How a service answers when its own answer took too long.
pub trait Late: Send + Sync + 'static {
    /// The form in which the client reads.
    type Face: Send + 'static;

    fn face(path: &str, headers: &HeaderMap) -> Self::Face;
    fn answer(face: Self::Face) -> Response;
}

/// Serves until `stop` is ready, then lets running requests end.
pub async fn serve_within<L: Late>(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
    let limits = Arc::new(limits);
    let graceful = GracefulShutdown::new();
    let http = connection(&limits);
    let mut stop = pin!(stop);
    loop {
        let accepted = async {
            // A place first: what we cannot serve stays in the system's queue.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (accept(&listener).await, place)
        };
        let ((stream, peer), place) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => accepted,
        };
        let io = TokioIo::new(Stalling::new(stream, limits.stall));
        let service = Connection::<L> {
            router: TowerToHyperService::new(router.clone()),
            peer,
            limits: Arc::clone(&limits),
            late: PhantomData,
        };
        let connection = graceful.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            // A client that breaks off is none of our troubles.
            let _ = connection.await;
            drop(place);
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

/// Accepts, and rides out shortages.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it small answers wait; a system that refuses is only slower.
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

/// The client went away between its call and ours.
fn gone_already(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The router for one connection: it learns who calls, and how long that may take.
struct Connection<L> {
    router: TowerToHyperService<Router>,
    peer: SocketAddr,
    limits: Arc<ServerLimits>,
    late: PhantomData<fn() -> L>,
}

impl<L: Late> Service<hyper::Request<Incoming>> for Connection<L> {
    type Response = Response;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let face = L::face(request.uri().path(), request.headers());
        let body_limit = self.limits.body;
        let mut request = request.map(|body| Timed::body(body, body_limit));
        request.extensions_mut().insert(ConnectInfo(self.peer));
        let answering = self.router.call(request);
        let patience = self.limits.request;
        Box::pin(async move {
            match tokio::time::timeout(patience, answering).await {
                Ok(answered) => answered,
                Err(_) => Ok(guarded(L::answer(face))),
            }
        })
    }
}

fn guarded(mut response: Response<Body>) -> Response<Body> {
    crate::headers::guard(response.headers_mut(), false);
    response
}
