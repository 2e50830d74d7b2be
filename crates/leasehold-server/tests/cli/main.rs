//! The real executable against real databases: what it prints, how it ends, what it changes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod annotations;
mod annotations_takeover;
mod basics;
mod batches;
mod bench;
mod dead;
mod dev;
mod doctor;
mod enqueue;
mod fixture;
mod jobs;
mod limits;
mod migrate;
mod mirrors;
mod mistakes;
mod queues;
mod roles;
mod schedules;
mod secrets;
mod serve;
mod sources;
mod sweeps;
