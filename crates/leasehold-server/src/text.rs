//! Text: durations, sizes, suggestions for typos, and escaping for terminals.
//!
//! Durations are read and printed by [`leasehold::duration`], on every page and in every command.

use std::time::Duration;

use jiff::Timestamp;
use leasehold::duration;

pub use leasehold::duration::short as print_duration;

/// Parses `30s`, `5m`, `1h30m`, `2 days`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text.trim().trim_start_matches('+'))
        .ok_or_else(|| format!("{text:?} is not a duration; write 30s, 5m, 1h30m or 2 days"))
}

/// Returns a parser of whole numbers within bounds. Its error says what to write.
pub fn whole<T: TryFrom<i64> + 'static>(
    least: i64,
    most: i64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.trim().parse::<i64>().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("write a whole number from {least} to {most}"))
    }
}

/// Like [`print_duration`], for the seconds that a query returns.
pub fn seconds(time: f64) -> String {
    print_duration(Duration::try_from_secs_f64(time.max(0.0)).unwrap_or(Duration::MAX))
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

/// Formats the distance of a time from now: `12s ago`, `in 5m`.
pub fn relative(moment: Timestamp, now: Timestamp) -> String {
    let distance = moment.duration_since(now);
    match (distance.unsigned_abs(), distance.is_negative()) {
        (near, _) if near < Duration::from_secs(1) => "now".to_owned(),
        (far, true) => format!("{} ago", print_duration(far)),
        (far, false) => format!("in {}", print_duration(far)),
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
        .filter(|c| is_harmless(*c))
        .collect();
    match clean.char_indices().nth(most) {
        Some(_) => clean.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => clean,
    }
}

/// Removes control characters from a text of several lines.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| is_harmless(*c) || *c == '\n' || *c == '\t').collect()
}

/// False for control characters, and for those that change the direction of the text or are invisible:
/// they make a name look like another one.
fn is_harmless(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
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
    fn parse_duration_reads_usual_spellings() {
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
    fn whole_reads_numbers_within_bounds() {
        assert_eq!(whole::<u32>(1, 10)("10"), Ok(10));
        for bad in ["0", "11", "abc", "", "1.5", "99999999999999999999"] {
            let error = whole::<u32>(1, 10)(bad).expect_err(bad);
            assert_eq!(error, "write a whole number from 1 to 10");
        }
    }

    #[test]
    fn parse_size_reads_usual_spellings() {
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
    fn seconds_of_a_query_are_printed_whatever_they_are() {
        for (time, text) in [(-1.0, "0s"), (0.25, "250ms"), (1e300, "thousands of years")] {
            assert_eq!(seconds(time), text, "{time}");
        }
    }

    #[test]
    fn one_line_removes_escape_sequences() {
        assert_eq!(one_line("a\u{1b}]0;title\u{7}\nb", 80), "a]0;title b");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    #[test]
    fn text_for_a_terminal_has_no_characters_that_change_its_direction() {
        let evil = "pay\u{202e}lia\u{2066}m\u{200b}";
        assert_eq!(one_line(evil, 80), "payliam");
        assert_eq!(printable(evil), "payliam");
        assert_eq!(printable("Ünïcode العربية 日本"), "Ünïcode العربية 日本");
    }

    #[test]
    fn nearest_suggests_only_similar_words() {
        let known = ["mail".to_owned(), "reports".to_owned()];
        assert_eq!(nearest("mial", &known), Some("mail"));
        assert_eq!(nearest("report", &known), Some("reports"));
        assert_eq!(nearest("xyz", &known), None);
    }
}
