//! Bulk requests, and the result of each change.
//!
//! # Invariants
//! - Every change has its version, and OpenSearch keeps the newer one: a late change gets 409, which is
//!   no failure.
//! - A bulk request gets 200 even if none of it was stored, so every item is checked.

use leasehold::mirror::{ItemError, TargetError, Tombstone, Written};
use serde_json::{Value, json};

use super::mapping;
use crate::index::document::Checked;

/// One change, ready to send.
pub struct Item {
    /// The position of its result.
    pub at: usize,
    pub lines: String,
}

pub fn put(at: usize, write: &Checked<'_>, now: i64) -> Item {
    let kind = if write.forced { "external_gte" } else { "external" };
    let action = json!({ "index": {
        "_id": write.key, "version": write.version, "version_type": kind,
    } });
    Item { at, lines: format!("{action}\n{}\n", mapping::document(write, now)) }
}

/// Removes a tombstone for good. A newer version stays.
pub fn remove(at: usize, gone: &Tombstone) -> Item {
    let action = json!({ "delete": {
        "_id": gone.key, "version": gone.version, "version_type": "external_gte",
    } });
    Item { at, lines: format!("{action}\n") }
}

/// Splits items into requests of at most `most` bytes. A larger item goes alone.
pub fn chunks(items: Vec<Item>, most: usize) -> Vec<Vec<Item>> {
    let mut chunks: Vec<Vec<Item>> = Vec::new();
    let mut room = 0;
    for item in items {
        match chunks.last_mut() {
            Some(chunk) if item.lines.len() <= room => {
                room -= item.lines.len();
                chunk.push(item);
            }
            _ => {
                room = most.saturating_sub(item.lines.len());
                chunks.push(vec![item]);
            }
        }
    }
    chunks
}

/// The result of a bulk request, item by item.
#[derive(Debug, PartialEq)]
pub enum Answered {
    Items(Vec<Result<Written, ItemError>>),
    /// The set does not exist.
    NoSet,
}

/// Reads the response to a request of `sent` items.
pub fn answers(answer: &Value, sent: usize) -> Result<Answered, TargetError> {
    let items = answer.get("items").and_then(Value::as_array).map(Vec::as_slice);
    let items = items.unwrap_or_default();
    if items.len() != sent {
        // Results cannot be assigned to items, so nothing may count as stored.
        let got = items.len();
        return Err(TargetError::Down(format!(
            "{sent} changes were sent, and the response has {got} results"
        )));
    }
    let mut answers = Vec::with_capacity(sent);
    for item in items {
        let item = item.as_object().and_then(|item| item.values().next()).unwrap_or(&Value::Null);
        let status = item.get("status").and_then(Value::as_u64).unwrap_or_default();
        let error = item.get("error");
        let kind = error.and_then(|error| error.get("type")).and_then(Value::as_str);
        if kind == Some("index_not_found_exception") {
            return Ok(Answered::NoSet);
        }
        answers.push(match status {
            200 | 201 => Ok(Written::Stored),
            // A deletion of a document that does not exist.
            404 if error.is_none() => Ok(Written::Stored),
            409 => Ok(Written::Newer),
            400 | 413 => Err(ItemError::Refused(reason(error))),
            _ => Err(ItemError::Busy(format!("status {status}: {}", reason(error)))),
        });
    }
    Ok(Answered::Items(answers))
}

/// Returns the error of OpenSearch, with the cause that names the field.
pub fn reason(error: Option<&Value>) -> String {
    /// Some errors quote the whole document.
    const MOST: usize = 500;
    let text = |error: &Value| {
        let word = |name| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{}: {}", word("type"), word("reason"))
    };
    let Some(error) = error.filter(|error| !error.is_null()) else {
        return "OpenSearch gave no reason".to_owned();
    };
    let reason = match (error.as_str(), error.get("caused_by")) {
        (Some(plain), _) => plain.to_owned(),
        (None, Some(cause)) => format!("{}; {}", text(error), text(cause)),
        (None, None) => text(error),
    };
    reason.chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(status: u64, error: Value) -> Value {
        let mut item = json!({ "_id": "k", "status": status });
        if !error.is_null() {
            item["error"] = error;
        }
        json!({ "index": item })
    }

    #[test]
    fn f11_each_bulk_item_has_its_own_result() {
        let mapping = json!({ "type": "mapper_parsing_exception", "reason": "failed to parse",
            "caused_by": { "type": "illegal_argument_exception", "reason": "For input: soon" } });
        let answer = json!({ "errors": true, "items": [
            item(201, Value::Null),
            item(409, json!({ "type": "version_conflict_engine_exception", "reason": "…" })),
            item(400, mapping),
            item(429, json!({ "type": "rejected_execution_exception", "reason": "full" })),
            item(503, Value::Null),
        ] });
        let Answered::Items(answers) = answers(&answer, 5).unwrap() else { panic!("no set") };
        assert_eq!(answers[0], Ok(Written::Stored));
        assert_eq!(answers[1], Ok(Written::Newer));
        let Err(ItemError::Refused(why)) = &answers[2] else { panic!("{:?}", answers[2]) };
        assert!(why.contains("For input: soon"), "{why}");
        assert!(matches!(&answers[3], Err(ItemError::Busy(why)) if why.contains("429")));
        assert!(matches!(&answers[4], Err(ItemError::Busy(_))));
    }

    #[test]
    fn bulk_response_with_too_few_items_stores_nothing() {
        let answer = json!({ "items": [item(201, Value::Null)] });
        assert!(matches!(answers(&answer, 2), Err(TargetError::Down(_))));
        for garbage in [json!(null), json!([]), json!({ "items": 5 }), json!("ok")] {
            assert!(answers(&garbage, 1).is_err(), "{garbage}");
        }
        let odd = json!({ "items": [5] });
        assert!(matches!(answers(&odd, 1), Ok(Answered::Items(items)) if items[0].is_err()));
    }

    #[test]
    fn chunks_split_by_bytes_and_leave_a_large_item_alone() {
        let item = |at, bytes| Item { at, lines: "x".repeat(bytes) };
        let cut = chunks(vec![item(0, 4), item(1, 4), item(2, 20), item(3, 1), item(4, 9)], 10);
        let cut: Vec<Vec<usize>> =
            cut.iter().map(|chunk| chunk.iter().map(|item| item.at).collect()).collect();
        assert_eq!(cut, [vec![0, 1], vec![2], vec![3, 4]]);
    }
}
