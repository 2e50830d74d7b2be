//! A proxy in front of the real OpenSearch: it forwards requests, or treats them as networks and
//! overloaded servers do.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::stream;
use leasehold_testing::PrivateOpenSearch;
use serde_json::{Value, json};

const MOST: usize = 64 << 20;

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Forwarded, and the response is lost.
    LoseAnswer,
    /// Never answered.
    Hang,
    /// Not forwarded; this is the response.
    Status(u16, &'static str),
    /// The items at these positions are not forwarded; each gets this status and error.
    Items(Vec<(usize, u16, Value)>),
    /// Forwarded, and this is the response instead.
    Answer(&'static str),
}

#[derive(Clone, Default)]
struct Script(Arc<Mutex<Plan>>);

#[derive(Default)]
struct Plan {
    next: VecDeque<(&'static str, Fault)>,
    held: Option<Fault>,
}

pub struct FaultProxy {
    pub url: String,
    script: Script,
}

impl FaultProxy {
    /// Opens a proxy to the server of this process.
    pub async fn open() -> Self {
        let script = Script::default();
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let state =
            (script.clone(), PrivateOpenSearch::shared().url(), leasehold_testing::http::client());
        let router = Router::new().fallback(pass).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url: format!("http://{address}"), script }
    }

    /// Applies the fault to the next request whose path contains this. Several faults queue up.
    pub fn next(&self, path: &'static str, fault: Fault) {
        self.script.0.lock().unwrap().next.push_back((path, fault));
    }

    /// Applies the fault to every request, until it is taken away. Queued faults come first.
    pub fn hold(&self, fault: Option<Fault>) {
        self.script.0.lock().unwrap().held = fault;
    }

    /// Returns true while every request meets a fault.
    pub fn is_held(&self) -> bool {
        self.script.0.lock().unwrap().held.is_some()
    }

    /// Returns how many queued faults were not applied yet.
    pub fn left(&self) -> usize {
        self.script.0.lock().unwrap().next.len()
    }
}

type Passing = (Script, String, reqwest::Client);

async fn pass(State((script, url, client)): State<Passing>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    let fault = {
        let mut plan = script.0.lock().unwrap();
        let meets = plan.next.front().is_some_and(|(part, _)| path.contains(part));
        let next = if meets { plan.next.pop_front() } else { None };
        next.map(|(_, fault)| fault).or_else(|| plan.held.clone())
    };
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MOST).await.unwrap();
    let (body, items) = match &fault {
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::Status(status, text)) => return answer(*status, *text),
        Some(Fault::Items(items)) => (without(&body, items), items.as_slice()),
        _ => (body, &[][..]),
    };
    let mut forward = client.request(parts.method, format!("{url}{path}")).body(body);
    if let Some(kind) = parts.headers.get("content-type") {
        forward = forward.header("content-type", kind);
    }
    let passed = forward.send().await.unwrap();
    let status = passed.status().as_u16();
    let bytes = passed.bytes().await.unwrap();
    match &fault {
        Some(Fault::LoseAnswer) => {
            let broken = stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut")) });
            Response::builder().header("content-length", "100").body(Body::from_stream(broken))
        }
        .unwrap(),
        Some(Fault::Answer(text)) => answer(200, *text),
        Some(Fault::Items(_)) => answer(status, with(&bytes, items)),
        _ => answer(status, bytes),
    }
}

fn answer(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// Returns a bulk request of puts, two lines each, without the refused ones.
fn without(body: &Bytes, items: &[(usize, u16, Value)]) -> Bytes {
    let text = std::str::from_utf8(body).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let kept = lines.chunks(2).enumerate().filter(|(at, _)| items.iter().all(|item| item.0 != *at));
    let kept: String = kept.map(|(_, pair)| format!("{}\n{}\n", pair[0], pair[1])).collect();
    kept.into()
}

/// Returns the response to it, with the errors of the refused ones added.
fn with(bytes: &Bytes, items: &[(usize, u16, Value)]) -> String {
    let mut answer: Value = serde_json::from_slice(bytes).unwrap();
    let list = answer["items"].as_array_mut().unwrap();
    for (at, status, error) in items {
        list.insert(*at, json!({ "index": { "status": status, "error": error } }));
    }
    answer["errors"] = json!(true);
    answer.to_string()
}
