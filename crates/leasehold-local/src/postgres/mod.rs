//! A private PostgreSQL server: started from the installed binaries, reachable through a socket that
//! only we can open, and stopped when we end.
//!
//! ```no_run
//! # fn main() -> Result<(), leasehold_local::postgres::PostgresError> {
//! use leasehold_local::PrivatePostgres;
//! let postgres = PrivatePostgres::throwaway().start()?;
//! println!("psql '{}'", postgres.url("postgres"));
//! # Ok(()) }
//! ```
//!
//! Everything here blocks the calling thread; a start takes about a second, the first one two.
//!
//! # Invariants
//! - The server dies with the process that started it, even by kill -9 (`process::supervisor`).
//! - Data is durable unless the cluster is a [throwaway](PrivatePostgres::throwaway) one.
//! - There is no TCP port unless [`Options::listen_tcp`] sets one, and that one requires a password.
//! - A [standby](PrivatePostgres::standby_of) is a copy of its primary that follows it until it is
//!   [promoted](PrivatePostgres::promote).
//! - As root, the server runs as `postgres` or another user without privileges.
//!
//! # What can go wrong
//! - PostgreSQL is not installed, the directory belongs to another version, or to a server that is
//!   still running: the error says which, and what to do.
//! - The server does not start: the error ends with the last lines of its log.

mod backup;
mod binaries;
mod error;
mod options;
mod pidfile;
mod prepare;
mod server;
mod standby;

pub use error::PostgresError;
pub use options::Options;
pub use server::{PrivatePostgres, socket_url};
