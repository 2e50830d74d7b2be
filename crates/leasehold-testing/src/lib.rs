//! Fixtures for tests of durable work: ours and our users'.
//!
//! In reading order:
//!
//! - [`postgres`]: a private PostgreSQL server that dies with the process that started it, from
//!   `leasehold-local`.
//! - [`database`]: a separate, migrated database for each test.
//! - [`engine`]: an engine on it, with a clock that the test moves and workers that it crashes;
//!   [`assertions`] and [`perform`] are its other methods.
//! - [`wait`] and [`queries`]: [`until`] waits for a condition, [`sql`] runs statements, [`count`] returns a
//!   number.
//! - [`minutes`]: minutes that end when a test decides, with their samples and alarms.
//! - [`plan`]: how Postgres executes a prepared statement.
//! - [`program`]: an executable with a clean environment, and what it printed.
//! - `http`, with the feature of that name: a service as clients see it.
//! - `opensearch`, with the feature of that name: a private OpenSearch.
//! - [`pgbouncer`]: a pooler in transaction mode in front of a private server.
//! - `redis`, with the feature of that name: a private Redis.
//! - [`proxy`]: breaks connections at chosen points of the protocol.
//! - `s3` (feature `s3`): an S3 server in this process, with faults on demand.
//! - [`stepper`]: every interleaving of a few transactions.
//! - [`target`]: a store for mirrors in this process, with faults on demand.
//! - [`cancel`]: drops a future at every point at which it can be dropped.

#![forbid(unsafe_code)]

pub mod assertions;
pub mod cancel;
pub mod database;
pub mod engine;
mod firings;
#[cfg(feature = "http")]
pub mod http;
pub mod minutes;
#[cfg(feature = "opensearch")]
pub mod opensearch;
pub mod perform;
pub mod pgbouncer;
pub mod plan;
pub mod program;
pub mod proxy;
pub mod queries;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "s3")]
pub mod s3;
pub mod stepper;
pub mod target;
pub mod wait;

pub use assertions::EnqueuedJob;
pub use database::TestDatabase;
pub use engine::TestEngine;
use leasehold_local::process;
pub use leasehold_local::{PrivatePostgres, cache_dir, postgres};
#[cfg(feature = "opensearch")]
pub use opensearch::PrivateOpenSearch;
pub use perform::Performed;
pub use pgbouncer::PgBouncer;
pub use proxy::FaultProxy;
pub use queries::{count, sql};
#[cfg(feature = "redis")]
pub use redis::PrivateRedis;
#[cfg(feature = "s3")]
pub use s3::{FullS3Server, S3Server};
pub use target::{ScriptedTarget, ScriptedTargets};
pub use wait::until;
