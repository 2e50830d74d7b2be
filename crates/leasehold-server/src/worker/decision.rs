//! What a command's end means. Pure: [`super::exec`] brings the exit code and the output.
//!
//! # What is true
//! - The exit code decides; only a command that ended well may say more, in the last line that it
//!   printed.
//! - A last line that means to decide and cannot be read is a failure, never "done": taking it for
//!   done would lose the job.

use std::time::Duration;

use leasehold::{JobError, JobResult, Outcome};
use serde_json::Value;

use crate::text::parse_duration;

/// For `--help`.
pub const TABLE: &str = "\
What a command's exit code means:
  0      done, unless the last line of standard output is one of
           {\"snooze\":\"30s\"}            not now; the attempt is not counted
           {\"retry\":\"5m\",\"why\":\"…\"}    failed; again after this time
           {\"cancel\":\"why\"}            ended on purpose, without effect
           {\"bury\":\"why\"}              no attempt will help; kept for people
  65     no attempt will help (EX_DATAERR): buried, kept for people
  other  failed, 75 (EX_TEMPFAIL) and signals included: again after a back-off
The end of standard error becomes the error text.";

/// The longest wait that a command may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bad data; no attempt will help. From sysexits.h.
const EX_DATAERR: i32 = 65;

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Exit(i32),
    Signal(i32),
}

pub fn decide(end: End, stdout: &[u8], stderr: &[u8]) -> JobResult {
    match end {
        End::Exit(0) => last_word(stdout),
        End::Exit(EX_DATAERR) => Err(JobError::permanent(error_text("exit code 65", stderr))),
        End::Exit(code) => Err(JobError::retry(error_text(&format!("exit code {code}"), stderr))),
        End::Signal(signal) => {
            Err(JobError::retry(error_text(&format!("ended by signal {signal}"), stderr)))
        }
    }
}

fn error_text(how: &str, stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    match said.trim() {
        "" => how.to_owned(),
        said => format!("{how}: {said}"),
    }
}

/// What the last line of the output says, for a command that ended well.
fn last_word(stdout: &[u8]) -> JobResult {
    let text = String::from_utf8_lossy(stdout);
    let line = text.trim_end().lines().next_back().unwrap_or_default().trim();
    let Ok(Value::Object(said)) = serde_json::from_str(line) else {
        return Ok(Outcome::Done);
    };
    let verbs: Vec<&str> = ["snooze", "retry", "cancel", "bury"]
        .into_iter()
        .filter(|verb| said.contains_key(*verb))
        .collect();
    let text = |key: &str| said.get(key).and_then(Value::as_str);
    let time = |key: &str| {
        text(key).and_then(|text| parse_duration(text).ok()).filter(|time| *time <= LONGEST_WAIT)
    };
    let known = said.keys().all(|key| verbs.contains(&key.as_str()) || key == "why");
    let decided = match verbs.as_slice() {
        [] => return Ok(Outcome::Done), // a program that prints JSON of its own
        _ if !known => None,
        ["snooze"] => time("snooze").map(|wait| Ok(Outcome::Snooze(wait))),
        ["retry"] => time("retry").map(|after| {
            let why = text("why").unwrap_or("the command asked for another attempt").to_owned();
            Ok(Outcome::Retry { after, why })
        }),
        ["cancel"] => text("cancel").map(|why| Ok(Outcome::Cancel(why.to_owned()))),
        ["bury"] => text("bury").map(|why| Err(JobError::permanent(why))),
        _ => None,
    };
    decided.unwrap_or_else(|| {
        let start: String = line.chars().take(200).collect();
        Err(JobError::retry(format!(
            "exit code 0, but the last line of the output is no decision that can be read: {start}"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> JobResult {
        decide(End::Exit(0), format!("working…\n{line}\n\n").as_bytes(), b"")
    }

    fn failed(result: JobResult) -> String {
        format!("{:?}", result.expect_err("an error"))
    }

    #[test]
    fn exit_codes_decide() {
        assert_eq!(decide(End::Exit(0), b"", b"noise").expect("ok"), Outcome::Done);
        for code in [1, 2, 75, 126, 127, 255] {
            let text = failed(decide(End::Exit(code), b"{\"snooze\":\"1s\"}", b" line busy\n"));
            assert!(text.contains(&format!("exit code {code}: line busy")), "{text}");
            assert!(text.contains("permanent: false"), "{text}");
        }
        let text = failed(decide(End::Exit(65), b"", b"no such customer"));
        assert!(text.contains("permanent: true") && text.contains("no such customer"), "{text}");
        let text = failed(decide(End::Signal(9), b"", b""));
        assert!(text.contains("signal 9") && text.contains("permanent: false"), "{text}");
    }

    #[test]
    fn the_last_line_decides_finer() {
        assert_eq!(
            said(r#"{"snooze":"30s"}"#).expect("ok"),
            Outcome::Snooze(Duration::from_secs(30))
        );
        let retry = Outcome::Retry { after: Duration::from_secs(300), why: "busy".into() };
        assert_eq!(said(r#"{"retry":"5m","why":"busy"}"#).expect("ok"), retry);
        assert_eq!(said(r#"{"cancel":"gone"}"#).expect("ok"), Outcome::Cancel("gone".into()));
        assert!(failed(said(r#"{"bury":"bad"}"#)).contains("permanent: true"));
        for other in ["", "done", "[1]", "42", r#"{"sent":3}"#, r#"{"snooze":"30s"} trailing"#] {
            assert_eq!(said(other).expect("ok"), Outcome::Done, "{other}");
        }
    }

    #[test]
    fn a_decision_that_cannot_be_read_is_not_taken_for_done() {
        for unclear in [
            r#"{"snooze":30}"#,
            r#"{"snooze":"soon"}"#,
            r#"{"retry":"999999h"}"#,
            r#"{"cancel":true}"#,
            r#"{"snooze":"1s","cancel":"x"}"#,
            r#"{"retry":"1s","wyh":"x"}"#,
        ] {
            assert!(failed(said(unclear)).contains("permanent: false"), "{unclear}");
        }
    }
}
