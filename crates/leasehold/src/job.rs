//! What a job is: its identity, its typed kwargs and the policy of its name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::backoff::Backoff;
use crate::limit::Limit;

/// The number of a job. It never changes, through retries, death and redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i64> for JobId {
    fn from(id: i64) -> Self {
        Self(id)
    }
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| ParseJobIdError)
    }
}

/// A text that is not the id of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is a whole number, such as 1201; list jobs to find it")]
pub struct ParseJobIdError;

/// Identifies a claim. Every claim gets a new one; it only grows and is never issued twice. Together
/// with the job's id it is the fence that every finish carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub i64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a job, in the words of the view `leasehold.jobs`.
///
/// *Waiting* is not a state: it names [`Scheduled`](Self::Scheduled), [`Ready`](Self::Ready) and
/// [`Retrying`](Self::Retrying) together, in filters only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobState {
    /// Not due yet, and never failed.
    Scheduled,
    /// Due: a worker may claim it.
    Ready,
    /// Held by a lease.
    Running,
    /// Has failed or lost its worker, and is due again later.
    Retrying,
    /// Ended well.
    Completed,
    /// Ended on request.
    Cancelled,
    /// Will not run again unless an operator redrives it; see [`Cause`].
    Dead,
}

impl JobState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Retrying,
        Self::Completed,
        Self::Cancelled,
        Self::Dead,
    ];

    /// The states that *waiting* names.
    pub const WAITING: &'static [Self] = &[Self::Scheduled, Self::Ready, Self::Retrying];

    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    /// Returns true if the job waits for a worker.
    pub fn is_waiting(self) -> bool {
        Self::WAITING.contains(&self)
    }

    /// Returns true if the job will not run again by itself: completed, cancelled or dead.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Dead)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = || Self::ALL.iter().map(|state| state.as_str());
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| UnknownWord::new(word, "state", known()))
    }
}

/// Why a job died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// Every attempt failed, or the last one lost its worker.
    Exhausted,
    /// Too many workers died in a row while they ran it.
    Lost,
    /// The handler reported that another attempt is useless.
    Rejected,
    /// The kwargs did not fit what the handler expects, up to the last attempt.
    Undecodable,
    /// Not started before `expires_at`.
    Expired,
}

impl Cause {
    /// Every cause.
    pub const ALL: &'static [Self] =
        &[Self::Exhausted, Self::Lost, Self::Rejected, Self::Undecodable, Self::Expired];

    /// Returns the word of the cause.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Lost => "lost",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Cause {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = || Self::ALL.iter().map(|cause| cause.as_str());
        Self::ALL
            .iter()
            .copied()
            .find(|cause| cause.as_str() == word)
            .ok_or_else(|| UnknownWord::new(word, "cause", known()))
    }
}

/// A word that is not one of a list: of states, of causes, of policies for missed slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a {of}; use one of {known}")]
pub struct UnknownWord {
    word: String,
    of: &'static str,
    known: String,
}

impl UnknownWord {
    pub(crate) fn new(
        word: &str,
        of: &'static str,
        known: impl Iterator<Item = &'static str>,
    ) -> Self {
        let known: Vec<_> = known.collect();
        Self { word: word.to_owned(), of, known: known.join(", ") }
    }
}

/// Decodes the kwargs of a job. A unit struct is stored as `{}`, but serde reads it from `null`.
pub(crate) fn decode<J: DeserializeOwned>(kwargs: &[u8]) -> Result<J, serde_json::Error> {
    match serde_json::from_slice(kwargs) {
        Err(error) if kwargs.trim_ascii() == b"{}" => {
            serde_json::from_slice(b"null").map_err(|_| error)
        }
        read => read,
    }
}

/// A type of job: a serializable struct with a stable name.
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
/// The derive takes `name`, `queue`, `priority`, `max_attempts`, `run_limit`, `backoff`, `limit_key`
/// and what a [`Limit`] holds, and refuses what it does not know. A job without a name:
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
/// A backoff without its longest wait; write `"2s..1h"`:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", backoff = "2s")]
/// struct SendEmail {}
/// ```
/// A rate without its time:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", rate = "100")]
/// struct SendEmail {}
/// ```
/// A limit of keys without a common prefix; write `"account:{account}"`:
/// ```compile_fail
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", limit_key = "{account}", max_running = 3)]
/// struct SendEmail { account: i64 }
/// ```
/// All of them as they should be:
/// ```
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "email.send", max_attempts = 8, run_limit = "30s", backoff = "2s..1h",
///       limit_key = "account:{account}", max_running = 3, weight = 2)]
/// struct SendEmail { account: i64 }
/// # use leasehold::Job;
/// # assert_eq!(SendEmail { account: 7 }.limit_key().as_deref(), Some("account:7"));
/// # assert_eq!(SendEmail::limit(), Some(leasehold::Limit::new("account").max_running(3).weight(2)));
///
/// // One job of each line at a time, in order; and a limit for all jobs of a name.
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "line.sync", limit_key = "line:{line}", ordered = true, on_death = "stop", max_waiting = 1000)]
/// struct SyncLine { line: i64 }
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "report.build", max_running = 3, rate = "100/1m", burst = 20)]
/// struct BuildReport {}
/// # let limit = BuildReport::limit().expect("a limit");
/// # assert!(limit.by_name && limit.rate == Some((100, std::time::Duration::from_secs(60))));
/// # assert_eq!(BuildReport {}.limit_key().as_deref(), Some("report.build"));
/// #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
/// #[job(name = "doc.index", limit_key = "doc:{id}", debounce = "5s..1m")]
/// struct IndexDoc { id: i64 }
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Stored with every job, so renaming the struct orphans no job. Choose it once.
    const NAME: &'static str;
    /// The queue of these jobs unless an enqueue names another one.
    const QUEUE: &'static str = "default";

    /// Which limit holds this job back, such as `tenant:7`. Default: none.
    fn limit_key(&self) -> Option<String> {
        None
    }

    /// The limit that workers declare for these jobs. Default: none.
    fn limit() -> Option<Limit> {
        None
    }

    /// The policy of every job with this name. Stored with each job as it is enqueued: a change affects
    /// new jobs only, except for `backoff` and `run_limit`, which the worker applies.
    fn policy() -> Policy {
        Policy::default()
    }
}

/// How jobs of one name are treated. `None`: the queue's settings apply.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// Lower runs first. Default: 0.
    pub priority: i32,
    /// How often a job may start before it is dead.
    pub max_attempts: Option<i32>,
    /// How long a handler may run; then the attempt fails.
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

/// A text that cannot be the name of a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "queue name {0:?} is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore, starting with a letter or digit"
)]
pub struct QueueNameError(String);

/// Checks a queue name before it reaches the database.
pub fn check_queue_name(name: &str) -> Result<(), QueueNameError> {
    let mut bytes = name.bytes();
    let first_fits = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest_fits =
        bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b));
    if first_fits && rest_fits && name.len() <= 64 {
        Ok(())
    } else {
        Err(QueueNameError(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_causes_are_read_as_they_are_printed() {
        for state in JobState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        for cause in Cause::ALL {
            assert_eq!(cause.to_string().parse(), Ok(*cause));
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.as_str());
        }
        let error = "finished".parse::<JobState>().unwrap_err().to_string();
        assert!(
            error.starts_with("\"finished\" is not a state; use one of scheduled, "),
            "{error}"
        );
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
