//! Text formatting: durations, suggestions for typos, and escaping for terminals.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};

/// Parses `30s`, `5m`, `1h30m`, `2 days`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is not a length of time; write 30s, 5m, 1h30m or 2 days");
    let span: Span = text.trim().trim_start_matches('+').parse().map_err(|_| bad())?;
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| bad())?;
    Duration::try_from(length).map_err(|_| bad())
}

/// Parses `1MiB`, `64 KiB`, `2MB`, or a number of bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is not a size; write 64KiB, 1MiB, 2GiB or a number of bytes");
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end).ok_or_else(bad)?;
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(bad()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(bad)
}

/// Formats a duration in its two largest units: `1h 30m`, `12s`, `250ms`.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let parts: Vec<String> = units
        .iter()
        .skip_while(|(count, _)| *count == 0)
        .take(2)
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    match parts.is_empty() {
        true => format!("{}ms", time.as_millis()),
        false => parts.join(" "),
    }
}

pub fn seconds(time: f64) -> String {
    length(Duration::try_from_secs_f64(time.max(0.0)).unwrap_or(Duration::MAX))
}

/// Formats the distance of a time from now: `12s ago`, `in 5m`.
pub fn relative(moment: Timestamp, now: Timestamp) -> String {
    let distance = moment.duration_since(now);
    match (distance.unsigned_abs(), distance.is_negative()) {
        (near, _) if near < Duration::from_secs(1) => "now".to_owned(),
        (far, true) => format!("{} ago", length(far)),
        (far, false) => format!("in {}", length(far)),
    }
}

/// Formats the time of a last event: when, and how long ago.
pub fn since(moment: Timestamp, now: Timestamp) -> String {
    format!("{}, {}", moment.strftime("%Y-%m-%d %H:%M UTC"), relative(moment, now))
}

/// Returns one line of at most `most` characters, without control characters: untrusted text may hold
/// escape sequences that move the cursor or rename the terminal's window.
pub fn one_line(text: &str, most: usize) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
        .filter(|c| !c.is_control())
        .collect();
    match clean.char_indices().nth(most) {
        Some(_) => clean.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => clean,
    }
}

/// Removes control characters from a text of several lines.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect()
}

/// Returns the known word that is most similar to this one, if any is close.
pub fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate.as_str())
}

/// `1 job`, `2 jobs`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_the_way_people_write_them() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("+5m", 300.0),
            ("1h30m", 5400.0),
            ("2 days", 172_800.0),
            ("250ms", 0.25),
        ] {
            assert_eq!(parse_duration(text).map(|time| time.as_secs_f64()), Ok(seconds), "{text}");
        }
        for bad in ["", "5", "soon", "-5m", "1 month"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_read_the_way_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("12", 12), ("1MiB", 1 << 20), ("64 KiB", 65_536), ("2mb", 2_000_000)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "MiB", "1 parsec", "-1", "1.5MiB", "99999999999999999999", "99999999999GiB"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_are_written_in_two_units() {
        let written: Vec<String> =
            [0.25, 12.0, 90.0, 3600.0, 90_061.0].map(seconds).into_iter().collect();
        assert_eq!(written, ["250ms", "12s", "1m 30s", "1h", "1d 1h"]);
    }

    #[test]
    fn a_text_cannot_steer_the_terminal() {
        assert_eq!(one_line("a\u{1b}]0;title\u{7}\nb", 80), "a]0;title b");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    #[test]
    fn a_near_miss_is_suggested_and_a_stranger_is_not() {
        let known = ["mail".to_owned(), "reports".to_owned()];
        assert_eq!(nearest("mial", &known), Some("mail"));
        assert_eq!(nearest("report", &known), Some("reports"));
        assert_eq!(nearest("xyz", &known), None);
    }
}
