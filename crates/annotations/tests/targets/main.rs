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
#[allow(dead_code, reason = "the tests of the service use more of it")]
mod gate;
mod rig;
mod search;
mod sets;
mod versions;
