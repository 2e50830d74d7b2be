//! A duty: handles its own result, and warns when it keeps failing.
//!
//! # What is true
//! - A duty that fails stops no other: its result is handled here.
//! - A single failure is not worth a warning, because the database is away now and then. After
//!   `FAILURES` in a row a warning with the error follows, then one per `WARN_EVERY` instead of one per
//!   second.

use std::time::{Duration, Instant};

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::error_text::one_line;
use crate::events::{Event, Events};

/// The warning comes after this many failures in a row.
const FAILURES: u32 = 5;
/// While the duty still fails, the next warning comes this much later.
const WARN_EVERY: Duration = Duration::from_secs(600);

pub(crate) struct Duty {
    name: String,
    failures: u32,
    warned: Option<Instant>,
}

/// What to log after a failure.
#[derive(Debug, PartialEq, Eq)]
enum Say {
    Nothing,
    Warning,
}

impl Duty {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), failures: 0, warned: None }
    }

    /// Takes the result of one run. Returns its value, or `None` if it failed.
    pub(super) fn note<T>(
        &mut self,
        engine: &Leasehold,
        events: &Events,
        result: Result<T, CallError>,
    ) -> Option<T> {
        match result {
            Ok(done) => {
                self.note_success();
                Some(done)
            }
            Err(error) => {
                engine.process().failed("housekeeping", &error);
                self.note_failure(events, &error.to_string());
                None
            }
        }
    }

    pub(crate) fn note_success(&mut self) {
        if self.succeeded() {
            tracing::info!(duty = self.name, "a duty of housekeeping succeeds again");
        }
    }

    pub(crate) fn note_failure(&mut self, events: &Events, error: &str) {
        let said = self.failed(Instant::now());
        let (duty, times, error) = (&self.name, self.failures, &*one_line(error));
        match said {
            Say::Warning => {
                tracing::warn!(duty, times, error, "a duty of housekeeping keeps failing");
                let (duty, error) = (duty.clone(), error.to_owned());
                events.send(|| Event::DutyFailing { duty, times, error });
            }
            Say::Nothing => {
                tracing::debug!(duty, error, "a duty of housekeeping failed; trying again");
            }
        }
    }

    fn failed(&mut self, now: Instant) -> Say {
        self.failures = self.failures.saturating_add(1);
        let due = match self.warned {
            Some(last) => now.saturating_duration_since(last) >= WARN_EVERY,
            None => self.failures >= FAILURES,
        };
        if due {
            self.warned = Some(now);
            return Say::Warning;
        }
        Say::Nothing
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
        let (mut duty, start) = (Duty::new("walk"), Instant::now());
        let said = |duty: &mut Duty, seconds| duty.failed(start + Duration::from_secs(seconds));
        for second in 0..4 {
            assert_eq!(said(&mut duty, second), Say::Nothing);
        }
        assert!(!duty.succeeded(), "four failures were no news");
        for second in 0..4 {
            assert_eq!(said(&mut duty, second), Say::Nothing);
        }
        assert_eq!(said(&mut duty, 4), Say::Warning);
        for second in 5..600 {
            assert_eq!(said(&mut duty, second), Say::Nothing, "second {second}");
        }
        assert_eq!(said(&mut duty, 604), Say::Warning);
        assert!(duty.succeeded(), "it is said once that it is over");
        assert!(!duty.succeeded());
    }
}
