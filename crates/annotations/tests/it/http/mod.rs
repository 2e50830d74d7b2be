//! The service over HTTP: a real listener, real requests.

mod api;
mod bounds;
mod errors;
mod hostile;
mod members;
mod openapi;
mod origins;
mod pages;
mod schema;
mod versions;

use std::ops::Deref;

use annotations::{Settings, Token};
use leasehold_testing::http::Visitor;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::fixture::{Fixture, PAGE, patient, settings};

pub use leasehold_testing::http::whole;

/// A service that listens.
pub struct Site {
    pub fixture: Fixture,
    visitor: Visitor,
}

impl Deref for Site {
    type Target = Visitor;

    fn deref(&self) -> &Visitor {
        &self.visitor
    }
}

impl Site {
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(mut settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        settings.base_url = format!("http://{address}");
        let fixture = Fixture::with(settings).await;
        let router = annotations::router(fixture.notes.clone());
        let stop = std::future::pending();
        tokio::spawn(annotations::http::serve_within(listener, router, patient(), stop));
        Self { fixture, visitor: Visitor::to(address) }
    }

    /// Builds a search with these parameters.
    pub fn search(&self, values: &[(&str, &str)]) -> RequestBuilder {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(values);
        self.get(&format!("/api/search?{}", query.finish()))
    }

    /// Creates an account and returns its token.
    pub async fn token(&self, name: &str) -> String {
        let response = self.post("/api/users").json(&json!({ "name": name })).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        response.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    }

    /// Opens a session with a token, and returns the cookie of its browser.
    pub async fn cookie(&self, token: &str) -> String {
        let token = Token::parse(token).unwrap();
        let session = self.fixture.notes.log_in(&token).await.unwrap().unwrap();
        format!("notes={}", session.as_str())
    }

    /// Saves a note and returns the response.
    pub async fn save(&self, token: &str, body: &Value) -> Value {
        let response =
            self.post("/api/annotations").bearer_auth(token).json(body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        response.json().await.unwrap()
    }
}

/// A note about a passage.
pub fn note(text: &str) -> Value {
    json!({
        "@context": "http://www.w3.org/ns/anno.jsonld",
        "type": "Annotation",
        "target": {
            "source": PAGE,
            "selector": [
                { "type": "TextQuoteSelector", "exact": "added it up", "prefix": "Don Quixote ", "suffix": "," },
                { "type": "TextPositionSelector", "start": 12, "end": 23 },
            ],
        },
        "body": [{ "type": "TextualBody", "value": text, "purpose": "commenting" }],
    })
}
