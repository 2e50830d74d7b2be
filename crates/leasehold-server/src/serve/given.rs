//! Values from the command line, on their way to the settings of a service.

use std::str::FromStr;
use std::time::Duration;

use crate::exit::Failure;
use crate::text::{parse_duration, parse_size};

/// A duration, such as `30s`.
#[derive(Clone, Copy, Debug)]
pub struct Time(Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Self {
        time.0
    }
}

/// Bytes, such as `1MiB`.
#[derive(Clone, Copy, Debug)]
pub struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self)
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

impl From<Size> for usize {
    fn from(size: Size) -> Self {
        Self::try_from(size.0).unwrap_or(Self::MAX)
    }
}

/// Sets a value if one is given.
pub fn set<T>(setting: &mut T, given: Option<impl Into<T>>) {
    if let Some(given) = given {
        *setting = given.into();
    }
}

/// Parses a token that the operator chose. An empty one, as in an empty variable, counts as none.
pub fn operator_token<T>(
    given: Option<&str>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(given) = given.filter(|token| !token.is_empty()) else { return Ok(None) };
    parse(given).map(Some).ok_or_else(|| {
        Failure::usage("the token does not have 16 to 128 printable characters")
            .hint("make one: openssl rand -hex 24")
    })
}

#[cfg(test)]
pub mod tests {
    use std::fmt::Debug;

    use clap::{Args, Parser};

    #[derive(Parser)]
    struct Line<O: Args> {
        #[command(flatten)]
        options: O,
    }

    /// Parses options from a command line.
    pub fn options<O: Args>(args: &[&str]) -> Result<O, String> {
        let line = Line::try_parse_from([&["x"], args].concat());
        line.map(|line| line.options).map_err(|error| error.to_string())
    }

    /// Returns the fields that are the same in both settings.
    pub fn the_same(own: &impl Debug, given: &impl Debug) -> Vec<String> {
        let (own, given) = (format!("{own:#?}"), format!("{given:#?}"));
        let is_value =
            |line: &str| line.contains(": ") && !line.ends_with('{') && !line.ends_with('(');
        let both = own.lines().zip(given.lines());
        both.filter(|(own, given)| is_value(own) && own == given)
            .map(|(own, _)| own.trim().to_owned())
            .collect()
    }
}
