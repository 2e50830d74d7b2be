//! What tests of durable work stand on: ours, and yours.
//!
//! In reading order:
//!
//! - [`postgres`]: a private PostgreSQL server that dies with the process that started it.
//! - [`database`]: a migrated database of its own for each test.
//! - [`pgbouncer`]: a pooler in transaction mode in front of a private server.
//! - [`proxy`]: breaks connections at chosen points of the protocol.

#![forbid(unsafe_code)]

pub mod database;
pub mod pgbouncer;
pub mod postgres;
mod process;
pub mod proxy;

pub use database::TestDatabase;
pub use pgbouncer::PgBouncer;
pub use postgres::PrivatePostgres;
pub use proxy::FaultProxy;
