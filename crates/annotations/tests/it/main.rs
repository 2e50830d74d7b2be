//! What the annotation service promises, tested on real Postgres; with an index in a directory, and
//! where the index matters also with a real OpenSearch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod accounts;
mod bulk;
mod directory;
mod fault_proxy;
mod faulty_index;
mod fixture;
mod groups;
mod http;
mod index;
mod index_kind;
mod members;
mod outage;
mod outage_load;
mod save;
mod targets;
mod visibility;
mod word_search;
