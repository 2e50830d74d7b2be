//! Limits: how many jobs of one limit key run at the same time in the whole fleet, how many start per time and
//! how many wait, and in which order.
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

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use crate::backoff::RECONNECT;
use crate::error::{AdminError, CallError};
use crate::link::Link;

/// What a job that waits for its next attempt does to those behind it, in an ordered key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFailure {
    /// They wait until it is completed, cancelled or dead.
    #[default]
    Block,
    /// They start meanwhile.
    Pass,
}

impl OnFailure {
    /// Returns the word of the choice.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Pass => "pass",
        }
    }
}

/// What the death of a job does to an ordered key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnDeath {
    /// The next job starts.
    #[default]
    Continue,
    /// None starts until the dead job is redriven or deleted.
    Stop,
}

impl OnDeath {
    /// Returns the word of the choice.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Stop => "stop",
        }
    }
}

/// How many jobs of a limit key run, wait and start per time, and in which order, in all workers together.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold::Limit;
///
/// // Three jobs of each tenant, and at most 100 starts per minute: for keys such as tenant:7.
/// let limit = Limit::new("tenant").max_running(3).rate(100, Duration::from_secs(60)).burst(20);
/// assert_eq!(limit.key, "tenant");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// A limit key, or the text before the first `:` of many. Empty: the whole queue.
    pub key: String,
    /// The key is a name of jobs: those without a limit key get it.
    pub by_name: bool,
    /// The most jobs of one key that run at the same time. `None`: any number.
    pub max_running: Option<i32>,
    /// How many jobs a key gets for one job of a key with weight 1.
    pub weight: i32,
    /// How many jobs of one key start per time. `None`: any number.
    pub rate: Option<(i32, Duration)>,
    /// How many jobs start at once before the rate holds them back. `None`: 1.
    pub burst: Option<i32>,
    /// One job of one key at a time, in order.
    pub ordered: bool,
    /// Whether a job that waits for its next attempt blocks those behind it.
    pub on_failure: OnFailure,
    /// Whether a dead job stops its key.
    pub on_death: OnDeath,
    /// The most jobs of one key that wait. `None`: any number.
    pub max_waiting: Option<i32>,
    /// A job is due after this time without another enqueue of its key.
    pub debounce: Option<Duration>,
    /// A debounced job is due at the latest this long after its first enqueue. `None`: ten times `debounce`.
    pub debounce_max: Option<Duration>,
    /// An enqueue this soon after another one of its key stores nothing.
    pub throttle: Option<Duration>,
}

impl Limit {
    /// Names the key, or the text before the first `:` of many keys.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            by_name: false,
            max_running: None,
            weight: 1,
            rate: None,
            burst: None,
            ordered: false,
            on_failure: OnFailure::Block,
            on_death: OnDeath::Continue,
            max_waiting: None,
            debounce: None,
            debounce_max: None,
            throttle: None,
        }
    }

    /// For all jobs of a name together that have no limit key of their own.
    pub fn of_name(name: impl Into<String>) -> Self {
        Self { by_name: true, ..Self::new(name) }
    }

    /// For all jobs of the queue together: `max_running`, `rate` and `max_waiting`.
    pub fn of_queue() -> Self {
        Self::new("")
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

    /// How many jobs of one key start per time, by the clock of the database. Each start counts, of retries
    /// too. Default: any number.
    pub fn rate(mut self, jobs: i32, per: Duration) -> Self {
        self.rate = Some((jobs, per));
        self
    }

    /// How many jobs start at once before the rate holds them back. Default: 1.
    pub fn burst(mut self, jobs: i32) -> Self {
        self.burst = Some(jobs);
        self
    }

    /// One job of one key at a time, in order of priority and due time: jobs without either run in the order of
    /// their enqueues. A job that has started blocks those behind it until it is completed, cancelled or dead.
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Whether a job that waits for its next attempt blocks those behind it. Default: it does.
    pub fn on_failure(mut self, choice: OnFailure) -> Self {
        self.on_failure = choice;
        self
    }

    /// Whether a dead job stops its ordered key. Default: it does not.
    pub fn on_death(mut self, choice: OnDeath) -> Self {
        self.on_death = choice;
        self
    }

    /// The most jobs of one key that wait: an enqueue of one more returns
    /// [`EnqueueError::Full`](crate::EnqueueError::Full). Producers that enqueue at the same time may exceed it by
    /// what they enqueue; a plain INSERT and COPY are not counted. Default: any number.
    pub fn max_waiting(mut self, jobs: i32) -> Self {
        self.max_waiting = Some(jobs);
        self
    }

    /// A job is due after this time without another enqueue of its key; each enqueue replaces the kwargs of
    /// the job that waits. One job of the key runs at a time.
    pub fn debounce(mut self, wait: Duration) -> Self {
        self.debounce = Some(wait);
        self
    }

    /// A debounced job is due at the latest this long after its first enqueue. Default: ten times the wait.
    pub fn debounce_max(mut self, most: Duration) -> Self {
        self.debounce_max = Some(most);
        self
    }

    /// An enqueue this soon after another one of its key stores nothing, and returns that job.
    pub fn throttle(mut self, time: Duration) -> Self {
        self.throttle = Some(time);
        self
    }

    /// Returns an error for a value that the database would refuse. It checks what a program most often gets
    /// wrong; the database checks the rest.
    pub fn check(&self) -> Result<(), LimitError> {
        let wrong = |what, value: i64, most| Err(LimitError { what, value, most });
        for (what, value) in [
            ("max_running", self.max_running),
            ("rate", self.rate.map(|rate| rate.0)),
            ("burst", self.burst),
            ("max_waiting", self.max_waiting),
        ] {
            if let Some(jobs) = value.filter(|jobs| !(1..=1_000_000).contains(jobs)) {
                return wrong(what, jobs.into(), 1_000_000);
            }
        }
        if !(1..=100).contains(&self.weight) {
            return wrong("weight", self.weight.into(), 100);
        }
        match self.key.len() {
            0..=200 => Ok(()),
            bytes => wrong(
                "the number of bytes of a limit key",
                i64::try_from(bytes).unwrap_or(i64::MAX),
                200,
            ),
        }
    }

    /// The columns of a rule, as `declare_limits` reads them.
    fn columns(&self, queue: &str) -> serde_json::Value {
        let time = |time: Option<Duration>| {
            time.map(|time| format!("{}.{:06} seconds", time.as_secs(), time.subsec_micros()))
        };
        serde_json::json!({
            "queue": queue,
            "key": self.key,
            "by_name": self.by_name,
            "max_running": self.max_running,
            "weight": self.weight,
            "rate": self.rate.map(|rate| rate.0),
            "per": time(self.rate.map(|rate| rate.1)),
            "burst": self.burst,
            "ordered": self.ordered,
            "on_failure": self.on_failure,
            "on_death": self.on_death,
            "max_waiting": self.max_waiting,
            "debounce": time(self.debounce),
            "debounce_max": time(self.debounce_max),
            "throttle": time(self.throttle),
        })
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
    let rules = limits.iter().map(|(queue, limit)| limit.columns(queue)).collect();
    let rules = serde_json::Value::Array(rules).to_string();
    link.query(
        "select leasehold_internal.declare_limits($1, $2::text::jsonb)",
        &[(&worker, Type::TEXT), (&rules, Type::TEXT)],
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
                tenant().rate(0, Duration::from_secs(1)),
                "rate is 0; it must be between 1 and 1000000",
            ),
            (
                Limit::new("x".repeat(201)),
                "the number of bytes of a limit key is 201; it must be between 1 and 200",
            ),
        ] {
            assert_eq!(limit.check().unwrap_err().to_string(), text);
        }
    }
}
