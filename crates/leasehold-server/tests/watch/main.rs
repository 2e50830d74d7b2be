//! Alarms, metrics and the console, as operators and other programs see them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod browser;
mod cli;
#[path = "../../../leasehold/tests/it/watch/clock.rs"]
mod clock;
mod console;
mod deploy;
mod keeping;
mod metrics;
mod minute;
mod prometheus;
mod receiver;
mod services;
mod stories;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
mod support;
mod tower;
