//! An empty index of each kind, and helpers that write to it.

use std::sync::Arc;
use std::time::Duration;

use annotations::index::{
    OpenSearch, OpenSearchSettings, Query, SearchIndex, TantivyIndex, TantivySettings,
};
use leasehold::mirror::{Digest, ItemError, Range, StoredVersion, Target, Targets, Write, Written};
use leasehold_testing::PrivateOpenSearch;
use leasehold_testing::opensearch::fresh_prefix;
use serde_json::{Value, json};

use crate::index_kind::{IndexKind, TempDir};

/// Runs a test on an empty index of each kind.
pub async fn each(test: impl AsyncFn(Fixture)) {
    for kind in IndexKind::BOTH {
        // Shown only when the test fails.
        println!("on {kind:?}");
        test(Fixture::new(kind).await).await;
    }
}

pub struct Fixture {
    pub targets: Arc<dyn Targets>,
    pub search: Arc<dyn SearchIndex>,
    /// The current set.
    pub set: Arc<dyn Target>,
    _dir: Option<TempDir>,
}

impl Fixture {
    pub async fn new(kind: IndexKind) -> Self {
        match kind {
            IndexKind::Tantivy => {
                let dir = TempDir::new();
                let limit = Duration::from_secs(120);
                let settings = TantivySettings { limit, ..TantivySettings::new(dir.path()) };
                let index = TantivyIndex::open(settings).await.unwrap();
                Self::over(index, Some(dir)).await
            }
            IndexKind::OpenSearch => {
                let url = PrivateOpenSearch::shared().url();
                // For a machine that runs all other tests at the same time.
                let limit = Duration::from_secs(120);
                let settings =
                    OpenSearchSettings { limit, ..OpenSearchSettings::new(url, fresh_prefix()) };
                Self::over(OpenSearch::new(settings).unwrap(), None).await
            }
        }
    }

    async fn over(index: impl Targets + SearchIndex + Clone, dir: Option<TempDir>) -> Self {
        let set = index.open(&index.current().await.unwrap()).await.unwrap();
        let (targets, search) = (Arc::new(index.clone()), Arc::new(index));
        Self { targets, search, set, _dir: dir }
    }

    /// Returns the ids of a result. Makes writes searchable first; otherwise that takes a moment.
    pub async fn ids(&self, query: &Query) -> Vec<String> {
        self.set.digest(&Range::default()).await.unwrap();
        let hits = self.search.search(query).await.unwrap();
        hits.hits.into_iter().map(|hit| hit.id).collect()
    }
}

pub fn put(key: &str, version: i64, document: Value) -> Write {
    Write { key: key.to_owned(), version, document: Some(document), forced: false }
}

pub fn gone(key: &str, version: i64) -> Write {
    Write { key: key.to_owned(), version, document: None, forced: false }
}

pub fn forced(write: Write) -> Write {
    Write { forced: true, ..write }
}

/// An annotation with this text and the given time of change.
pub fn note(text: &str, updated: i64) -> Value {
    json!({
        "url": "https://example.com/quixote", "user": "sancho", "group": "__world__",
        "kind": "annotation", "quote": "", "text": text, "tags": [], "parent": null, "root": null,
        "created": updated, "updated": updated,
    })
}

pub fn asking() -> Query {
    Query { limit: 50, ..Query::default() }
}

/// Writes one document, and returns the result.
pub async fn write(set: &Arc<dyn Target>, write: Write) -> Result<Written, ItemError> {
    set.write(&[write]).await.unwrap().remove(0)
}

pub async fn held(set: &Arc<dyn Target>, key: &str) -> Option<StoredVersion> {
    set.held(&[key.to_owned()]).await.unwrap()[0]
}

pub fn living(version: i64) -> Option<StoredVersion> {
    Some(StoredVersion { version, deleted: false })
}

pub fn deleted(version: i64) -> Option<StoredVersion> {
    Some(StoredVersion { version, deleted: true })
}

pub fn digest_of<'a>(documents: impl IntoIterator<Item = (&'a str, i64)>) -> Digest {
    let mut digest = Digest::default();
    for (key, version) in documents {
        digest.add(key, version);
    }
    digest
}
