//! The HTTP worker: hands a job to a receiver as one signed POST.
//!
//! # What is true
//! - A job is done when the receiver has answered 2xx, in full and in time. See [`super::answer`].
//! - No redirects, no proxies from the environment, no cookies; where it may connect to is decided
//!   in [`super::egress`].
//! - An answer takes at most its time limit and 64 KiB; the rest is not read.
//!
//! # What can go wrong
//! - The answer is lost: the job is sent again with the same `leasehold-idempotency-key`. A
//!   receiver that keeps the key, or refuses an older `leasehold-fence`, sees the effect once.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::{Ctx, JobError, JobResult};
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};

use super::answer::judge;
use super::egress::Gate;
use super::job;
use super::sign::Secret;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const BODY_LIMIT: usize = 64 * 1024;
/// How much of it goes into the error text.
const QUOTED: usize = 512;

/// A client that can reach nothing but what the gate lets through.
pub fn client(gate: Gate) -> reqwest::Result<Client> {
    Client::builder()
        .dns_resolver(Arc::new(gate))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_LIMIT)
        .pool_idle_timeout(Duration::from_secs(30))
        .user_agent(concat!("leasehold/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Where the jobs of one name go.
pub struct Receiver {
    pub url: Url,
    pub client: Client,
    pub secret: Arc<Secret>,
    pub limit: Duration,
}

impl Receiver {
    /// Hands one job over. Gives up when the job should stop: the connection is closed.
    pub async fn deliver(&self, ctx: Ctx) -> JobResult {
        let body = job::to_json(&ctx)?;
        let timestamp = Timestamp::now().as_second();
        let signature = self.secret.sign(timestamp, &body);
        let exchange = self.exchange(&ctx, timestamp, &signature, body);
        tokio::select! {
            answer = tokio::time::timeout(self.limit, exchange) => match answer {
                Ok(result) => result,
                Err(_) => Err(JobError::retry(format!(
                    "the receiver gave no full answer within {} s", self.limit.as_secs_f64()
                ))),
            },
            reason = ctx.stopped() => {
                Err(JobError::retry(format!("the request was given up: {reason:?}")))
            }
        }
    }

    async fn exchange(
        &self,
        ctx: &Ctx,
        timestamp: i64,
        signature: &str,
        body: Vec<u8>,
    ) -> JobResult {
        // Debug output of requests leaves sensitive headers out.
        let mut sensitive = HeaderValue::from_str(signature)?;
        sensitive.set_sensitive(true);
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("leasehold-job-id", ctx.id().0)
            .header("leasehold-attempt", ctx.attempt())
            .header("leasehold-generation", ctx.generation().0)
            .header("leasehold-fence", job::fence_text(ctx.fence()))
            .header("leasehold-idempotency-key", job::outside_key(ctx))
            .header("leasehold-timestamp", timestamp)
            .header("leasehold-signature", sensitive)
            .body(body);
        if let Some(Ok(trace)) = ctx.trace_context().map(HeaderValue::from_str) {
            request = request.header("traceparent", trace);
        }
        let failed = |error| JobError::retry(self.secret.cut_from(&describe(error), signature));
        let answer = request.send().await.map_err(failed)?;
        let status = answer.status().as_u16();
        let after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.map(str::to_owned);
        let body = read(answer).await.map_err(failed)?;
        let body = self.secret.cut_from(&String::from_utf8_lossy(&body), signature);
        let start: String = body.chars().take(QUOTED).collect();
        judge(status, after.as_deref(), &start, Timestamp::now())
    }
}

/// The body, as far as it is read.
async fn read(mut answer: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        let room = BODY_LIMIT - body.len();
        body.extend_from_slice(part.get(..room).unwrap_or(&part));
        if body.len() >= BODY_LIMIT {
            break;
        }
    }
    Ok(body)
}

/// What happened, without the URL: its query may hold a token.
fn describe(error: reqwest::Error) -> String {
    causes("the receiver could not be reached", &error.without_url())
}

/// The error and its causes in one line.
pub fn causes(what: &str, error: &reqwest::Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(": ");
        text.push_str(&source.to_string());
        cause = source.source();
    }
    text
}
