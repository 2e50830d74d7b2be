//! The fields of a document in OpenSearch, and how a document is written to them.

use serde_json::{Value, json};

use super::OpenSearchSettings;
use crate::index::document::{Checked, fold_tag};

/// Returns the settings of a new set. `alias` is the name that only this service writes to.
pub fn body(settings: &OpenSearchSettings, alias: &str) -> Value {
    let keyword = json!({ "type": "keyword" });
    // Full-text search covers one field that has the words of three.
    let words = json!({ "type": "text", "index": false, "norms": false, "copy_to": "words" });
    json!({
        "settings": {
            "index": {
                "number_of_shards": settings.shards,
                "auto_expand_replicas": "0-1",
                // Set, because an index without it stops refreshing while no search uses it.
                "refresh_interval": format!("{}ms", settings.refresh.as_millis()),
            },
            "analysis": { "analyzer": { "leasehold_words": {
                "type": "custom", "tokenizer": "standard", "filter": ["lowercase", "asciifolding"],
            } } },
        },
        "mappings": {
            // Other fields are stored but not indexed.
            "dynamic": false,
            "properties": {
                "key": keyword,
                "lh_version": { "type": "long" },
                "lh_a": { "type": "integer" },
                "lh_b": { "type": "integer" },
                "lh_deleted": { "type": "boolean" },
                "lh_deleted_at": { "type": "long" },
                "url": keyword,
                "user": keyword,
                "group": keyword,
                "kind": keyword,
                "tag": keyword,
                "reference": keyword,
                "quote": words,
                "text": words,
                "tags": words,
                "words": { "type": "text", "analyzer": "leasehold_words", "norms": false },
                "created": { "type": "long" },
                "updated": { "type": "long" },
            },
        },
        "aliases": { (alias): {} },
    })
}

/// `now` is in microseconds.
pub fn document(write: &Checked<'_>, now: i64) -> Value {
    let mut fields = json!({
        "key": write.key,
        "lh_version": write.version,
        "lh_a": write.a,
        "lh_b": write.b,
        "lh_deleted": write.document.is_none(),
    });
    let more = match &write.document {
        None => json!({ "lh_deleted_at": now }),
        Some(document) => json!({
            "url": document.url,
            "user": document.user,
            "group": document.group,
            "kind": document.kind,
            "tag": document.tags.iter().map(|tag| fold_tag(tag)).collect::<Vec<_>>(),
            "reference": document.references().collect::<Vec<_>>(),
            "quote": document.quote,
            "text": document.text,
            "tags": document.tags,
            "created": document.created,
            "updated": document.updated,
        }),
    };
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
        fields.extend(more);
    }
    fields
}
