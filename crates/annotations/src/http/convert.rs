//! Converts between JSON ([`super::wire`]) and the types of the service.

use serde_json::{Value, json};

use super::errors::Failure;
use super::web::Web;
use super::wire::{
    AnnotationJson, CONTEXT, ChangeAnnotation, CreateAnnotation, Creator, Purpose, Selector,
    Target, TextualBody, plain, textual_body,
};
use crate::id::AnnotationId;
use crate::model::{Annotation, Change, Kind, NewAnnotation};

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
            return Err(Failure::malformed("type must be Annotation."));
        }
        let (text, tags) = texts(self.body)?;
        let reply_to = match self.reply_to {
            Some(key) => Some(
                key.parse::<AnnotationId>()
                    .map_err(|_| Failure::malformed("replyTo must be the key of a note."))?,
            ),
            None => None,
        };
        let target = match (self.target, &reply_to) {
            (Some(_), Some(_)) => {
                return Err(Failure::malformed(
                    "A reply has no target: it is on the page of the note that it answers.",
                ));
            }
            (None, None) => {
                return Err(Failure::malformed(
                    "target is missing; it names the page that the note is about.",
                ));
            }
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
    pub fn change(self, expected: Option<Vec<i64>>) -> Result<Change, Failure> {
        let (text, tags) = match self.body {
            Some(body) => {
                let (text, tags) = texts(body)?;
                (Some(text), Some(tags))
            }
            None => (None, None),
        };
        Ok(Change { text, tags, group: self.group, expected })
    }
}

/// Returns the text and the tags of the bodies.
fn texts(bodies: Vec<TextualBody>) -> Result<(String, Vec<String>), Failure> {
    let (mut text, mut tags) = (None, Vec::new());
    for body in bodies {
        if body.kind_of != "TextualBody" || body.format != "text/plain" {
            return Err(Failure::malformed("A body must be a TextualBody of text/plain."));
        }
        if body.purpose == Purpose::Tagging {
            let tag = body.value.trim().to_owned();
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        } else if text.replace(body.value).is_some() {
            return Err(Failure::malformed("A note has one text; the other bodies must be tags."));
        }
    }
    Ok((text.unwrap_or_default(), tags))
}

/// Returns the quote, and the selectors as they are stored.
fn passage(selectors: &[Selector]) -> Result<(String, Vec<Value>), Failure> {
    if selectors.is_empty() {
        return Ok((String::new(), Vec::new()));
    }
    let (mut quote, mut positions) = (None, 0);
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
                        "There must be one quote, with at most 200 characters before and after it, and no NUL.",
                    ));
                }
            }
            Selector::TextPositionSelector { start, end } => {
                positions += 1;
                if start >= end || positions > 1 {
                    return Err(Failure::malformed(
                        "There must be one position, which starts before it ends.",
                    ));
                }
            }
        }
    }
    let quote = quote.ok_or_else(|| Failure::malformed("A passage needs a TextQuoteSelector."))?;
    let stored = selectors.iter().map(|selector| json!(selector)).collect();
    Ok((quote, stored))
}
