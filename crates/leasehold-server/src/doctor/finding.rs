//! The result of a check, and what to do about it.

use serde::Serialize;

use crate::exit::Failure;
use crate::output::{Out, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), advice: None }
    }

    pub fn warn(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, text: text.into(), advice: Some(advice.into()) }
    }

    pub fn fail(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, text: text.into(), advice: Some(advice.into()) }
    }

    /// A check that could not run.
    pub fn unknown(check: &'static str, failure: &Failure) -> Self {
        Self::warn(
            check,
            format!("could not be checked: {failure}"),
            "run doctor as the owner of the schema; a member of pg_monitor, leasehold_operator and leasehold_producer can make most checks",
        )
    }

    pub fn text(&self, out: Out) -> String {
        let mark = match self.level {
            Level::Ok => out.paint(Style::Good, "ok  "),
            Level::Warn => out.paint(Style::Warning, "warn"),
            Level::Fail => out.paint(Style::Bad, "FAIL"),
        };
        let text = crate::text::printable(&self.text).replace('\n', &format!("\n{:27}", ""));
        let mut line = format!("{mark}  {:<20} {text}", self.check);
        if let Some(advice) = &self.advice {
            line.push_str(&format!("\n{:27}{} {advice}", "", out.paint(Style::Faint, "→")));
        }
        line
    }
}

/// One of several problems of a check, and what to do about it.
pub struct Trouble {
    pub text: String,
    pub advice: String,
}

impl Trouble {
    pub fn new(text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { text: text.into(), advice: advice.into() }
    }
}

/// Merges problems into one finding. Returns `None` if there are none.
pub fn together(check: &'static str, level: Level, troubles: &[Trouble]) -> Option<Finding> {
    /// The most problems to list.
    const MOST: usize = 10;
    if troubles.is_empty() {
        return None;
    }
    let mut lines: Vec<&str> =
        troubles.iter().take(MOST).map(|trouble| trouble.text.as_str()).collect();
    let more = format!("and {} more", troubles.len().saturating_sub(MOST));
    if troubles.len() > MOST {
        lines.push(&more);
    }
    let mut advice: Vec<&str> = Vec::new();
    for trouble in troubles.iter().take(MOST) {
        if !advice.contains(&trouble.advice.as_str()) {
            advice.push(&trouble.advice);
        }
    }
    Some(Finding {
        check,
        level,
        text: lines.join("\n"),
        advice: Some(advice.join(&format!("\n{:29}", ""))),
    })
}

/// Runs a check; if it fails, returns that it could not run.
pub async fn check(
    name: &'static str,
    looking: impl Future<Output = Result<Finding, Failure>>,
) -> Finding {
    looking.await.unwrap_or_else(|failure| Finding::unknown(name, &failure))
}
