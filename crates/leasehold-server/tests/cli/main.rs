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
mod bench;
#[path = "../../../leasehold/tests/it/watch/clock.rs"]
mod clock;
mod dead;
mod dev;
mod doctor;
mod doctor_parts;
mod doctor_watch;
mod enqueue;
mod jobs;
mod migrate;
#[path = "../watch/minute.rs"]
mod minute;
mod mirrors;
mod queues;
mod roles;
mod schedules;
mod secrets;
mod serve;
mod sources;
mod support;
mod sweeps;
