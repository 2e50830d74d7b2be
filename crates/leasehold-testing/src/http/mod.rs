//! A service as clients see it.
//!
//! [`Visitor`] sends requests over a real connection; [`browser`] checks pages; [`schemathesis`]
//! generates requests from the OpenAPI document.

#![allow(clippy::panic, clippy::expect_used, reason = "a test stops at the first surprise")]

pub mod browser;
pub mod schemathesis;

use std::net::SocketAddr;

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};

/// A client of one service that follows no redirect and keeps no connection: the service closes idle
/// ones, perhaps in the instant in which the next request is sent.
pub struct Visitor {
    pub address: SocketAddr,
    pub http: Client,
}

impl Visitor {
    pub fn to(address: SocketAddr) -> Self {
        let http = Client::builder().redirect(Policy::none()).pool_max_idle_per_host(0);
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
