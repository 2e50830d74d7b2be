//! A service as clients see it.
//!
//! [`Visitor`] sends requests over a real connection; [`browser`] checks pages; [`schemathesis`]
//! generates requests from the OpenAPI document.

#![allow(clippy::panic, clippy::expect_used, reason = "a test stops at the first surprise")]

pub mod browser;
pub mod schemathesis;

use std::net::SocketAddr;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, IntoUrl, Method, RequestBuilder, Response, StatusCode};

/// Begins a client. Not by `Client::builder`, which panics in a process without a provider for TLS.
pub fn builder() -> ClientBuilder {
    // Fails if there is a provider, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
}

/// Returns a client with its defaults.
pub fn client() -> Client {
    builder().build().expect("a client")
}

/// Sends one GET request.
pub async fn get(url: impl IntoUrl) -> reqwest::Result<Response> {
    client().get(url).send().await
}

/// A client of one service that follows no redirect and keeps no connection: the service closes idle
/// ones, perhaps in the instant in which the next request is sent.
#[non_exhaustive]
pub struct Visitor {
    pub address: SocketAddr,
    pub http: Client,
}

impl Visitor {
    pub fn to(address: SocketAddr) -> Self {
        let http = builder().redirect(Policy::none()).pool_max_idle_per_host(0);
        Self { address, http: http.build().expect("a client") }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }
}

/// Returns everything about a response except its date.
pub async fn whole(response: Response) -> (StatusCode, Vec<(String, String)>, String) {
    let mut headers: Vec<(String, String)> = response
        .headers()
        .iter()
        .filter(|(name, _)| *name != "date")
        .map(|(name, value)| (name.to_string(), value.to_str().expect("plain text").to_owned()))
        .collect();
    headers.sort();
    (response.status(), headers, response.text().await.expect("a body"))
}
