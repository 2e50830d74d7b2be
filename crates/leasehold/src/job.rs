//! What a job is: its identity, its typed arguments and the policy of its name.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};

/// The number of a job. It never changes, through retries, death and redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a claim. Every claim gets a new one; it only grows and is never issued twice. Together
/// with the job's id it is the fence that every finish carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub i64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a job, in the same words as the view `leasehold.inbox`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    /// Waits to be claimed, now or later.
    Pending,
    /// Held by a lease.
    Processing,
    /// Dead, kept with its last error until an operator redrives it.
    DeadLetter,
    /// Expired before it started; kept, never run.
    Expired,
    /// Completed.
    Done,
    /// Ended on request.
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Processing,
        Self::DeadLetter,
        Self::Expired,
        Self::Done,
        Self::Cancelled,
    ];

    /// Returns the word of the view `leasehold.inbox`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::DeadLetter => "dead_letter",
            Self::Expired => "expired",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::str::FromStr for JobState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == word).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|state| state.as_str()).collect();
            format!("{word:?} is not a state; use one of {}", known.join(", "))
        })
    }
}

/// Decodes the arguments of a job. A unit struct is stored as `{}`, but serde reads it from `null`.
pub(crate) fn decode<J: DeserializeOwned>(kwargs: &[u8]) -> Result<J, serde_json::Error> {
    match serde_json::from_slice(kwargs) {
        Err(error) if kwargs.trim_ascii() == b"{}" => {
            serde_json::from_slice(b"null").map_err(|_| error)
        }
        read => read,
    }
}

/// A kind of job: a serializable struct with a stable name.
///
/// Usually derived:
/// ```
/// use leasehold::Job;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Job, Serialize, Deserialize)]
/// #[job(name = "email.send", queue = "mail", max_attempts = 8)]
/// struct SendEmail {
///     to: String,
/// }
/// # assert_eq!(SendEmail::NAME, "email.send");
/// ```
///
/// The derive takes `name`, `queue`, `priority`, `max_attempts`, `run_limit` and `backoff`, and
/// refuses what it does not know. A job without a name:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// struct SendEmail {}
/// ```
/// A misspelt option:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", max_attempt = 8)]
/// struct SendEmail {}
/// ```
/// A time without a unit; write `"30s"`:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", run_limit = "30")]
/// struct SendEmail {}
/// ```
/// A back-off without its longest wait; write `"2s..1h"`:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", backoff = "2s")]
/// struct SendEmail {}
/// ```
/// All of them as they should be:
/// ```
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", max_attempts = 8, run_limit = "30s", backoff = "2s..1h")]
/// struct SendEmail {}
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Stored with every job, so renaming the struct orphans no job. Choose it once.
    const NAME: &'static str;
    /// The queue of these jobs unless an enqueue names another one.
    const QUEUE: &'static str = "default";

    /// The policy of every job with this name. Stored with each job as it is enqueued: a change affects
    /// new jobs only, except for `backoff` and `run_limit`, which the worker applies.
    fn policy() -> Policy {
        Policy::default()
    }
}

/// How jobs of one name are treated. `None`: the queue's settings apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Lower runs first. Default: 0.
    pub priority: i32,
    /// How often a job may start before it is buried.
    pub max_attempts: Option<i32>,
    /// The worker gives up a handler that still runs after this time; its attempt counts as failed.
    pub run_limit: Option<Duration>,
    /// How long to wait after a failed attempt.
    pub backoff: Option<Backoff>,
}

impl Policy {
    /// Lower runs first. Default: 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// How often a job may start before it is dead. Default: the queue's setting, 25.
    pub fn max_attempts(mut self, attempts: i32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How long a handler may run; then the attempt fails. Default: the queue's setting, 1 hour.
    pub fn run_limit(mut self, limit: Duration) -> Self {
        self.run_limit = Some(limit);
        self
    }

    /// How long to wait after a failed attempt. Default: the queue's setting.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = Some(backoff);
        self
    }
}

/// The wait between attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Backoff {
    /// Before the second attempt.
    pub first: Duration,
    /// The longest wait.
    pub cap: Duration,
    /// Each wait is longer or shorter by this much, at random, so that jobs which failed together do
    /// not retry together.
    pub jitter: Jitter,
}

/// How much a wait varies.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// A share of the wait either way, such as 0.2.
    Share(f64),
    /// A fixed time either way.
    Fixed(Duration),
}

impl Backoff {
    /// Doubles from `first` to `cap`, with 20 % jitter either way.
    pub const fn doubling(first: Duration, cap: Duration) -> Self {
        Self { first, cap, jitter: Jitter::Share(0.2) }
    }

    /// Sets how much each wait varies. Default: 20 % either way.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns how long to wait after attempt number `attempts` failed. `chance` is in 0..=1.
    pub fn wait_after(&self, attempts: i32, chance: f64) -> Duration {
        let doublings = u32::try_from(attempts.clamp(1, 32) - 1).unwrap_or(0);
        let wait = self.first.saturating_mul(2u32.saturating_pow(doublings)).min(self.cap);
        let swing = match self.jitter {
            Jitter::Share(share) => wait.mul_f64(share.clamp(0.0, 1.0)),
            Jitter::Fixed(time) => time.min(wait),
        };
        (wait + swing.mul_f64(2.0 * chance.clamp(0.0, 1.0))).saturating_sub(swing)
    }
}

/// Checks a queue name before it reaches the database.
pub fn check_queue_name(name: &str) -> Result<(), String> {
    let mut bytes = name.bytes();
    let first_fits = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest_fits =
        bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
    if first_fits && rest_fits && name.len() <= 64 {
        Ok(())
    } else {
        Err(format!(
            "queue name {name:?} is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and \
             underscore, starting with a letter or digit"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10));
        let middle: Vec<_> =
            (1..=6).map(|attempt| backoff.wait_after(attempt, 0.5).as_secs()).collect();
        assert_eq!(middle, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn g8_waits_are_spread_within_the_bounds_of_their_jitter() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            jitter: Jitter::Fixed(Duration::from_millis(200)),
        };
        assert_eq!(backoff.wait_after(1, 0.0), Duration::from_millis(800));
        assert_eq!(backoff.wait_after(1, 1.0), Duration::from_millis(1200));
    }

    #[test]
    fn a_huge_attempt_number_does_not_overflow() {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3600));
        assert!(backoff.wait_after(i32::MAX, 1.0) <= Duration::from_secs(4320));
    }

    #[test]
    fn queue_names_are_checked() {
        for good in ["a", "mail", "0x", "a.b-c_d", &"a".repeat(64)] {
            assert!(check_queue_name(good).is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", "a b", "a/b", "ü", "a\0", &"a".repeat(65)] {
            assert!(check_queue_name(bad).is_err(), "{bad}");
        }
    }
}
