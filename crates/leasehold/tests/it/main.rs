//! What the engine promises, shown on a real PostgreSQL. Modules mirror `src/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::async_yields_async,
    reason = "a test stops at the first surprise"
)]

mod adapters;
mod admin;
mod api;
mod bounds;
mod builder;
mod cancel_safety;
mod claim;
mod clocks;
mod contributing;
mod deadlock;
mod defer;
mod election;
mod enqueue;
mod epoch;
mod errors;
mod examples;
mod expire;
mod expiry;
mod faults;
mod finish;
mod fixture;
mod fleet;
mod history;
mod housekeeping;
mod interleave;
mod isolation;
mod keys;
mod link;
mod logs;
mod lost;
mod migrate;
mod mirror;
mod once;
mod operator;
mod owner_rights;
mod plain_sql;
mod planner;
mod postgres_faults;
mod processes;
mod refusals;
mod releases;
mod roles;
mod schedule;
mod schema_change;
mod scripts;
mod sql;
mod sql_docs;
mod support;
mod sweep;
mod wake;
mod walk_jobs;
mod watch;
mod worker;
