//! What a handler can say: done, later, never, or an error.

use std::time::Duration;

/// What a handler decided. `?` on any error means: retry with back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job is complete.
    Done,
    /// Not now. The attempt is not counted.
    Snooze(Duration),
    /// Failed; try again after this time.
    Retry { after: Duration, why: String },
    /// Ended without effect, on purpose.
    Cancel(String),
}

/// What a handler returns.
pub type JobResult = Result<Outcome, JobError>;

/// Why an attempt failed. Any error becomes one through `?`.
#[derive(Debug)]
pub struct JobError {
    pub(crate) text: String,
    pub(crate) permanent: bool,
}

impl JobError {
    /// The attempt failed; another may succeed.
    pub fn retry(why: impl std::fmt::Display) -> Self {
        Self { text: format!("{why:#}"), permanent: false }
    }

    /// No attempt will succeed: the job is buried at once.
    pub fn permanent(why: impl std::fmt::Display) -> Self {
        Self { text: format!("{why:#}"), permanent: true }
    }

    /// True when no other attempt is to be made.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

// `JobError` itself is not an `Error`: that is what lets every other error convert into it.
impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
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
        Self { text, permanent: false }
    }
}

/// What a handler may return besides [`JobResult`].
pub trait IntoJobResult {
    fn into_job_result(self) -> JobResult;
}

impl IntoJobResult for JobResult {
    fn into_job_result(self) -> JobResult {
        self
    }
}

impl IntoJobResult for Result<(), JobError> {
    fn into_job_result(self) -> JobResult {
        self.map(|()| Outcome::Done)
    }
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
