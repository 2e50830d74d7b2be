//! The search index: what is written of an annotation, and how it is found again.
//!
//! In reading order:
//!
//! - [`document`]: the fields of an annotation in the index; the same for every store.
//! - [`query`]: what can be asked, and what comes back.
//! - [`tantivy`]: an index in a directory of this process.
//! - [`opensearch`]: an index in OpenSearch or Elasticsearch.
//!
//! # What is true
//! - Both stores take the same documents and answer the same questions in the same order, shown by
//!   one suite of tests that runs over both.
//! - An index answers ids. What people see is read from Postgres, so that a document that is old or
//!   should be gone shows nothing that its reader may not see.

pub mod document;
pub mod opensearch;
pub mod query;
pub mod tantivy;

use futures_util::future::BoxFuture;
use leasehold::mirror::TargetError;

pub use document::Document;
pub use opensearch::{OpenSearch, OpenSearchSettings};
pub use query::{Cursor, Hit, Hits, Query};
pub use tantivy::{TantivyIndex, TantivySettings};

/// An index that can be asked.
pub trait SearchIndex: Send + Sync + 'static {
    /// The annotations that a question matches, newest change first. Asks the set of documents that
    /// is searched now, also while another one is being built.
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>>;
}
