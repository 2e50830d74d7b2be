//! The canary: one job per minute that does nothing.
//!
//! # Invariants
//! - Producers send it, so completions stop when a queue's producers are gone, even if the queue has no
//!   real jobs at the moment. Every worker can complete it, so completions also stop when the queue's
//!   workers are gone.
//! - At most one waits per queue, however many producers there are and however long no worker claims
//!   it: it carries a key, and the key is taken while the job waits.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::Leasehold;
use crate::error::EnqueueError;
use crate::events::Events;
use crate::queue::enqueue::{Draft, EnqueueOn};
use crate::service::{Duty, Service, run_every};

/// The name of its jobs. Every worker handles it without a declaration.
pub const NAME: &str = "leasehold.canary";

/// How long its key is taken: a little less than a minute, so that each minute gets one.
const HOLDS: Duration = Duration::from_secs(50);
const EVERY: Duration = Duration::from_secs(20);

/// Sends canaries to the queues that a producer fills.
#[must_use = "a canary does nothing until it is run"]
pub struct Canary {
    engine: Leasehold,
    queues: Vec<String>,
}

impl Leasehold {
    /// Returns a canary for the queues that this process enqueues to. Run it as long as the producer
    /// runs, and in the same process: it proves that the producer runs.
    pub fn canary<Q: Into<String>>(&self, queues: impl IntoIterator<Item = Q>) -> Canary {
        Canary { engine: self.clone(), queues: queues.into_iter().map(Into::into).collect() }
    }
}

impl Canary {
    /// Sends one to each queue that got none within the minute. Returns how many it sent.
    pub async fn send_once(&self) -> Result<usize, EnqueueError> {
        let mut sent = 0;
        for queue in &self.queues {
            let mut draft = Draft::untyped(NAME, &serde_json::json!({}))?;
            draft.queue = queue.clone();
            draft.tag = NAME.to_owned();
            draft.key = Some(NAME.to_owned());
            draft.key_ttl = HOLDS;
            sent += usize::from((&self.engine).enqueue_one(draft).await?.is_new());
        }
        Ok(sent)
    }

    /// Sends canaries until `stop` is ready. It logs errors and tries again: if the database is down, the
    /// missing canaries raise the alarm.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        // A canary that is under way when the process stops need not arrive.
        let never = CancellationToken::new();
        let duty = Duty::new("send canaries", &Events::default());
        tokio::select! {
            () = run_every(self, duty, EVERY, &never) => {}
            () = stop => {}
        }
    }
}

impl Service for Canary {
    type Error = EnqueueError;

    async fn turn(&mut self) -> Result<(), EnqueueError> {
        self.send_once().await.map(drop)
    }
}
