//! What tests of durable work stand on: ours, and yours.
//!
//! In reading order:
//!
//! - [`postgres`]: a private PostgreSQL server that dies with the process that started it.
//! - [`database`]: a migrated database of its own for each test.

#![forbid(unsafe_code)]

pub mod database;
pub mod postgres;
mod process;

pub use database::TestDatabase;
pub use postgres::PrivatePostgres;
