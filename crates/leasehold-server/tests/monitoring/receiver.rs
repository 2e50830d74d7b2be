//! A receiver of alarm notifications on loopback, which keeps what it gets.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A received notification: its headers and its job.
pub struct Notification {
    pub headers: HeaderMap,
    pub body: String,
    pub job: Value,
}

impl Notification {
    /// `raised completion_rate_low mail`
    pub fn text(&self) -> String {
        let field = |name: &str| self.job["kwargs"][name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", field("event"), field("rule"), field("subject"))
    }
}

pub struct Receiver {
    pub url: String,
    received: mpsc::UnboundedReceiver<Notification>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/alarms", listener.local_addr().unwrap());
        let (keep, received) = mpsc::unbounded_channel();
        // A sender that timed out sends a notification again, under the same key.
        let known = Arc::new(Mutex::new(HashSet::new()));
        let take = post(move |headers: HeaderMap, body: String| async move {
            let job = serde_json::from_str(&body).unwrap();
            let key = headers["webhook-id"].to_str().unwrap().to_owned();
            if known.lock().unwrap().insert(key) {
                keep.send(Notification { headers, body, job }).unwrap();
            }
        });
        tokio::spawn(async move {
            axum::serve(listener, Router::new().route("/alarms", take)).await.unwrap();
        });
        Self { url, received }
    }

    /// Returns the next notification, within the time limit.
    pub async fn next(&mut self) -> Notification {
        let next = tokio::time::timeout(crate::fixture::LIMIT, self.received.recv());
        next.await.expect("a notification in time").expect("the receiver runs")
    }

    /// Returns the remaining notifications without waiting.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.received.try_recv().ok())
            .map(|notification| notification.text())
            .collect()
    }
}
