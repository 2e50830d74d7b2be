//! Times on the command line: a distance from now by the database's clock, or an exact time.

use std::time::Duration;

use jiff::Timestamp;

use crate::exit::Failure;
use crate::text::parse_duration;

/// When a job is due, or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    In(Duration),
    At(Timestamp),
}

impl Due {
    /// Returns the time; `now` is the database's.
    pub fn from(self, now: Timestamp) -> Result<Timestamp, Failure> {
        match self {
            Self::At(time) => Ok(time),
            Self::In(distance) => now.checked_add(distance).map_err(|_| {
                let distance = crate::text::print_duration(distance);
                Failure::usage(format!("+{distance} is beyond the calendar; give an earlier time"))
            }),
        }
    }
}

/// Parses `+5m`, or a time with its zone.
pub fn parse_due(text: &str) -> Result<Due, String> {
    if text.starts_with('+') {
        return parse_duration(text).map(Due::In);
    }
    text.parse().map(Due::At).map_err(|_| {
        format!("{text:?} is not a time; write '+5m', or a time with its zone such as 2026-05-01T09:00:00Z")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_due_reads_relative_and_exact_times() {
        assert_eq!(parse_due("+5m"), Ok(Due::In(Duration::from_secs(300))));
        assert!(matches!(parse_due("2026-05-01T09:00:00Z"), Ok(Due::At(_))));
        assert!(matches!(parse_due("2026-05-01T09:00:00+02:00"), Ok(Due::At(_))));
        for bad in ["5m", "tomorrow", "2026-05-01T09:00:00", ""] {
            assert!(parse_due(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn due_counts_from_the_given_time() {
        let now: Timestamp = "2026-05-01T09:00:00Z".parse().expect("a time");
        let due = Due::In(Duration::from_secs(90)).from(now).expect("a time");
        assert_eq!(due.to_string(), "2026-05-01T09:01:30Z");
        assert!(Due::In(Duration::from_secs(u64::MAX / 2)).from(now).is_err());
    }
}
