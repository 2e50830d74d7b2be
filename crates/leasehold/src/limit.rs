//! Limits: how many jobs of one limit key run at the same time, in the whole fleet.
//!
//! # What is true
//! - A job names its limit key, such as `tenant:7`. The limit of a key is the one that is set for this very
//!   key, else the one for the text before its first `:`. A key without a limit only takes turns.
//! - A worker stores the limits that its code declares before it claims its first job. What an operator set
//!   comes before what code declares.
//! - The database counts and decides. See the functions `limits/claim.sql`.
//!
//! # What can go wrong
//! - Code no longer declares a limit: it stays until `leasehold limits remove --declared` or
//!   [`Limits::retire`](crate::admin::Limits::retire) removes it, because another worker may declare it.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use crate::backoff::RECONNECT;
use crate::error::{AdminError, CallError};
use crate::link::Link;

/// How many jobs of a limit key run at the same time, in all workers together.
///
/// ```
/// use leasehold::Limit;
///
/// // Three jobs of each tenant: for keys such as tenant:7.
/// let limit = Limit::new("tenant").max_running(3);
/// assert_eq!(limit.key, "tenant");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// A limit key, or the text before the first `:` of many.
    pub key: String,
    /// The most jobs of one key that run at the same time. `None`: any number.
    pub max_running: Option<i32>,
    /// How many jobs a key gets for one job of a key with weight 1.
    pub weight: i32,
}

impl Limit {
    /// Names the key, or the text before the first `:` of many keys.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), max_running: None, weight: 1 }
    }

    /// The most jobs of one key that run at the same time, from 1 to 1,000,000. Default: any number.
    pub fn max_running(mut self, jobs: i32) -> Self {
        self.max_running = Some(jobs);
        self
    }

    /// How many jobs a key gets for one job of a key with weight 1, from 1 to 100. Default: 1.
    pub fn weight(mut self, weight: i32) -> Self {
        self.weight = weight;
        self
    }

    /// Returns an error for a value that the database would refuse.
    pub fn check(&self) -> Result<(), LimitError> {
        let wrong = |what, value: i64, most| Err(LimitError { what, value, most });
        match (self.key.len(), self.max_running) {
            (bytes, _) if !(1..=200).contains(&bytes) => wrong(
                "the number of bytes of a limit key",
                i64::try_from(bytes).unwrap_or(i64::MAX),
                200,
            ),
            (_, Some(jobs)) if !(1..=1_000_000).contains(&jobs) => {
                wrong("max_running", jobs.into(), 1_000_000)
            }
            _ if !(1..=100).contains(&self.weight) => wrong("weight", self.weight.into(), 100),
            _ => Ok(()),
        }
    }
}

/// A limit with a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}; it must be between 1 and {most}")]
pub struct LimitError {
    what: &'static str,
    value: i64,
    most: i64,
}

impl From<LimitError> for AdminError {
    fn from(error: LimitError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Stores what a worker declares, by queue. A job must not be claimed before its limit is stored, so this
/// tries again until it succeeds or the worker stops.
pub(crate) async fn declare(
    link: &Link,
    worker: &str,
    limits: &[(String, Limit)],
    stop: &CancellationToken,
) {
    if limits.is_empty() {
        return;
    }
    let mut backoff = RECONNECT.waits();
    while let Err(error) = store(link, worker, limits).await {
        tracing::warn!(%error, "the limits of this worker's jobs are not stored; it claims none before they are");
        let pause: Duration = backoff.next_wait();
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn store(link: &Link, worker: &str, limits: &[(String, Limit)]) -> Result<(), CallError> {
    let queues: Vec<&str> = limits.iter().map(|(queue, _)| queue.as_str()).collect();
    let keys: Vec<&str> = limits.iter().map(|(_, limit)| limit.key.as_str()).collect();
    let most: Vec<Option<i32>> = limits.iter().map(|(_, limit)| limit.max_running).collect();
    let weights: Vec<i32> = limits.iter().map(|(_, limit)| limit.weight).collect();
    link.query(
        "select leasehold_internal.declare_limits($1, $2, $3, $4, $5)",
        &[
            (&worker, Type::TEXT),
            (&queues, Type::TEXT_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&most, Type::INT4_ARRAY),
            (&weights, Type::INT4_ARRAY),
        ],
    )
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_outside_its_bounds_names_the_value() {
        let tenant = || Limit::new("tenant");
        assert_eq!(tenant().max_running(1).weight(100).check(), Ok(()));
        for (limit, text) in [
            (tenant().max_running(0), "max_running is 0; it must be between 1 and 1000000"),
            (tenant().weight(101), "weight is 101; it must be between 1 and 100"),
            (
                Limit::new(""),
                "the number of bytes of a limit key is 0; it must be between 1 and 200",
            ),
        ] {
            assert_eq!(limit.check().unwrap_err().to_string(), text);
        }
    }
}
