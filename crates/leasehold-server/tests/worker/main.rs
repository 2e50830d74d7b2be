//! `leasehold worker`, as its users see it: the real program on a real database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

mod command_line;
mod exec;
mod fixture;
mod fleet;
mod http;
mod logs;
mod metrics;
#[path = "../monitoring/prometheus.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
mod prometheus;
mod receiver;
mod stop;
