//! What travels: annotations in the shape of the W3C's model, and what stands around them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::errors::Failure;
use super::web::Web;
use crate::id::AnnotationId;
use crate::model::{self, Annotation, Change, Kind, NewAnnotation};

pub const CONTEXT: &str = "http://www.w3.org/ns/anno.jsonld";

/// A note.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnotationJson {
    #[serde(rename = "@context")]
    context: &'static str,
    /// Where it is.
    id: String,
    #[serde(rename = "type")]
    kind_of: &'static str,
    /// `commenting`, or `replying`.
    motivation: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    modified: Timestamp,
    creator: Creator,
    /// The text, and the tags.
    body: Vec<TextualBody>,
    target: Target,
    /// The short form of `id`.
    key: String,
    /// `annotation`, `page_note` or `reply`.
    kind: &'static str,
    group: String,
    group_name: String,
    /// What it replies to, the beginning of the conversation first.
    references: Vec<String>,
    version: i64,
    /// Whoever asks wrote it.
    own: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Creator {
    #[serde(rename = "type")]
    kind_of: &'static str,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    nickname: String,
}

/// A text: what somebody says, or a tag.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TextualBody {
    /// `TextualBody`.
    #[serde(rename = "type", default = "textual_body")]
    #[schema(pattern = "^TextualBody$")]
    kind_of: String,
    #[schema(max_length = 10000)]
    value: String,
    #[serde(default)]
    purpose: Purpose,
    /// `text/plain`.
    #[serde(default = "plain", skip_serializing_if = "String::is_empty")]
    #[schema(pattern = "^text/plain$")]
    format: String,
}

fn textual_body() -> String {
    "TextualBody".to_owned()
}

fn plain() -> String {
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
    #[schema(max_length = 2000, pattern = "^https?://[a-z]")]
    source: String,
    /// Absent: the whole page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 2)]
    selector: Vec<Selector>,
    /// Of the page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 300)]
    title: String,
}

/// How a passage is found again.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", deny_unknown_fields)]
pub enum Selector {
    TextQuoteSelector {
        #[schema(min_length = 1, max_length = 4000)]
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

/// A note to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateAnnotation {
    #[serde(rename = "@context", default)]
    #[allow(dead_code, reason = "taken so that an annotation of the W3C's form is taken as it is")]
    #[schema(value_type = Option<String>)]
    context: Option<Value>,
    #[serde(rename = "type", default)]
    #[schema(pattern = "^Annotation$")]
    kind_of: Option<String>,
    /// Not needed for a reply, which is on the page of what it answers.
    #[serde(default)]
    target: Option<Target>,
    #[serde(default)]
    #[schema(max_items = 21)]
    body: Vec<TextualBody>,
    /// Who may read it. Absent: everybody.
    #[serde(default)]
    #[schema(max_length = 40)]
    group: Option<String>,
    /// The key of the note that this one answers.
    #[serde(default)]
    #[schema(pattern = "^[0-9A-Za-z]{22}$")]
    reply_to: Option<String>,
}

/// What is to be different.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeAnnotation {
    /// Text and tags, all of them.
    #[serde(default)]
    #[schema(max_items = 21)]
    body: Option<Vec<TextualBody>>,
    #[serde(default)]
    #[schema(max_length = 40)]
    group: Option<String>,
}

/// What a search found.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchAnswer {
    pub rows: Vec<AnnotationJson>,
    /// For `cursor`; absent: that was all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// `ok`; `behind`: the index lacks something; `down`: the database answered alone.
    pub index: &'static str,
    /// With `url`: what you may see on that page.
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

impl AnnotationJson {
    pub fn of(web: &Web, row: &Annotation, viewer: Option<i64>) -> Self {
        let purpose = match row.kind {
            Kind::Reply => Purpose::Replying,
            _ => Purpose::Commenting,
        };
        let mut body = vec![textual(&row.text, purpose)];
        body.extend(row.tags.iter().map(|tag| textual(tag, Purpose::Tagging)));
        let mut references: Vec<String> = row.root.iter().chain(&row.parent).cloned().collect();
        references.dedup();
        Self {
            context: CONTEXT,
            id: format!("{}/api/annotations/{}", web.base_url, row.id),
            kind_of: "Annotation",
            motivation: if row.kind == Kind::Reply { "replying" } else { "commenting" },
            created: row.created_at,
            modified: row.updated_at,
            creator: Creator {
                kind_of: "Person",
                name: row.user_name.clone(),
                nickname: row.display_name.clone(),
            },
            body,
            target: Target {
                source: row.url.clone(),
                selector: serde_json::from_value(row.selectors.clone()).unwrap_or_default(),
                title: row.title.clone(),
            },
            key: row.id.to_string(),
            kind: row.kind.as_str(),
            group: row.group.clone(),
            group_name: row.group_name.clone(),
            references,
            version: row.version,
            own: viewer == Some(row.user_id),
        }
    }
}

fn textual(value: &str, purpose: Purpose) -> TextualBody {
    TextualBody { kind_of: textual_body(), value: value.to_owned(), purpose, format: plain() }
}

impl CreateAnnotation {
    pub fn draft(self, idempotency_key: Option<String>) -> Result<NewAnnotation, Failure> {
        if self.kind_of.is_some_and(|kind| kind != "Annotation") {
            return Err(Failure::malformed("type is Annotation."));
        }
        let (text, tags) = texts(self.body)?;
        let reply_to = match self.reply_to {
            Some(key) => Some(
                key.parse::<AnnotationId>()
                    .map_err(|_| Failure::malformed("replyTo is the key of a note."))?,
            ),
            None => None,
        };
        let target = match (self.target, &reply_to) {
            (Some(_), Some(_)) => {
                return Err(Failure::malformed(
                    "A reply has no target: it is where its parent is.",
                ));
            }
            (None, None) => return Err(Failure::malformed("target says which page it is about.")),
            (target, _) => target.unwrap_or(Target {
                source: String::new(),
                selector: Vec::new(),
                title: String::new(),
            }),
        };
        let (quote, selectors) = passage(&target.selector)?;
        Ok(NewAnnotation {
            url: target.source,
            title: target.title,
            group: self.group,
            reply_to,
            quote,
            selectors,
            text,
            tags,
            idempotency_key,
        })
    }
}

impl ChangeAnnotation {
    pub fn change(self) -> Result<Change, Failure> {
        let (text, tags) = match self.body {
            Some(body) => {
                let (text, tags) = texts(body)?;
                (Some(text), Some(tags))
            }
            None => (None, None),
        };
        Ok(Change { text, tags, group: self.group })
    }
}

/// The text and the tags of some bodies.
fn texts(bodies: Vec<TextualBody>) -> Result<(String, Vec<String>), Failure> {
    let (mut text, mut tags) = (None, Vec::new());
    for body in bodies {
        if body.kind_of != "TextualBody" || body.format != "text/plain" {
            return Err(Failure::malformed("A body is a TextualBody of text/plain."));
        }
        if body.purpose == Purpose::Tagging {
            let tag = body.value.trim().to_owned();
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        } else if text.replace(body.value).is_some() {
            return Err(Failure::malformed("A note has one text."));
        }
    }
    Ok((text.unwrap_or_default(), tags))
}

/// What is quoted, and the selectors as they are stored.
fn passage(selectors: &[Selector]) -> Result<(String, Vec<Value>), Failure> {
    if selectors.is_empty() {
        return Ok((String::new(), Vec::new()));
    }
    let (mut quote, mut places) = (None, 0);
    for selector in selectors {
        match selector {
            Selector::TextQuoteSelector { exact, prefix, suffix } => {
                let context = prefix.chars().count().max(suffix.chars().count());
                let nul = [exact, prefix, suffix].iter().any(|text| text.contains('\0'));
                if exact.is_empty()
                    || context > 200
                    || nul
                    || quote.replace(exact.clone()).is_some()
                {
                    return Err(Failure::malformed(
                        "There is one quote, with up to 200 characters before and after it, and no NUL.",
                    ));
                }
            }
            Selector::TextPositionSelector { start, end } => {
                places += 1;
                if start >= end || places > 1 {
                    return Err(Failure::malformed(
                        "There is one position, and it starts before it ends.",
                    ));
                }
            }
        }
    }
    let quote = quote.ok_or_else(|| Failure::malformed("A passage needs a TextQuoteSelector."))?;
    let stored = selectors.iter().map(|selector| json!(selector)).collect();
    Ok((quote, stored))
}
