//! Maps the end of a command to an outcome. Pure: [`super::exec`] passes the exit code and the output.
//!
//! # Invariants
//! - The exit code decides; only a command that ended with 0 may decide more, in the last line of its
//!   output.
//! - A last line that looks like a decision, also a mistyped one, and cannot be read as one is a failure,
//!   never a completion: a mistyped decision that completed the job would lose it. A line of JSON without such
//!   a key is the program's own output: failing it would repeat work that succeeded.

use std::time::Duration;

use leasehold::{JobError, JobResult, Outcome};
use serde_json::Value;

use crate::text::parse_duration;

/// For `--help`.
pub const TABLE: &str = "\
Meaning of a command's exit code:
  0      completed, unless the last line of standard output is one of
           {\"snooze\":\"30s\"}            not now; the attempt is not counted
           {\"retry\":\"5m\",\"why\":\"…\"}    failed; retried after this time
           {\"cancel\":\"why\"}            cancelled: ended on purpose, without effect
           {\"bury\":\"why\"}              dead: no attempt will help
  65     dead: no attempt will help (EX_DATAERR)
  other  failed, 75 (EX_TEMPFAIL) and signals included; retried after the backoff
Any other JSON object on the last line is a failure: a command that prints JSON prints another line after it.
A snooze lasts at least 1 s, a wait at most 365 days.
The end of standard error becomes the error text.";

/// The decisions of a command.
const VERBS: [&str; 4] = ["snooze", "retry", "cancel", "bury"];
/// The longest wait that a command may request.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);
const SHORTEST_SNOOZE: Duration = Duration::from_secs(1);
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
    let output = String::from_utf8_lossy(stderr);
    match output.trim() {
        "" => how.to_owned(),
        output => format!("{how}: {output}"),
    }
}

/// Parses the last line of the output of a command that ended with 0.
fn last_word(stdout: &[u8]) -> JobResult {
    let text = String::from_utf8_lossy(stdout);
    let line = text.trim_end().lines().next_back().unwrap_or_default().trim();
    let object = match serde_json::from_str(line) {
        Ok(Value::Object(object)) => object,
        // Malformed, or cut at its beginning, but a decision: to complete the job would lose it.
        // It has a brace: plain text may quote these words, as `action="cancel"` does.
        Err(_)
            if line.contains(['{', '}'])
                && VERBS.iter().any(|verb| line.contains(&format!("\"{verb}\""))) =>
        {
            return Err(unreadable(line));
        }
        _ => return Ok(Outcome::Complete),
    };
    let verbs: Vec<&str> = VERBS.into_iter().filter(|verb| object.contains_key(*verb)).collect();
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let time = |key: &str| {
        text(key).and_then(|text| parse_duration(text).ok()).map(|time| time.min(LONGEST_WAIT))
    };
    let known = object.keys().all(|key| verbs.contains(&key.as_str()) || key == "why");
    let decided = match verbs.as_slice() {
        // A program that prints its own JSON, and no key of it is a mistyped decision.
        [] if !object.keys().any(|key| is_mistyped(key)) => return Ok(Outcome::Complete),
        _ if !known => None,
        // A snooze counts no attempt: without a minimum wait the command would run in an endless loop.
        ["snooze"] => time("snooze").map(|wait| Ok(Outcome::Snooze(wait.max(SHORTEST_SNOOZE)))),
        ["retry"] => time("retry").map(|after| {
            let why = text("why").unwrap_or("the command asked for another attempt").to_owned();
            Ok(Outcome::Retry { after, why })
        }),
        ["cancel"] => text("cancel").map(|why| Ok(Outcome::Cancel(why.to_owned()))),
        ["bury"] => text("bury").map(|why| Err(JobError::permanent(why))),
        _ => None,
    };
    decided.unwrap_or_else(|| Err(unreadable(line)))
}

/// Returns whether a key is nearly a verb: one of four letters or more that differs in case or in one letter.
fn is_mistyped(key: &str) -> bool {
    let key = key.to_lowercase();
    key.len() >= 4 && VERBS.iter().any(|verb| strsim::osa_distance(&key, verb) <= 1)
}

fn unreadable(line: &str) -> JobError {
    let start: String = line.chars().take(200).collect();
    JobError::retry(format!(
        "exit code 0, but the last line of the output cannot be read as a decision; print one JSON \
         object of the table in leasehold worker --help, alone on that line: {start}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> JobResult {
        decide(End::Exit(0), format!("working…\n{line}\n\n").as_bytes(), b"")
    }

    fn failed(result: JobResult) -> String {
        format!("{:?}", result.expect_err("an error"))
    }

    #[test]
    fn decision_that_cannot_be_parsed_is_a_failure() {
        for line in [
            r#"{"retry":"1s","why":"said "no" to us"}"#,
            "{\"bury\":\"tab\there\"}",
            r#"{"snooze""#,
            r#"{"bury":"trail"};"#,
            "\u{feff}{\"bury\":\"bom\"}",
            r#"…rest of a long line","bury":"x"}"#,
        ] {
            assert!(failed(parse(line)).contains("cannot be read as a decision"), "{line}");
        }
        for line in ["{not json}", r#"level=info action="cancel""#] {
            assert_eq!(parse(line).expect("ok"), Outcome::Complete, "{line}");
        }
    }

    #[test]
    fn decide_maps_each_exit_code() {
        assert_eq!(decide(End::Exit(0), b"", b"noise").expect("ok"), Outcome::Complete);
        for code in [1, 2, 75, 126, 127, 255] {
            let text = failed(decide(End::Exit(code), b"{\"snooze\":\"1s\"}", b" line busy\n"));
            assert!(text.contains(&format!("exit code {code}: line busy")), "{text}");
            assert!(text.contains("reason: Failed"), "{text}");
        }
        let text = failed(decide(End::Exit(65), b"", b"no such customer"));
        assert!(text.contains("reason: Permanent") && text.contains("no such customer"), "{text}");
        let text = failed(decide(End::Signal(9), b"", b""));
        assert!(text.contains("signal 9") && text.contains("reason: Failed"), "{text}");
    }

    #[test]
    fn last_line_of_output_refines_success() {
        assert_eq!(
            parse(r#"{"snooze":"30s"}"#).expect("ok"),
            Outcome::Snooze(Duration::from_secs(30))
        );
        let retry = Outcome::Retry { after: Duration::from_secs(300), why: "busy".into() };
        assert_eq!(parse(r#"{"retry":"5m","why":"busy"}"#).expect("ok"), retry);
        let longest = Outcome::Retry { after: LONGEST_WAIT, why: "busy".into() };
        assert_eq!(parse(r#"{"retry":"999999h","why":"busy"}"#).expect("ok"), longest);
        for (asked, waits) in [("0s", SHORTEST_SNOOZE), ("3650d", LONGEST_WAIT)] {
            let snooze = parse(&format!(r#"{{"snooze":"{asked}"}}"#)).expect("ok");
            assert_eq!(snooze, Outcome::Snooze(waits), "{asked}");
        }
        assert_eq!(parse(r#"{"cancel":"gone"}"#).expect("ok"), Outcome::Cancel("gone".into()));
        assert!(failed(parse(r#"{"bury":"bad"}"#)).contains("reason: Permanent"));
        for other in ["", "done", "[1]", "42", r#"{"sent":3}"#] {
            assert_eq!(parse(other).expect("ok"), Outcome::Complete, "{other}");
        }
    }

    #[test]
    fn unreadable_decision_is_not_success() {
        for unclear in [
            r#"{"snooze":30}"#,
            r#"{"snooze":"soon"}"#,
            r#"{"cancel":true}"#,
            r#"{"snooze":"1s","cancel":"x"}"#,
            r#"{"retry":"1s","wyh":"x"}"#,
            r#"{"snoze":"1s"}"#,
            r#"{"Cancel":"gone"}"#,
            r#"{"snooze":"30s"} trailing"#,
        ] {
            assert!(failed(parse(unclear)).contains("reason: Failed"), "{unclear}");
        }
    }
}
