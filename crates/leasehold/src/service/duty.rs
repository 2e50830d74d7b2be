//! A duty: handles the results of one service, and warns when it keeps failing.
//!
//! # Invariants
//! - A duty that fails stops no other: its result is handled here.
//! - A single failure is not worth a warning, because the database is down now and then. After
//!   `FAILURES` in a row a warning with the error follows, then one per `WARN_EVERY` instead of one per
//!   second.

use std::time::{Duration, Instant};

use crate::error_text::one_line;
use crate::events::{Event, Events};

/// The warning comes after this many failures in a row.
const FAILURES: u32 = 5;
/// While the duty still fails, the next warning comes this much later.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// The results of one service.
#[derive(Debug)]
pub struct Duty {
    name: String,
    events: Events,
    failures: u32,
    warned: Option<Instant>,
}

/// What to log after a failure.
#[derive(Debug, PartialEq, Eq)]
enum LogLine {
    Debug,
    Warning,
}

impl Duty {
    /// `name`: what it does, as a log line and an event show it, such as `reclaim leases`.
    pub fn new(name: impl Into<String>, events: &Events) -> Self {
        Self { name: name.into(), events: events.clone(), failures: 0, warned: None }
    }

    /// Returns what it does.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the result of one turn. Returns its value, or `None` if it failed.
    pub fn note<T, E: std::fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(done) => {
                self.note_success();
                Some(done)
            }
            Err(error) => {
                self.note_failure(&error.to_string());
                None
            }
        }
    }

    /// Records a turn that succeeded.
    pub fn note_success(&mut self) {
        if self.succeeded() {
            tracing::info!(duty = self.name, "a background duty succeeds again");
        }
    }

    /// Records a turn that failed.
    pub fn note_failure(&mut self, error: &str) {
        let line = self.failed(Instant::now());
        let (duty, times, error) = (&self.name, self.failures, &*one_line(error));
        match line {
            LogLine::Warning => {
                tracing::warn!(duty, times, error, "a background duty keeps failing");
                let (duty, error) = (duty.clone(), error.to_owned());
                self.events.send(|| Event::DutyFailing { duty, times, error });
            }
            LogLine::Debug => {
                tracing::debug!(duty, error, "a background duty failed; trying again");
            }
        }
    }

    fn failed(&mut self, now: Instant) -> LogLine {
        self.failures = self.failures.saturating_add(1);
        let due = match self.warned {
            Some(last) => now.saturating_duration_since(last) >= WARN_EVERY,
            None => self.failures >= FAILURES,
        };
        if due {
            self.warned = Some(now);
            return LogLine::Warning;
        }
        LogLine::Debug
    }

    /// Resets the count of failures. Returns true if a warning was logged before.
    fn succeeded(&mut self) -> bool {
        self.failures = 0;
        self.warned.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d14_duty_warns_after_failures_in_a_row_and_then_rarely() {
        let (mut duty, start) = (Duty::new("walk", &Events::default()), Instant::now());
        let logged = |duty: &mut Duty, seconds| duty.failed(start + Duration::from_secs(seconds));
        for second in 0..4 {
            assert_eq!(logged(&mut duty, second), LogLine::Debug);
        }
        assert!(!duty.succeeded(), "four failures led to no warning");
        for second in 0..4 {
            assert_eq!(logged(&mut duty, second), LogLine::Debug);
        }
        assert_eq!(logged(&mut duty, 4), LogLine::Warning);
        for second in 5..600 {
            assert_eq!(logged(&mut duty, second), LogLine::Debug, "second {second}");
        }
        assert_eq!(logged(&mut duty, 604), LogLine::Warning);
        assert!(duty.succeeded(), "the end of the failures is logged once");
        assert!(!duty.succeeded());
    }
}
