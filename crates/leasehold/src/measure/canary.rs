//! The canary: a job a minute that does nothing.
//!
//! # What is true
//! - Producers send it, so a queue whose producer is gone falls silent even when nobody needs it for
//!   the moment; every worker knows how to complete it, so a queue whose consumer is gone does too.
//! - At most one waits in a queue, however many producers there are and however long nobody comes: it
//!   carries a key, and the key is taken while the job waits.

use std::time::Duration;

use crate::engine::Leasehold;
use crate::error::EnqueueError;
use crate::queue::enqueue::{Draft, EnqueueOn};

/// The name of its jobs. Workers know it without being told.
pub const NAME: &str = "leasehold.canary";

/// How long its key is taken: a little less than a minute, so that one comes in every minute.
const HOLDS: Duration = Duration::from_secs(50);
const EVERY: Duration = Duration::from_secs(20);

/// Sends canaries to the queues that a producer fills.
#[must_use = "a canary does nothing until it is run"]
pub struct Canary {
    engine: Leasehold,
    queues: Vec<String>,
}

impl Leasehold {
    /// A canary for the queues that this process enqueues to. Let it run as long as the producer does,
    /// and in the same process: it says that the producer is there.
    pub fn canary<Q: Into<String>>(&self, queues: impl IntoIterator<Item = Q>) -> Canary {
        Canary { engine: self.clone(), queues: queues.into_iter().map(Into::into).collect() }
    }
}

impl Canary {
    /// Sends one to each queue where none has been sent within the minute. Says how many it sent.
    pub async fn send_once(&self) -> Result<usize, EnqueueError> {
        let mut sent = 0;
        for queue in &self.queues {
            let mut draft = Draft::untyped(NAME, &serde_json::json!({}))?;
            draft.queue = queue.clone();
            draft.tag = NAME.to_owned();
            draft.key = Some(NAME.to_owned());
            draft.key_for = HOLDS;
            sent += usize::from((&self.engine).enqueue_one(draft).await?.is_new());
        }
        Ok(sent)
    }

    /// Sends them until `stop` is ready. A database that is away is what the alarm is for: it says so
    /// by the canaries that do not come.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let sending = async {
            loop {
                if let Err(error) = self.send_once().await {
                    tracing::debug!(%error, "a canary could not be sent; trying again");
                }
                tokio::time::sleep(EVERY.mul_f64(rand::random_range(0.8..=1.0))).await;
            }
        };
        tokio::select! {
            () = sending => {}
            () = stop => {}
        }
    }
}
