//! How soon a deleted paste disappears from a second node that has just served it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::child::Running;
use super::ours::Ours;
use super::service::Service;
use crate::load::{Answer, Connection, get};
use crate::scratch::Scratch;

/// Longer than any guarantee; a paste that is still there was not deleted.
const LONGEST: Duration = Duration::from_secs(20);

/// Who removes a paste.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Author,
    Operator,
}

/// Microseconds until the second node answers 404.
#[derive(Clone, Debug)]
pub struct Gone {
    pub deleted: Histogram<u64>,
    pub taken_down: Histogram<u64>,
}

pub async fn measure(ours: &Ours, scratch: &Scratch, times: u32) -> Result<Gone> {
    let first = Running::start(ours, &scratch.fresh("node-1")?).await?;
    let second = Running::start(ours, &scratch.fresh("node-2")?).await?;
    let nodes = Nodes { ours, first: first.address, second: second.address };
    let mut gone = Gone { deleted: histogram()?, taken_down: histogram()? };
    for number in 0..times {
        gone.deleted.saturating_record(nodes.once(By::Author, number).await?);
        gone.taken_down.saturating_record(nodes.once(By::Operator, number).await?);
    }
    first.stop().await?;
    second.stop().await?;
    Ok(gone)
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000, 3)?)
}

struct Nodes<'a> {
    ours: &'a Ours,
    first: SocketAddr,
    second: SocketAddr,
}

impl Nodes<'_> {
    /// Creates a paste, reads it on the second node and removes it on the first. Returns the
    /// microseconds until the second node answers 404.
    async fn once(&self, by: By, number: u32) -> Result<u64> {
        let (mut near, mut far) = (Connection::new(self.first), Connection::new(self.second));
        let text = format!("{by:?} {number} {:016x}", rand::random::<u64>());
        let made = near.ask(&self.request("POST", "/", &[], &text)).await?;
        ensure!(made.status == 201, "a create is answered with {}", made.status);
        let code = self.ours.created(&made)?;
        let read = get(self.second, &self.ours.raw(&code));
        // Afterwards the second node caches both the raw text and the page.
        until(&mut far, &read, 200).await?;
        until(&mut far, &get(self.second, &self.ours.page(&code)), 200).await?;

        let removal = match by {
            By::Author => {
                let token = made.header("x-delete-token").context("no delete token")?.to_owned();
                self.request("DELETE", &format!("/api/v1/pastes/{code}"), &[bearer(&token)], "")
            }
            By::Operator => {
                let body = serde_json::json!({ "code": code, "reason": "benchmark" }).to_string();
                let json = "Content-Type: application/json".to_owned();
                let token = bearer(&self.ours.operator_token);
                self.request("POST", "/api/v1/takedowns", &[token, json], &body)
            }
        };
        let removed = near.ask(&removal).await?;
        ensure!(
            removed.status / 100 == 2,
            "{by:?}: the removal is answered with {}",
            said(&removed)
        );
        let since = Instant::now();
        until(&mut far, &read, 404).await?;
        Ok(u64::try_from(since.elapsed().as_micros())?.max(1))
    }

    fn request(&self, method: &str, path: &str, headers: &[String], body: &str) -> Vec<u8> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.first);
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        text.into_bytes()
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

fn said(answer: &Answer) -> String {
    format!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body))
}

/// Repeats a request until the response has this status.
async fn until(connection: &mut Connection, request: &[u8], status: u16) -> Result<()> {
    let deadline = Instant::now() + LONGEST;
    loop {
        let answer = connection.ask(request).await?;
        if answer.status == status {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "still {} instead of {status}", said(&answer));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
