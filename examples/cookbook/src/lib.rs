//! The recipes of docs/cookbook.md and docs/batches.md, one file each. The pages show these files, and the tests run
//! them.

#![forbid(unsafe_code)]

pub mod batches;
pub mod chains;
pub mod cron;
pub mod diesel;
pub mod hooks;
pub mod later;
pub mod operate;
pub mod retries;
pub mod slots;
pub mod sqlx_0_8;
pub mod sqlx_0_9;
pub mod state;
pub mod stop;
pub mod transaction;
pub mod unique;
