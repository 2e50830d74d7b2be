//! Private servers on this machine, for `leasehold dev`, tests and benchmarks.
//!
//! - [`postgres`]: a PostgreSQL server that dies with the process that started it.
//! - [`process`]: programs with a time limit, and servers that must not outlive their starter.
//!   `leasehold-testing` starts its other servers with it.
//!
//! This crate is the only code that the product shares with the tests. It knows nothing of jobs.

#![forbid(unsafe_code)]

pub mod postgres;
pub mod process;

pub use postgres::PrivatePostgres;
pub use process::cache_dir;
