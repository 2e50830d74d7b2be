//! Queries and ranges in OpenSearch's terms.

use leasehold::mirror::Range;
use serde_json::{Value, json};

use crate::index::document::fold_tag;
use crate::index::query::{Query, Words};

/// Returns the body of a search for annotations.
pub fn question(query: &Query) -> Value {
    // Tombstones are documents too, and a query without any condition would find them.
    let mut all = vec![json!({ "term": { "lh_deleted": false } })];
    let mut equal = |field: &str, value: Option<&str>| {
        all.extend(value.map(|value| json!({ "term": { (field): value } })));
    };
    equal("url", query.url.as_deref());
    equal("user", query.user.as_deref());
    equal("kind", query.kind.as_deref());
    equal("reference", query.reference.as_deref());
    let tag = query.tag.as_deref().map(fold_tag);
    equal("tag", tag.as_deref());
    if let Some(groups) = &query.groups {
        all.push(json!({ "terms": { "group": groups } }));
    }
    if let Some(words) = query.words.as_deref().and_then(Words::parse) {
        if !words.plain.is_empty() {
            all.push(json!({ "match": { "words": { "query": words.plain, "operator": "and" } } }));
        }
        let phrases = words.phrases.iter();
        all.extend(phrases.map(|phrase| json!({ "match_phrase": { "words": phrase } })));
    }
    let mut body = json!({
        "size": query.size(),
        "query": { "bool": { "filter": all } },
        "sort": [{ "updated": "desc" }, { "key": "desc" }],
        "_source": false,
        "track_total_hits": false,
    });
    if let Some(after) = &query.after {
        body["search_after"] = json!([after.updated, after.id]);
    }
    body
}

/// Returns the body that computes the digest of a range.
pub fn digest(range: &Range) -> Value {
    let mut all = within(range);
    all.push(json!({ "term": { "lh_deleted": false } }));
    json!({
        "size": 0,
        "track_total_hits": true,
        "query": { "bool": { "filter": all } },
        "aggs": {
            "a": { "sum": { "field": "lh_a" } },
            "b": { "sum": { "field": "lh_b" } },
        },
    })
}

/// Returns the body of one page of a range, after `last`.
pub fn page(range: &Range, size: usize, last: Option<&str>) -> Value {
    let mut body = json!({
        "size": size,
        "query": { "bool": { "filter": within(range) } },
        "sort": [{ "key": "asc" }],
        "_source": false,
        "docvalue_fields": ["lh_version", "lh_deleted"],
        "track_total_hits": false,
    });
    if let Some(last) = last {
        body["search_after"] = json!([last]);
    }
    body
}

fn within(range: &Range) -> Vec<Value> {
    let mut bounds = serde_json::Map::new();
    if let Some(after) = &range.after {
        bounds.insert("gt".to_owned(), json!(after));
    }
    if let Some(to) = &range.to {
        bounds.insert("lte".to_owned(), json!(to));
    }
    if bounds.is_empty() { Vec::new() } else { vec![json!({ "range": { "key": bounds } })] }
}
