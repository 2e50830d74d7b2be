//! Checks a job before anything is sent, so that the caller's transaction stays usable.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::EnqueueError;

/// The deepest nesting of kwargs that is accepted.
const DEEPEST: usize = 64;
/// The longest JSON text that is sent; the table's own check counts stored bytes.
const LONGEST: usize = 256 * 1024;

/// Returns the kwargs of a job as JSON. A unit struct becomes `{}`: serde makes `null` of it, and a job
/// needs an object.
pub(crate) fn kwargs_of<J: Serialize>(job: &J) -> Result<Box<RawValue>, serde_json::Error> {
    let text = serde_json::value::to_raw_value(job)?;
    if text.get() == "null" { RawValue::from_string("{}".to_owned()) } else { Ok(text) }
}

/// Rejects a text that its column cannot hold.
pub(crate) fn check_text(
    what: &str,
    text: &str,
    bytes: RangeInclusive<usize>,
) -> Result<(), EnqueueError> {
    if !bytes.contains(&text.len()) {
        return Err(EnqueueError::Refused(format!(
            "{what} has {} bytes; it must have {} to {}",
            text.len(),
            bytes.start(),
            bytes.end()
        )));
    }
    if text.contains('\0') {
        return Err(EnqueueError::Refused(format!(
            "{what} has the character NUL, which Postgres cannot store; remove it"
        )));
    }
    Ok(())
}

/// Rejects kwargs that the database cannot hold, before anything is sent.
pub(crate) fn check_json(text: &str) -> Result<(), EnqueueError> {
    if text.len() > LONGEST {
        return Err(EnqueueError::Refused(format!(
            "kwargs have {} bytes of JSON; they must have at most 65536 (64 KiB): store the bulk \
             elsewhere and enqueue a reference to it",
            text.len()
        )));
    }
    if !text.trim_start().starts_with('{') {
        return Err(EnqueueError::Refused(
            "kwargs are not a JSON object; wrap the value: {\"value\": ...}".to_owned(),
        ));
    }
    check_nesting(text).map_err(|flaw| {
        EnqueueError::Refused(match flaw {
            Flaw::Nul => "kwargs have the character NUL, which Postgres cannot store; \
                 remove it, or send the bytes in an encoding such as base64"
                .to_owned(),
            Flaw::Deep(levels) => format!(
                "kwargs nest {levels} deep; they must nest at most {DEEPEST} deep: flatten them"
            ),
        })
    })
}

/// The longest JSON text of a result.
const LONGEST_RESULT: usize = 64 * 1024;

/// Returns what is wrong with the result of a job, before anything is sent: a result that the database
/// refuses would fail the attempt.
pub(crate) fn check_result(text: &str) -> Result<(), String> {
    if text.len() > LONGEST_RESULT {
        return Err(format!(
            "the result has {} bytes of JSON; it must have at most 65536 (64 KiB): store the bulk \
             elsewhere and keep a reference to it",
            text.len()
        ));
    }
    check_nesting(text).map_err(|flaw| match flaw {
        Flaw::Nul => "the result has the character NUL, which Postgres cannot store; \
             remove it, or keep the bytes in an encoding such as base64"
            .to_owned(),
        Flaw::Deep(levels) => format!(
            "the result nests {levels} deep; it must nest at most {DEEPEST} deep: flatten it"
        ),
    })
}

/// Why the database cannot hold a JSON text.
enum Flaw {
    Nul,
    Deep(usize),
}

fn check_nesting(text: &str) -> Result<(), Flaw> {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            // A NUL, as JSON escapes it.
            b'u' if escaped && text.get(index..).is_some_and(|rest| rest.starts_with("u0000")) => {
                return Err(Flaw::Nul);
            }
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if deepest > DEEPEST { Err(Flaw::Deep(deepest)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{check_json, check_text};

    #[test]
    fn h2_deep_kwargs_are_refused_before_they_are_sent() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(64), "]".repeat(64));
        let text = check_json(&deep).expect_err("65 levels").to_string();
        assert!(text.contains("at most 64"), "{text}");
        assert!(check_json(&format!("{{\"a\":{}1{}}}", "[".repeat(63), "]".repeat(63))).is_ok());
    }

    #[test]
    fn h1_nul_is_refused_before_it_is_sent() {
        let nul = serde_json::to_string(&serde_json::json!({ "a": "x\0" })).expect("JSON");
        let text = check_json(&nul).expect_err("a NUL").to_string();
        assert!(text.contains("NUL") && text.contains("base64"), "{text}");
        // A backslash before "u0000" that is itself escaped is plain text.
        let plain = serde_json::to_string(&serde_json::json!({ "a": "\\u0000" })).expect("JSON");
        assert!(check_json(&plain).is_ok(), "{plain}");
        assert!(check_text("key", "a\0b", 1..=200).is_err());
    }

    #[test]
    fn text_longer_than_its_column_is_refused() {
        for (text, fits) in
            [("", false), ("a", true), (&*"a".repeat(200), true), (&*"a".repeat(201), false)]
        {
            assert_eq!(check_text("key", text, 1..=200).is_ok(), fits, "{} bytes", text.len());
        }
    }

    #[test]
    fn brackets_inside_strings_are_no_nesting() {
        assert!(check_json(&format!("{{\"a\":\"{}\\\"[\"}}", "[".repeat(100))).is_ok());
    }

    #[test]
    fn kwargs_that_are_not_an_object_are_refused() {
        for text in ["[1]", "1", "\"a\"", "null"] {
            assert!(check_json(text).is_err(), "{text}");
        }
    }
}
