//! The fields of an annotation in the index.
//!
//! # Invariants
//! - Both stores share the same checks: what one refuses, the other refuses too, for the same reason and
//!   before anything is sent.
//! - An absent field and a null one are the same. Fields that are not named here are ignored.
//!
//! # What can go wrong
//! - A field has another type, or more bytes than a store takes: the document is refused for good, with
//!   the name of the field, and the others are stored.

use jiff::Timestamp;
use leasehold::mirror::{ItemError, Write, fingerprint};
use serde_json::Value;

/// The longest id that OpenSearch takes.
pub const KEY_BYTES: usize = 512;
/// The longest field that is compared as a whole. Lucene refuses 32 KiB and more.
pub const KEYWORD_BYTES: usize = 8 * 1024;
/// The longest quote or text.
pub const TEXT_BYTES: usize = 1024 * 1024;
pub const TAGS: usize = 1000;

/// The fields of an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    pub url: String,
    pub user: String,
    pub group: String,
    /// `annotation`, `page_note` or `reply`.
    pub kind: String,
    pub quote: String,
    pub text: String,
    pub tags: Vec<String>,
    /// The note that it replies to, and the root of that conversation.
    pub parent: Option<String>,
    pub root: Option<String>,
    /// In microseconds since 1970, as Postgres counts. In JSON also as RFC 3339.
    pub created: i64,
    pub updated: i64,
}

impl Document {
    /// Reads the document that the mirror's statement built from a row.
    pub fn from_json(value: &Value) -> Result<Self, ItemError> {
        let Some(fields) = value.as_object() else {
            return Err(refused("the document must be a JSON object"));
        };
        let get = |name: &str| fields.get(name).filter(|value| !value.is_null());
        let word = |name: &str, most: usize| match get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= most => Ok(Some(text.clone())),
            Some(Value::String(text)) => Err(refused(format!(
                "{name} has {} bytes; it must have at most {most}",
                text.len()
            ))),
            Some(_) => Err(refused(format!("{name} must be a text"))),
        };
        let keyword = |name: &str| word(name, KEYWORD_BYTES);
        let text = |name: &str| Ok(word(name, TEXT_BYTES)?.unwrap_or_default());
        Ok(Self {
            url: keyword("url")?.unwrap_or_default(),
            user: keyword("user")?.unwrap_or_default(),
            group: keyword("group")?.unwrap_or_default(),
            kind: keyword("kind")?.unwrap_or_default(),
            quote: text("quote")?,
            text: text("text")?,
            tags: tags(get("tags"))?,
            parent: keyword("parent")?,
            root: keyword("root")?,
            created: micros("created", get("created"))?,
            updated: micros("updated", get("updated"))?,
        })
    }

    /// Returns the notes whose replies include this one. The note itself is not among them.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        let root = self.root.as_deref().filter(|root| self.parent.as_deref() != Some(*root));
        self.parent.as_deref().into_iter().chain(root)
    }

    /// Returns the texts that full-text search covers.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        [self.quote.as_str(), self.text.as_str()]
            .into_iter()
            .chain(self.tags.iter().map(String::as_str))
            .filter(|text| !text.is_empty())
    }
}

/// Returns a tag in the form that is compared: users write the same tag in several ways.
pub fn fold_tag(tag: &str) -> String {
    tag.trim().to_lowercase()
}

/// A write that has passed the checks.
pub(crate) struct Checked<'a> {
    pub key: &'a str,
    pub version: i64,
    pub a: u32,
    pub b: u32,
    /// `None`: a deletion.
    pub document: Option<Document>,
    pub forced: bool,
}

impl<'a> Checked<'a> {
    pub fn new(write: &'a Write) -> Result<Self, ItemError> {
        let Write { key, version, document, forced } = write;
        if key.is_empty() || key.len() > KEY_BYTES {
            let length = key.len();
            return Err(refused(format!(
                "the key has {length} bytes; it must have 1 to {KEY_BYTES}"
            )));
        }
        if *version < 0 {
            return Err(refused(format!("the version is {version}; it must be at least 0")));
        }
        let (a, b) = fingerprint(key, *version);
        let document = document.as_ref().map(Document::from_json).transpose()?;
        Ok(Self { key, version: *version, a, b, document, forced: *forced })
    }
}

fn tags(value: Option<&Value>) -> Result<Vec<String>, ItemError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| refused("tags must be a list"))?;
    if list.len() > TAGS {
        return Err(refused(format!("there are {} tags; at most {TAGS} are allowed", list.len())));
    }
    let tag = |value: &Value| match value.as_str() {
        Some(tag) if tag.len() <= KEYWORD_BYTES => Ok(tag.to_owned()),
        Some(tag) => Err(refused(format!(
            "a tag has {} bytes; it must have at most {KEYWORD_BYTES}",
            tag.len()
        ))),
        None => Err(refused("a tag must be a text")),
    };
    list.iter().map(tag).collect()
}

fn micros(name: &str, value: Option<&Value>) -> Result<i64, ItemError> {
    match value {
        None => Ok(0),
        Some(Value::String(text)) => text
            .parse::<Timestamp>()
            .map(Timestamp::as_microsecond)
            .map_err(|error| refused(format!("{name} is not a time: {error}"))),
        Some(value) => value.as_i64().ok_or_else(|| refused(format!("{name} is not a time"))),
    }
}

fn refused(why: impl Into<String>) -> ItemError {
    ItemError::Refused(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn why(value: &Value) -> String {
        Document::from_json(value).unwrap_err().to_string()
    }

    #[test]
    fn document_reads_times_of_postgres_and_numbers() {
        let written = json!({ "created": "2026-11-16T02:33:08.123456+00:00", "updated": 5 });
        let document = Document::from_json(&written).unwrap();
        assert_eq!(document.created, 1_794_796_388_123_456);
        assert_eq!(document.updated, 5);
    }

    #[test]
    fn document_treats_null_as_absent() {
        let empty = Document::from_json(&json!({})).unwrap();
        let nulls = json!({ "url": null, "tags": null, "updated": null });
        assert_eq!(Document::from_json(&nulls).unwrap(), empty);
    }

    #[test]
    fn document_ignores_unknown_fields() {
        let empty = Document::from_json(&json!({})).unwrap();
        assert_eq!(Document::from_json(&json!({ "stranger": [1] })).unwrap(), empty);
    }

    #[test]
    fn document_error_names_the_field_that_no_store_accepts() {
        assert!(why(&json!([])).contains("a JSON object"));
        assert!(why(&json!({ "url": 5 })).contains("url must be a text"));
        assert!(why(&json!({ "tags": "a" })).contains("tags must be a list"));
        assert!(why(&json!({ "tags": [5] })).contains("a tag must be a text"));
        assert!(why(&json!({ "updated": "soon" })).contains("updated is not a time"));
        assert!(why(&json!({ "updated": 1.5 })).contains("updated is not a time"));
        assert!(why(&json!({ "user": "x".repeat(KEYWORD_BYTES + 1) })).contains("user has 8193"));
        assert!(why(&json!({ "text": "x".repeat(TEXT_BYTES + 1) })).contains("text has 1048577"));
    }

    #[test]
    fn reply_to_the_root_references_it_once() {
        let reply = json!({ "parent": "a", "root": "a" });
        let reply = Document::from_json(&reply).unwrap();
        assert_eq!(reply.references().collect::<Vec<_>>(), ["a"]);
        let deeper = Document::from_json(&json!({ "parent": "b", "root": "a" })).unwrap();
        assert_eq!(deeper.references().collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn write_with_an_impossible_key_or_version_is_refused() {
        let write = |key: &str, version| Write {
            key: key.to_owned(),
            version,
            document: None,
            forced: false,
        };
        assert!(Checked::new(&write("", 1)).is_err());
        assert!(Checked::new(&write(&"k".repeat(KEY_BYTES + 1), 1)).is_err());
        assert!(Checked::new(&write("k", -1)).is_err());
        assert!(Checked::new(&write(&"k".repeat(KEY_BYTES), 0)).is_ok());
    }
}
