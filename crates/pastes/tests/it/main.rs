//! The guarantees of the paste service, tested on real Postgres and real stores.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod create;
mod expiry;
mod fixture;
mod http;
mod locks;
mod races;
mod s3;
mod states;
mod store;
mod sweep;
mod upgrade;
mod upload;
