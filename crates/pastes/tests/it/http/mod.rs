//! The service as clients see it: a real listener, real requests.

mod bounds;
mod cache;
mod create;
mod files;
mod flood;
mod forms;
mod hostile;
mod moderation;
mod names;
mod operator;
mod pages;
mod read;
mod replay;
mod schema;

use std::ops::Deref;
use std::time::Duration;

use leasehold_testing::http::Visitor;
use pastes::http::ServerLimits;
use pastes::{Limits, Settings, ShortCode};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::fixture::{self, Fixture};

pub use leasehold_testing::http::whole;

/// The Accept header of a browser.
pub const BROWSER: &str = "text/html,application/xhtml+xml,*/*;q=0.8";

/// A service that listens.
pub struct Site {
    pub fixture: Fixture,
    visitor: Visitor,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    pub serving: Option<JoinHandle<()>>,
}

/// Settings without rate limits; nothing uploads unless the test runs a worker.
pub fn settings() -> Settings {
    let limits = Limits { creates_per_second: 0, reads_per_second: 0, ..Limits::default() };
    Settings { limits, ..fixture::settings() }
}

/// Limits that even a slow machine does not reach.
pub fn long_limits() -> ServerLimits {
    let long = Duration::from_secs(600);
    ServerLimits {
        head: long,
        body: long,
        request: long,
        stall: long,
        grace: long,
        ..ServerLimits::default()
    }
}

impl Deref for Site {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl Site {
    pub async fn new() -> Self {
        Self::with(settings(), long_limits()).await
    }

    pub async fn with(mut settings: Settings, limits: ServerLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        settings.base_url = format!("http://{address}");
        let fixture = Fixture::with(settings).await;
        let router = pastes::router(fixture.pastes.clone());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(pastes::http::serve_within(listener, router, limits, async {
            let _ = stopped.await;
        }));
        Self { fixture, visitor: Visitor::to(address), stop: Some(stop), serving: Some(serving) }
    }

    /// Creates a paste as curl does, and returns its code.
    pub async fn make(&self, query: &str, content: impl Into<reqwest::Body>) -> ShortCode {
        let response = self.post(&format!("/{query}")).body(content).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        self.code_of(&response.text().await.unwrap())
    }

    /// Like `make`, and uploads the paste.
    pub async fn ready(&self, query: &str, content: impl Into<reqwest::Body>) -> ShortCode {
        let code = self.make(query, content).await;
        self.fixture.work().await;
        code
    }

    /// Returns the code in a response of `URL\n`.
    pub fn code_of(&self, response: &str) -> ShortCode {
        let code = response.strip_prefix(&self.url("/")).unwrap().strip_suffix('\n').unwrap();
        code.parse().unwrap()
    }

    /// Opens a raw TCP connection.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes as they are and reads until the server closes.
    pub async fn speak(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        listen(&mut stream).await
    }

    pub fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }
}

/// Reads until the other side closes or resets the connection.
pub async fn listen(stream: &mut TcpStream) -> String {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut piece).await {
        received.extend_from_slice(&piece[..length]);
    }
    String::from_utf8_lossy(&received).into_owned()
}

pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap_or_else(|| panic!("no {name} in {headers:?}")).to_str().unwrap()
}
