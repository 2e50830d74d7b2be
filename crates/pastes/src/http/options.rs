//! The options of a new paste, from the query, headers or form fields.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName};
use leasehold::duration;

use super::problems::PasteProblem;

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
    pub fn read(query: Option<&str>, headers: &HeaderMap) -> Result<Self, PasteProblem> {
        let mut options = Self::default();
        for (header, name) in &HEADERS {
            if let Some(value) = headers.get(header) {
                let value = value.to_str().map_err(|_| {
                    PasteProblem::malformed(format!(
                        "The header {header} has characters that no header may have."
                    ))
                })?;
                options.set(name, value)?;
            }
        }
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !options.set(&name, &value)? {
                return Err(PasteProblem::malformed(format!(
                    "There is no option {:?}. The options are expires, lang, burn and alias.",
                    shorten(&name)
                )));
            }
        }
        Ok(options)
    }

    /// Sets one option. Returns false if there is no option of that name. An empty value leaves expiry,
    /// language and alias unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, PasteProblem> {
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

fn yes_or_no(value: &str) -> Result<bool, PasteProblem> {
    match value.to_ascii_lowercase().as_str() {
        "" | "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(PasteProblem::malformed("burn must be 1 or 0.")),
    }
}

/// Reads `10m`, `1d`, `2 weeks`, `1h30m`, or a number of seconds; at least what [`EXPIRES_PATTERN`] says.
pub fn expires_in(text: &str) -> Result<Duration, PasteProblem> {
    let seconds = || text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    let time = duration::parse(text).or_else(|| Some(Duration::from_secs(seconds()?.into())));
    time.ok_or_else(|| {
        PasteProblem::malformed(format!(
            "{:?} is not a duration. Write 10m, 1d, 2 weeks, or a number of seconds.",
            shorten(text)
        ))
    })
}

macro_rules! units {
    ($w:literal $d:literal $h:literal $m:literal $s:literal) => {
        // Any of the units, from the largest to the smallest, each at most once.
        concat!(
            "^([0-9]{1,9}|",
            $w,
            "( ?",
            $d,
            ")?( ?",
            $h,
            ")?( ?",
            $m,
            ")?( ?",
            $s,
            ")?|",
            $d,
            "( ?",
            $h,
            ")?( ?",
            $m,
            ")?( ?",
            $s,
            ")?|",
            $h,
            "( ?",
            $m,
            ")?( ?",
            $s,
            ")?|",
            $m,
            "( ?",
            $s,
            ")?|",
            $s,
            ")$"
        )
    };
}

/// The accepted durations, for the OpenAPI document.
pub const EXPIRES_PATTERN: &str = units!(
    "[0-9]{1,6} ?(w|weeks?)" "[0-9]{1,6} ?(d|days?)" "[0-9]{1,8} ?(h|hours?)"
    "[0-9]{1,9} ?(m|minutes?)" "[0-9]{1,9} ?(s|seconds?)"
);

/// Cuts client text to 60 characters, the most that a response repeats.
pub fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use leasehold_http::problems::CommonProblem;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expires_in_reads_durations_and_seconds() {
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
        for bad in
            ["", "never", "-1d", "+600", "1 month", "1y", "9999999999", "1m1m", "m", "1 1", "１d"]
        {
            let refused = expires_in(bad);
            let malformed =
                matches!(refused, Err(PasteProblem::Common(CommonProblem::Malformed(_))));
            assert!(malformed, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parser_accepts_texts_of_the_pattern(text in EXPIRES_PATTERN.trim_matches(['^', '$'])) {
            prop_assert!(expires_in(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn options_are_read_from_query_or_headers() {
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
    }

    #[test]
    fn unknown_option_is_refused() {
        let headers = HeaderMap::new();
        assert!(Options::read(Some("expire=1d"), &headers).is_err());
        assert!(Options::read(Some("burn=maybe"), &headers).is_err());
    }
}
