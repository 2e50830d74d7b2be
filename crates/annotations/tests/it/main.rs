//! What the annotation service promises, shown on real Postgres; with an index in a directory, and
//! where the index matters with a real OpenSearch as well.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod bulk;
#[path = "../targets/gate.rs"]
#[allow(dead_code, reason = "the tests of the indexes themselves use all of it")]
mod gate;
mod http;
mod index;
mod outage;
mod people;
mod rig;
mod save;
mod story;
mod switch;
mod visibility;
