//! What the engine promises, shown on real Postgres. Modules mirror `src/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::async_yields_async,
    reason = "a test stops at the first surprise"
)]

mod adapters;
mod cancel_safety;
mod claim;
mod deadlock;
mod election;
mod enqueue;
mod examples;
mod expire;
mod faults;
mod finish;
mod history;
mod interleave;
mod isolation;
mod keys;
mod link;
mod migrate;
mod mirror;
mod once;
mod people;
mod plain_sql;
mod planner;
mod postgres_faults;
mod processes;
mod rig;
mod roles;
mod schedule;
mod scripts;
mod sql;
mod support;
mod sweep;
mod walk;
mod watch;
mod worker;
