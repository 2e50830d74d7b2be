//! One test binary; modules mirror `src`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "that is how a test fails"
)]

mod cancel;
mod database;
mod pgbouncer;
mod proxy;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "s3")]
mod s3;
mod stepper;
