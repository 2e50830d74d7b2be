//! What every search index promises, shown on tantivy and on a real OpenSearch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod digests;
mod directory;
mod faults;
mod garbage;
mod gate;
mod rig;
mod search;
mod sets;
mod versions;
