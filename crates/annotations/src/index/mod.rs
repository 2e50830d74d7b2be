//! The search index: what it stores of an annotation, and how searches find it.
//!
//! In reading order:
//!
//! - [`document`]: the fields of an annotation in the index; the same for every store.
//! - [`query`]: queries and their results; [`split`] defines what a word is.
//! - [`tantivy`]: an index in a directory of this process.
//! - [`opensearch`]: an index in OpenSearch or Elasticsearch.
//!
//! # Invariants
//! - Both stores take the same documents and return the same results in the same order. One test suite
//!   runs over both and shows it.
//! - An index returns ids. The content comes from Postgres, so that an outdated document shows nothing
//!   that its reader may not see.

pub mod document;
pub mod opensearch;
pub mod query;
mod split;
pub mod tantivy;

use futures_util::future::BoxFuture;
use leasehold::mirror::TargetError;

pub use document::Document;
pub use opensearch::{OpenSearch, OpenSearchSettings};
pub use query::{Cursor, Hit, Hits, Query};
pub use tantivy::{TantivyIndex, TantivySettings, is_open_to_others};

/// An index that can be searched.
pub trait SearchIndex: Send + Sync + 'static {
    /// Returns the annotations that match a query, the most recently changed first. Searches the current
    /// set, also while another one is being built.
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>>;
}
