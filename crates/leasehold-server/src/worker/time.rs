//! Times as people write them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// The longest wait that a program or a receiver may ask for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

pub fn duration(text: &str) -> Result<Duration, String> {
    let read = text.trim().parse::<jiff::SignedDuration>().ok();
    read.and_then(|time| Duration::try_from(time).ok())
        .ok_or_else(|| format!("{text:?} is not a time; write 500ms, 30s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            (" 2 h ", 7_200_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "-5s", "soon", "5s ago", "1 month"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
