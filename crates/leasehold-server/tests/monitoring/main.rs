//! Alarms, metrics and the console, as operators and other programs see them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod alarm_commands;
mod alarms;
mod browser;
mod console;
mod console_fixture;
mod deploy;
#[path = "../cli/fixture.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
mod fixture;
mod housekeeping;
mod metrics;
mod prometheus;
mod receiver;
mod services;
