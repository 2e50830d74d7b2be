//! The failures recorded with a job.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::text::{length, one_line, relative};

/// One failed attempt, as `leasehold.add_error` wrote it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PastFailure {
    pub at: Timestamp,
    pub attempt: i32,
    pub worker: Option<String>,
    /// From the claim to the failure.
    pub ms: Option<f64>,
    pub error: Option<String>,
}

impl PastFailure {
    fn took(&self) -> Duration {
        Duration::try_from_secs_f64(self.ms.unwrap_or_default() / 1000.0).unwrap_or_default()
    }

    fn started(&self) -> Option<Timestamp> {
        self.at.checked_sub(self.took()).ok()
    }
}

/// Reads the column; an unreadable list counts as empty.
pub fn past_failures(list: Option<serde_json::Value>) -> Vec<PastFailure> {
    list.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default()
}

/// Formats one line per failure, oldest first, with the wait that followed it.
pub fn tell(failures: &[PastFailure], next_start: Option<Timestamp>, now: Timestamp) -> String {
    let starts = failures.iter().skip(1).map(PastFailure::started).chain([next_start]);
    let lines: Vec<String> = failures
        .iter()
        .zip(starts)
        .map(|(failure, next)| {
            let wait = next
                .filter(|next| *next > failure.at)
                .map(|next| next.duration_since(failure.at).unsigned_abs())
                .map(|wait| format!(", next after {}", length(wait)))
                .unwrap_or_default();
            format!(
                "attempt {} {} by {}, took {}{wait}: {}",
                failure.attempt,
                relative(failure.at, now),
                failure.worker.as_deref().unwrap_or("an unknown worker"),
                length(failure.took()),
                one_line(failure.error.as_deref().unwrap_or_default(), 300),
            )
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a36_failures_are_told_with_what_they_took_and_the_wait_after_them() {
        let list = serde_json::json!([
            {"at": "2026-05-01T09:00:00+00:00", "attempt": 1, "worker": "w/1", "ms": 2000, "error": "smtp\ndown"},
            {"at": "2026-05-01T11:00:10+02:00", "attempt": 2, "worker": null, "ms": 999.6, "error": "again"},
        ]);
        let failures = past_failures(Some(list));
        let now: Timestamp = "2026-05-01T09:01:10Z".parse().unwrap();
        let told = tell(&failures, Some(now), now);
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines[0].starts_with("attempt 1 ") && lines[0].contains("by w/1, took 2"),
            "{told}"
        );
        assert!(lines[0].contains(", next after 9") && lines[0].ends_with(": smtp down"), "{told}");
        assert!(lines[1].contains("an unknown worker") && lines[1].ends_with(": again"), "{told}");
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_empty_one() {
        assert!(past_failures(Some(serde_json::json!("spoiled"))).is_empty());
        assert!(past_failures(None).is_empty());
    }
}
