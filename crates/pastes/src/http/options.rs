//! The options of a new paste, from the query, headers or form fields.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};

use super::errors::Failure;

/// What a client asks for; not yet checked against the settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub expires_in: Option<Duration>,
    pub alias: Option<String>,
    pub language: Option<String>,
    pub burn: bool,
}

const HEADERS: [(HeaderName, &str); 4] = [
    (HeaderName::from_static("x-expires"), "expires"),
    (HeaderName::from_static("x-alias"), "alias"),
    (HeaderName::from_static("x-language"), "lang"),
    (HeaderName::from_static("x-burn"), "burn"),
];

impl Options {
    /// Reads `?expires=1d&lang=rust&burn=1&alias=x`, and the same as `X-Expires`, `X-Language`,
    /// `X-Burn` and `X-Alias`.
    pub fn read(query: Option<&str>, headers: &HeaderMap) -> Result<Self, Failure> {
        let mut options = Self::default();
        for (header, name) in &HEADERS {
            if let Some(value) = headers.get(header) {
                let value = value.to_str().map_err(|_| {
                    Failure::malformed(format!(
                        "The header {header} has characters that it cannot have."
                    ))
                })?;
                options.set(name, value)?;
            }
        }
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !options.set(&name, &value)? {
                return Err(Failure::malformed(format!(
                    "There is no option {:?}; the options are expires, lang, burn and alias.",
                    shorten(&name)
                )));
            }
        }
        Ok(options)
    }

    /// Sets one option. Returns false if there is no option of that name. An empty value leaves expiry,
    /// language and alias unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, Failure> {
        let given = || (!value.is_empty()).then(|| value.to_owned());
        match name {
            "expires" | "expiresIn" | "expires_in" if value.is_empty() => {}
            "expires" | "expiresIn" | "expires_in" => self.expires_in = Some(expires_in(value)?),
            "lang" | "language" => self.language = given().or(self.language.take()),
            "alias" => self.alias = given().or(self.alias.take()),
            "burn" | "burnAfterReading" => self.burn = yes_or_no(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn yes_or_no(value: &str) -> Result<bool, Failure> {
    match value.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Failure::malformed("burn is 1 or 0.")),
    }
}

/// Reads `10m`, `1d`, `2 weeks`, `1h30m`, or a number of seconds; as in [`EXPIRES_PATTERN`].
pub fn expires_in(text: &str) -> Result<Duration, Failure> {
    length(text).ok_or_else(|| {
        Failure::malformed(format!(
            "{:?} is not a length of time; write 10m, 1d, 2 weeks, or a number of seconds.",
            shorten(text)
        ))
    })
}

/// The accepted lengths of time, for the OpenAPI document.
pub const EXPIRES_PATTERN: &str =
    "^([0-9]{1,9}|([0-9]{1,9} ?(s|seconds?|m|minutes?|h|hours?|d|days?|w|weeks?) ?){1,4})$";
const MOST_PARTS: usize = 4;

fn length(mut rest: &str) -> Option<Duration> {
    let mut seconds: u64 = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        parts += 1;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        if parts > MOST_PARTS || !(1..=9).contains(&digits) {
            return None;
        }
        let number: u64 = number.parse().ok()?;
        if after.is_empty() && parts == 1 {
            return Some(Duration::from_secs(number));
        }
        let after = after.strip_prefix(' ').unwrap_or(after);
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at_checked(letters)?;
        seconds = seconds.checked_add(number.checked_mul(unit_seconds(unit)?)?)?;
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    (parts > 0).then(|| Duration::from_secs(seconds))
}

fn unit_seconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "s" | "second" | "seconds" => 1,
        "m" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        _ => return None,
    })
}

/// Cuts client text to 60 characters, the most that a response repeats.
pub fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_the_way_people_write_them() {
        for (text, seconds) in [
            ("600", 600),
            ("10m", 600),
            ("1d", 86_400),
            ("2 weeks", 1_209_600),
            ("1h30m", 5400),
            ("90s", 90),
            ("1 day 2 hours", 93_600),
            ("0s", 0),
        ] {
            assert_eq!(expires_in(text).ok(), Some(Duration::from_secs(seconds)), "{text}");
        }
        for bad in [
            "",
            "never",
            "-1d",
            "1 month",
            "1y",
            "9999999999",
            "1m1m1m1m1m",
            "m",
            "1  d",
            "1 1",
            "1D",
            "1d,",
            " 1d",
            "１d",
        ] {
            assert!(matches!(expires_in(bad), Err(Failure::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn options_come_from_the_query_and_from_headers_and_unknown_ones_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("x-language", "rust".parse().expect("a value"));
        let options =
            Options::read(Some("expires=1d&burn=1&alias=a%2Db"), &headers).expect("options");
        assert_eq!(
            options,
            Options {
                expires_in: Some(Duration::from_secs(86_400)),
                alias: Some("a-b".to_owned()),
                language: Some("rust".to_owned()),
                burn: true
            }
        );
        assert!(Options::read(Some("expire=1d"), &headers).is_err());
        assert!(Options::read(Some("burn=maybe"), &headers).is_err());
    }
}
