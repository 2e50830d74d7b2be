//! What the annotation service promises, shown on real Postgres; with an index in a directory, and
//! where the index matters with a real OpenSearch as well.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod bulk;
mod gate;
mod groups;
mod http;
mod index;
mod kind;
mod outage;
mod people;
mod rig;
mod save;
mod story;
mod switch;
mod targets;
mod visibility;
