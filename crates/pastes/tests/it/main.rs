//! What the paste service promises, shown on real Postgres and real stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod create;
mod expiry;
mod http;
mod night;
mod races;
mod rig;
mod s3;
mod states;
