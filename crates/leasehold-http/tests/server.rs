//! The server as clients see it, on a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use leasehold_http::server::{ServerLimits, serve_within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Longer than any slow machine needs.
const LONG: Duration = Duration::from_secs(600);

async fn start(limits: ServerLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/healthz", get(async || "ok"));
    tokio::spawn(serve_within(listener, router, limits, std::future::pending()));
    address
}

/// Fails the test if `work` does not end by itself.
async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    let limited = tokio::time::timeout(Duration::from_secs(120), work);
    limited.await.unwrap_or_else(|_| panic!("{what} does not end"))
}

/// Returns the response on a new connection from this address; empty if the connection was closed.
async fn health(from: [u8; 4], to: SocketAddr) -> String {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut response = String::new();
    // On a closed connection either the write or the read may fail.
    if stream.write_all(request).await.is_ok() {
        let _ = stream.read_to_string(&mut response).await;
    }
    response
}

#[tokio::test]
async fn h22_one_address_cannot_hold_all_connections() {
    let limits = ServerLimits { head: LONG, connections_per_address: 4, ..ServerLimits::default() };
    let address = start(limits).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    // One more is closed, and another address is served.
    let mut more = TcpStream::connect(address).await.unwrap();
    let mut response = Vec::new();
    ends("a connection too many", more.read_to_end(&mut response)).await.ok();
    assert!(response.is_empty());
    // Other systems have one loopback address.
    if cfg!(target_os = "linux") {
        let other = ends("another address", health([127, 0, 0, 2], address)).await;
        assert!(other.starts_with("HTTP/1.1 200 "), "{other:?}");
    }
    drop(idle);
    // The address may connect again when its connections have ended.
    ends("the same address", async {
        while !health([127, 0, 0, 1], address).await.starts_with("HTTP/1.1 200 ") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
