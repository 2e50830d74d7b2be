//! What the annotation service promises, shown on real Postgres.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod bulk;
mod http;
mod index;
mod people;
mod rig;
mod save;
mod story;
mod visibility;
