//! What a handler can return: done, later, never, or an error.

use std::time::Duration;

/// What a handler decided. `?` on an error means: retry with back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The job is complete.
    Done,
    /// Not now. The attempt is not counted. The longest wait is ten years.
    Snooze(Duration),
    /// Failed; try again after this time, ten years at most.
    Retry {
        /// How long to wait.
        after: Duration,
        /// The reason, kept as the last error of the job.
        why: String,
    },
    /// Ended without effect, on purpose.
    Cancel(String),
}

/// What a handler returns.
pub type JobResult = Result<Outcome, JobError>;

/// Why an attempt failed. Every error that is `Send + Sync + 'static` becomes one through `?`, and so do
/// `anyhow::Error`, `eyre::Report` and texts. Jobs of a handler that returns one of those instead are
/// always retried: to bury a job, return [`JobResult`] with [`JobError::permanent`].
#[derive(Debug)]
pub struct JobError {
    pub(crate) text: String,
    pub(crate) permanent: bool,
    /// The handler did not run: the attempt is not counted.
    pub(crate) not_started: bool,
}

impl JobError {
    /// The attempt failed; another may succeed.
    pub fn retry(why: impl std::fmt::Display) -> Self {
        Self { text: format!("{why:#}"), permanent: false, not_started: false }
    }

    /// No attempt will succeed: the job is buried at once.
    pub fn permanent(why: impl std::fmt::Display) -> Self {
        Self { text: format!("{why:#}"), permanent: true, not_started: false }
    }

    /// Something that the handler needs is missing at the moment, and it has not begun: the job returns
    /// after a few seconds, and the attempt is not counted.
    pub fn not_started(why: impl std::fmt::Display) -> Self {
        Self { text: format!("{why:#}"), permanent: false, not_started: true }
    }

    /// Returns true if no further attempt follows.
    pub fn is_permanent(&self) -> bool {
        self.permanent
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
        Self { text, permanent: false, not_started: false }
    }
}

/// What a handler may return besides [`JobResult`].
pub trait IntoJobResult {
    /// Returns the result as a [`JobResult`].
    fn into_job_result(self) -> JobResult;
}

impl IntoJobResult for () {
    fn into_job_result(self) -> JobResult {
        Ok(Outcome::Done)
    }
}

impl IntoJobResult for Outcome {
    fn into_job_result(self) -> JobResult {
        Ok(self)
    }
}

/// `Result<(), JobError>`, `anyhow::Result<()>`, `eyre::Result<()>`, `Result<(), Box<dyn Error + Send + Sync>>`,
/// `Result<(), MyError>`: an error fails the attempt, and the next one follows after a back-off.
impl<E: Into<JobError>> IntoJobResult for Result<(), E> {
    fn into_job_result(self) -> JobResult {
        self.map(|()| Outcome::Done).map_err(Into::into)
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
    fn an_error_keeps_its_causes() {
        let failed = || -> Result<(), JobError> { Err(Outer(std::io::Error::other("line busy")))? };
        assert_eq!(failed().expect_err("fails").text, "the letter was not sent: line busy");
    }
}
