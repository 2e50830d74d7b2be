//! What the annotation service promises, tested on real Postgres; with an index in a directory, and
//! where the index matters also with a real OpenSearch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod bulk;
mod directory;
mod gate;
mod groups;
mod http;
mod index;
mod kind;
mod members;
mod outage;
mod people;
mod rig;
mod save;
mod story;
mod switch;
mod targets;
mod visibility;
mod words;
