//! The failures recorded with a job.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::admin::PastFailure;

use crate::text::{one_line, print_duration, relative};

fn took(failure: &PastFailure) -> Duration {
    Duration::try_from_secs_f64(failure.ms.unwrap_or_default() / 1000.0).unwrap_or_default()
}

fn started(failure: &PastFailure) -> Option<Timestamp> {
    failure.at.checked_sub(took(failure)).ok()
}

/// Formats one line per failure, oldest first, with the wait that followed it.
pub fn lines(failures: &[PastFailure], next_start: Option<Timestamp>, now: Timestamp) -> String {
    let starts = failures.iter().skip(1).map(started).chain([next_start]);
    let lines: Vec<String> = failures
        .iter()
        .zip(starts)
        .map(|(failure, next)| {
            let wait = next
                .filter(|next| *next > failure.at)
                .map(|next| next.duration_since(failure.at).unsigned_abs())
                .map(|wait| format!(", next after {}", print_duration(wait)))
                .unwrap_or_default();
            format!(
                "attempt {} {} by {}, took {}{wait}: {}",
                failure.attempt,
                relative(failure.at, now),
                failure.worker.as_deref().unwrap_or("an unknown worker"),
                print_duration(took(failure)),
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
    fn a36_failures_are_listed_with_duration_and_next_wait() {
        let list = serde_json::json!([
            {"at": "2026-05-01T09:00:00+00:00", "attempt": 1, "worker": "w/1", "ms": 2000, "error": "smtp\ndown"},
            {"at": "2026-05-01T11:00:10+02:00", "attempt": 2, "worker": null, "ms": 999.6, "error": "again"},
        ]);
        let failures: Vec<PastFailure> = serde_json::from_value(list).unwrap();
        let now: Timestamp = "2026-05-01T09:01:10Z".parse().unwrap();
        let text = lines(&failures, Some(now), now);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("attempt 1 ") && lines[0].contains("by w/1, took 2"),
            "{text}"
        );
        assert!(lines[0].contains(", next after 9") && lines[0].ends_with(": smtp down"), "{text}");
        assert!(lines[1].contains("an unknown worker") && lines[1].ends_with(": again"), "{text}");
    }
}
