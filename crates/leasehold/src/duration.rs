//! Durations as users write and read them: `10m`, `1h 30m`, `2 weeks`. jiff's friendly format, both ways, for
//! commands, pages, filters, alarms and the log.
//!
//! # Invariants
//! - A day is 24 hours, a week seven days. Months and years have no fixed length and are refused.
//! - [`compact`], [`unspaced`] and [`verbose`] are exact, and [`parse`] reads what they print.

use std::time::Duration;

use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{RoundMode, Span, SpanRelativeTo, SpanRound, Unit};

const COMPACT: SpanPrinter = SpanPrinter::new();
const UNSPACED: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);
const VERBOSE: SpanPrinter =
    SpanPrinter::new().designator(Designator::Verbose).spacing(Spacing::BetweenUnitsAndDesignators);

/// Parses `90s`, `10m`, `1h30m`, `1 day 2 hours`, `2 weeks`. Returns `None` for everything else, such as a
/// bare number, a negative duration, or one in months.
pub fn parse(text: &str) -> Option<Duration> {
    let span: Span = text.trim().parse().ok()?;
    Duration::try_from(span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?).ok()
}

/// Prints a duration with short units: `30d`, `1h 30m`, `250ms`.
pub fn compact(time: Duration) -> String {
    COMPACT.span_to_string(&whole(time))
}

/// Prints a duration without blanks, for text in which a blank ends a value: `30d`, `1h30m`.
pub fn unspaced(time: Duration) -> String {
    UNSPACED.span_to_string(&whole(time))
}

/// Prints a duration in its two largest units, cut and not rounded: `1h 30m`, `12s`, `250ms`.
pub fn short(time: Duration) -> String {
    let smallest = match time.as_secs() {
        0 => Unit::Millisecond,
        1..3600 => Unit::Second,
        3600..86_400 => Unit::Minute,
        _ => Unit::Hour,
    };
    let round = SpanRound::new()
        .largest(Unit::Day)
        .smallest(smallest)
        .mode(RoundMode::Trunc)
        .days_are_24_hours();
    match Span::try_from(time).and_then(|span| span.round(round)) {
        Ok(span) => COMPACT.span_to_string(&span),
        // Longer than a calendar goes.
        Err(_) => "thousands of years".to_owned(),
    }
}

/// Prints a duration with units in full: `30 days`, `1 hour 30 minutes`.
pub fn verbose(time: Duration) -> String {
    VERBOSE.span_to_string(&whole(time))
}

/// Rounds a duration to the unit that a reader expects: minutes below two hours, hours below two days,
/// else days. To the nearest, because a paste that was just saved for 30 days must not show 29. Less than
/// a minute becomes zero.
pub fn round(time: Duration) -> Duration {
    let seconds = time.as_secs();
    let nearest = |unit: u64| (seconds + unit / 2) / unit * unit;
    let (minutes, hours) = (nearest(60), nearest(3600));
    Duration::from_secs(match (seconds, minutes, hours) {
        (..60, ..) => 0,
        (_, ..7200, _) => minutes,
        (_, _, ..172_800) => hours,
        _ => nearest(86_400),
    })
}

/// Prints a duration as [`round`] rounds it, in one unit: `less than a minute`, `5 minutes`, `3 hours`,
/// `12 days`.
pub fn approximate(time: Duration) -> String {
    let time = round(time);
    let unit = match time.as_secs() {
        0 => return "less than a minute".to_owned(),
        1..7200 => Unit::Minute,
        7200..172_800 => Unit::Hour,
        _ => Unit::Day,
    };
    VERBOSE.span_to_string(&balanced(time, unit))
}

/// Like [`approximate`], with the seconds below two minutes: `0 seconds`, `90 seconds`, `16 minutes`.
pub fn coarse(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => {
            VERBOSE.span_to_string(&balanced(Duration::from_secs(seconds), Unit::Second))
        }
        _ => approximate(time),
    }
}

fn whole(time: Duration) -> Span {
    balanced(time, Unit::Day)
}

/// Splits a duration into units from `largest` down. A span has less range than a duration: one that does
/// not fit becomes the longest span, thousands of years.
fn balanced(time: Duration, largest: Unit) -> Span {
    let round = SpanRound::new().largest(largest).days_are_24_hours();
    let span = Span::try_from(time).and_then(|span| span.round(round));
    span.unwrap_or_else(|_| Span::new().days(7_304_484))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn parse_reads_durations_as_users_write_them() {
        for (text, expected) in [
            ("10m", 600),
            ("1d", 86_400),
            ("2 weeks", 1_209_600),
            ("1h30m", 5400),
            ("1h 30m", 5400),
            ("90s", 90),
            ("1 day 2 hours", 93_600),
            ("1 day, 2 hours", 93_600),
            (" 1d ", 86_400),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(seconds(expected)), "{text}");
        }
        assert_eq!(parse("250ms"), Some(Duration::from_millis(250)));
    }

    #[test]
    fn parse_refuses_text_that_is_not_a_duration() {
        for bad in ["", "600", "never", "-1d", "1 month", "1y", "m", "1 1", "1m1m", "1m1h", "１d"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn printed_durations_are_exact_and_can_be_parsed() {
        for (time, short, long) in [
            (0, "0s", "0 seconds"),
            (1, "1s", "1 second"),
            (90, "1m 30s", "1 minute 30 seconds"),
            (3600, "1h", "1 hour"),
            (90_000, "1d 1h", "1 day 1 hour"),
            (86_400 * 365, "365d", "365 days"),
        ] {
            assert_eq!(
                (compact(seconds(time)).as_str(), verbose(seconds(time)).as_str()),
                (short, long)
            );
            assert_eq!((parse(short), parse(long)), (Some(seconds(time)), Some(seconds(time))));
        }
        assert_eq!(compact(Duration::from_millis(250)), "250ms");
        assert_eq!([90, 90_000].map(|time| unspaced(seconds(time))), ["1m30s", "1d1h"]);
        assert_eq!(compact(Duration::MAX), "7304484d");
    }

    #[test]
    fn durations_print_alike_if_and_only_if_they_round_alike() {
        let times =
            [0, 59, 60, 119, 120, 7199, 7200, 10_799, 172_799, 172_800, 259_199, 31_536_000];
        for one in times.map(seconds) {
            for other in times.map(seconds) {
                let alike = approximate(one) == approximate(other);
                assert_eq!(round(one) == round(other), alike, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn approximate_durations_have_one_unit() {
        for (time, text) in [
            (0, "less than a minute"),
            (59, "less than a minute"),
            (60, "1 minute"),
            (90, "2 minutes"),
            (7169, "119 minutes"),
            (7170, "2 hours"),
            (86_398, "24 hours"),
            (170_999, "47 hours"),
            (171_000, "2 days"),
            (86_400 * 30 - 1, "30 days"),
        ] {
            assert_eq!(approximate(seconds(time)), text, "{time}");
        }
    }

    #[test]
    fn short_durations_have_their_two_largest_units() {
        for (time, text) in [
            (0.0, "0s"),
            (0.25, "250ms"),
            (12.9, "12s"),
            (90.0, "1m 30s"),
            (3600.0, "1h"),
            (5399.0, "1h 29m"),
            (86_400.0, "1d"),
            (90_061.0, "1d 1h"),
            (86_400.0 * 400.0, "400d"),
        ] {
            assert_eq!(short(Duration::from_secs_f64(time)), text, "{time}");
        }
        assert_eq!(short(Duration::MAX), "thousands of years");
        for time in [1, 59, 60, 61, 3599, 3600, 5400, 86_400, 90_000, 34_560_000].map(seconds) {
            assert_eq!(parse(&short(time)), Some(time), "{time:?}");
        }
    }

    #[test]
    fn coarse_durations_name_the_seconds_below_two_minutes() {
        for (time, text) in [
            (0, "0 seconds"),
            (1, "1 second"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (960, "16 minutes"),
        ] {
            assert_eq!(coarse(seconds(time)), text, "{time}");
        }
    }
}
