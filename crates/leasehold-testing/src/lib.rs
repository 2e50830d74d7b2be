//! What tests of durable work stand on: ours, and yours.
//!
//! In reading order:
//!
//! - [`postgres`]: a private PostgreSQL server that dies with the process that started it.

#![forbid(unsafe_code)]

pub mod postgres;
mod process;

pub use postgres::PrivatePostgres;
