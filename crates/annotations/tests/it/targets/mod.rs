//! What every search index promises, tested on tantivy and on a real OpenSearch.

mod digests;
mod directory;
mod faults;
mod fixture;
mod invalid_input;
mod search;
mod sets;
mod versions;
