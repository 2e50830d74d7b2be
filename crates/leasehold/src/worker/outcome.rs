//! What a handler can return: that the job is complete, runs again later or never, or an error.

use std::any::Any;
use std::time::Duration;

use crate::job::Cause;
use crate::once::OnceError;
use crate::service::panic_text;

/// What a handler decided. `?` on an error means: retry with backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done; the job leaves.
    Complete,
    /// Not now. The attempt is not counted. The longest wait is ten years.
    Snooze(Duration),
    /// Not now, and after everything else: the job returns behind all other jobs of its queue, of any
    /// priority, and the attempt is not counted. Claims reserve a share of their slots for deferred
    /// jobs, so these are not starved. For work that waits for something outside: however many jobs wait
    /// for it, jobs that do not are claimed first. The longest wait is ten years.
    Defer {
        /// How long to wait.
        after: Duration,
        /// The reason, kept as the last error of the job.
        why: String,
    },
    /// Failed; try again after this time, ten years at most.
    Retry {
        /// How long to wait.
        after: Duration,
        /// The reason, kept as the last error of the job.
        why: String,
    },
    /// Ended without effect, on purpose.
    Cancel(String),
    /// Not run: the job is ready again at once, and the attempt is not counted. For a handler of several
    /// jobs that stops before it reaches some of them.
    Release,
}

/// What a handler returns.
pub type JobResult = Result<Outcome, JobError>;

/// Why an attempt failed. Every error that is `Send + Sync + 'static` becomes one through `?`, and so do
/// `anyhow::Error`, `eyre::Report` and texts. Jobs of a handler that returns one of those instead are
/// always retried: to bury a job, return [`JobResult`] with [`JobError::permanent`].
#[derive(Clone, Debug)]
pub struct JobError {
    pub(crate) text: String,
    pub(crate) reason: Reason,
}

/// What follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The attempt counts; the next one follows after a backoff.
    Failed,
    /// The attempt counts; the next one follows after this time, behind all other jobs.
    Deferred(Duration),
    /// No other attempt follows.
    Permanent(Cause),
    /// The handler did not run: the attempt does not count.
    NotStarted,
    /// The kwargs do not fit the handler. The attempt counts, and the last one gives the cause of death.
    Undecodable,
}

impl JobError {
    fn new(why: impl std::fmt::Display, reason: Reason) -> Self {
        Self { text: format!("{why:#}"), reason }
    }

    /// The attempt failed; another may succeed.
    pub fn retry(why: impl std::fmt::Display) -> Self {
        Self::new(why, Reason::Failed)
    }

    /// No attempt will succeed: the job is buried at once.
    pub fn permanent(why: impl std::fmt::Display) -> Self {
        Self::new(why, Reason::Permanent(Cause::Rejected))
    }

    /// Something that the handler needs is missing at the moment, and it has not begun: the job returns
    /// after a few seconds, and the attempt is not counted.
    pub fn not_started(why: impl std::fmt::Display) -> Self {
        Self::new(why, Reason::NotStarted)
    }

    /// Returns the error of a handler that panicked, from what `catch_unwind` returned.
    pub fn from_panic(panic: &(dyn Any + Send)) -> Self {
        Self::retry(format_args!("the handler panicked: {}", panic_text(panic)))
    }

    /// Makes the next attempt follow after this time and behind all other jobs, as
    /// [`Outcome::Defer`] does. The attempt counts as a failure: the last one buries the job. A
    /// permanent error stays permanent.
    pub fn deferred(mut self, after: Duration) -> Self {
        if self.reason == Reason::Failed {
            self.reason = Reason::Deferred(after);
        }
        self
    }

    /// Sets the cause of death that a permanent error gives. Default: [`Cause::Rejected`].
    pub fn cause(mut self, cause: Cause) -> Self {
        if self.is_permanent() {
            self.reason = Reason::Permanent(cause);
        }
        self
    }

    pub(crate) fn undecodable(text: String) -> Self {
        Self { text, reason: Reason::Undecodable }
    }

    /// Returns true if no further attempt follows.
    pub fn is_permanent(&self) -> bool {
        matches!(self.reason, Reason::Permanent(_))
    }

    /// Returns true if the kwargs of the job do not fit its handler.
    pub fn is_undecodable(&self) -> bool {
        self.reason == Reason::Undecodable
    }
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What `anyhow::Error`, `eyre::Report`, boxed errors, every `Error` and texts convert into.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

// `JobError` itself is not an `Error`: only then can every other error convert into it.
impl<E: Into<BoxError>> From<E> for JobError {
    fn from(error: E) -> Self {
        let error: BoxError = error.into();
        if let Some(OnceError::Effect(decided)) = error.downcast_ref() {
            return decided.clone();
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let next = source.to_string();
            if !text.contains(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = source.source();
        }
        Self { text, reason: Reason::Failed }
    }
}

/// What a handler may return besides [`JobResult`].
pub trait IntoJobResult {
    /// Returns the result as a [`JobResult`].
    fn into_job_result(self) -> JobResult;
}

impl IntoJobResult for () {
    fn into_job_result(self) -> JobResult {
        Ok(Outcome::Complete)
    }
}

impl IntoJobResult for Outcome {
    fn into_job_result(self) -> JobResult {
        Ok(self)
    }
}

/// `Result<(), JobError>`, `anyhow::Result<()>`, `eyre::Result<()>`, `Result<(), Box<dyn Error + Send + Sync>>`,
/// `Result<(), MyError>`: an error fails the attempt, and the next one follows after a backoff.
impl<E: Into<JobError>> IntoJobResult for Result<(), E> {
    fn into_job_result(self) -> JobResult {
        self.map(|()| Outcome::Complete).map_err(Into::into)
    }
}

impl<E: Into<JobError>> IntoJobResult for Result<Outcome, E> {
    fn into_job_result(self) -> JobResult {
        self.map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the letter was not sent")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn error_keeps_its_causes() {
        let failed = || -> Result<(), JobError> { Err(Outer(std::io::Error::other("line busy")))? };
        assert_eq!(failed().expect_err("fails").text, "the letter was not sent: line busy");
    }
}
