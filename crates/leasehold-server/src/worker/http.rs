//! The HTTP worker: sends a job to a receiver as one signed POST.
//!
//! # Invariants
//! - A job is completed when the receiver has answered 2xx, in full and in time. See [`super::answer`].
//! - No redirects, no proxies from the environment, no cookies; [`super::egress`] decides where it may
//!   connect.
//! - A response that is not complete within the timeout is a failure. The worker reads at most 64 KiB of
//!   it.
//!
//! # What can go wrong
//! - The response is lost: the job is sent again with the same `webhook-id`. A receiver that stores the id, or
//!   rejects an older `leasehold-fence`, sees the effect once.

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
/// How much of a response is read.
const BODY_LIMIT: usize = 64 * 1024;
/// How much of it is quoted in the error text.
const QUOTED: usize = 512;

/// Builds a client that connects only to addresses that the gate allows.
pub fn client(gate: Gate) -> reqwest::Result<Client> {
    leasehold_http::tls::use_ring();
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

/// The receiver of the jobs of one name.
pub struct Receiver {
    pub url: Url,
    pub client: Client,
    pub secret: Arc<Secret>,
    pub limit: Duration,
}

impl Receiver {
    /// Delivers one job. When the job should stop, it cancels the request and closes the connection.
    pub async fn deliver(&self, ctx: Ctx) -> JobResult {
        let body = job::to_json(&ctx)?;
        let (id, timestamp) = (job::outside_key(&ctx), Timestamp::now().as_second());
        let signature = self.secret.sign(&id, timestamp, &body);
        let exchange = self.exchange(&ctx, &id, timestamp, &signature, body);
        tokio::select! {
            answer = tokio::time::timeout(self.limit, exchange) => match answer {
                Ok(result) => result,
                Err(_) => Err(JobError::retry(format!(
                    "the receiver did not respond completely within {} s", self.limit.as_secs_f64()
                ))),
            },
            reason = ctx.stopped() => {
                let why = job::stopped_because(reason);
                Err(JobError::retry(format!("the request was cancelled: {why}")))
            }
        }
    }

    async fn exchange(
        &self,
        ctx: &Ctx,
        id: &str,
        timestamp: i64,
        signature: &str,
        body: Vec<u8>,
    ) -> JobResult {
        // Debug output of requests omits sensitive headers.
        let mut sensitive = HeaderValue::from_str(signature)?;
        sensitive.set_sensitive(true);
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("leasehold-job-id", ctx.id().0)
            .header("leasehold-attempt", ctx.attempt())
            .header("leasehold-generation", ctx.generation().0)
            .header("leasehold-fence", job::fence_text(ctx.generation()))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", sensitive)
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

/// Reads the body, up to the limit.
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

/// Describes an error without the URL: its query may hold a token.
fn describe(error: reqwest::Error) -> String {
    causes("the receiver could not be reached", &error.without_url())
}

/// Formats the error and its causes in one line.
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
