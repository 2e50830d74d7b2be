//! The JSON of the interface: annotations in the shape of the W3C's model, and what surrounds them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::model;

pub const CONTEXT: &str = "http://www.w3.org/ns/anno.jsonld";

/// A note.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationJson {
    #[serde(rename = "@context")]
    pub context: &'static str,
    /// Its address.
    pub id: String,
    #[serde(rename = "type")]
    pub kind_of: &'static str,
    /// `commenting`, or `replying`.
    pub motivation: &'static str,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub modified: Timestamp,
    pub creator: Creator,
    /// The text, and the tags.
    pub body: Vec<TextualBody>,
    pub target: Target,
    /// The short form of `id`.
    pub key: String,
    /// `annotation`, `page_note` or `reply`.
    pub kind: &'static str,
    pub group: String,
    pub group_name: String,
    /// The notes that it replies to, the root of the conversation first.
    pub references: Vec<String>,
    pub version: i64,
    /// You wrote it.
    pub own: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Creator {
    #[serde(rename = "type")]
    pub kind_of: &'static str,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nickname: String,
}

/// The text of a note, or a tag.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TextualBody {
    /// `TextualBody`.
    #[serde(rename = "type", default = "textual_body")]
    #[schema(pattern = "^TextualBody$")]
    pub kind_of: String,
    #[schema(max_length = 65536)]
    pub value: String,
    #[serde(default)]
    pub purpose: Purpose,
    /// `text/plain`.
    #[serde(default = "plain", skip_serializing_if = "String::is_empty")]
    #[schema(pattern = "^text/plain$")]
    pub format: String,
}

pub fn textual_body() -> String {
    "TextualBody".to_owned()
}

pub fn plain() -> String {
    "text/plain".to_owned()
}

/// What a body is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    #[default]
    Commenting,
    Replying,
    Tagging,
}

/// What a note is about: a page, or a passage of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// The address of the page.
    #[schema(max_length = 2000, pattern = "^https?://[^/]")]
    pub source: String,
    /// Absent: the whole page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    pub selector: Vec<Selector>,
    /// Of the page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 300)]
    pub title: String,
}

/// How a passage is found again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Selector {
    TextQuoteSelector {
        #[schema(min_length = 1, max_length = 16384)]
        exact: String,
        #[serde(default)]
        #[schema(max_length = 200)]
        prefix: String,
        #[serde(default)]
        #[schema(max_length = 200)]
        suffix: String,
    },
    TextPositionSelector {
        start: u32,
        end: u32,
    },
}

/// A new note.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateAnnotation {
    #[serde(rename = "@context", default)]
    #[allow(dead_code, reason = "accepted, because annotations in the W3C's format have it")]
    #[schema(value_type = Option<String>)]
    pub context: Option<Value>,
    #[serde(rename = "type", default)]
    #[schema(pattern = "^Annotation$")]
    pub kind_of: Option<String>,
    /// Not needed for a reply, which is on the page of what it answers.
    #[serde(default)]
    pub target: Option<Target>,
    #[serde(default)]
    #[schema(max_items = 21)]
    pub body: Vec<TextualBody>,
    /// The group of readers. Absent: public. A reply is in the group of the note it answers; another
    /// group is refused.
    #[serde(default)]
    #[schema(max_length = 40)]
    pub group: Option<String>,
    /// The key of the note that this one answers.
    #[serde(default)]
    #[schema(pattern = "^[0-9A-Za-z]{22}$")]
    pub reply_to: Option<String>,
}

/// The changes to a note.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeAnnotation {
    /// Text and tags, complete.
    #[serde(default)]
    #[schema(max_items = 21)]
    pub body: Option<Vec<TextualBody>>,
    #[serde(default)]
    #[schema(max_length = 40)]
    pub group: Option<String>,
}

/// What a search found.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchAnswer {
    /// At most `limit`, and at most 2 MiB of them.
    #[schema(value_type = Vec<AnnotationJson>)]
    pub rows: Vec<Box<RawValue>>,
    /// The `cursor` of the next page; absent: this is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `ok`; `behind`: the index lacks a note; `down`: the database alone served the search.
    pub index: &'static str,
    /// With `url`: how many notes you may see on that page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<CountsJson>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CountsJson {
    annotations: i64,
    page_notes: i64,
    replies: i64,
}

impl From<model::Counts> for CountsJson {
    fn from(counts: model::Counts) -> Self {
        let model::Counts { annotations, page_notes, replies } = counts;
        Self { annotations, page_notes, replies }
    }
}
