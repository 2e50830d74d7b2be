//! Durable work in Postgres: jobs are committed with your data and held by fenced leases.
//!
//! # In reading order
//! 1. [`job`]: what a job is; [`Job`] is a struct with a name.
//! 2. [`queue`]: `enqueue` stores it, `claim` takes it, `finish` ends it. Each is a call of one SQL
//!    function in `functions/`; the fence stands in its `where`.
//! 3. [`worker`]: the claim → run → finish loop. `fetch` claims, `run` runs, `finisher` records,
//!    `keeper` renews.
//! 4. [`housekeeping`]: `expire` brings back what a dead worker left.
//! 5. [`once`]: effects that must not repeat. [`schedule`]: jobs that the clock enqueues.
//! 6. [`sweep`]: rows of your own table, claimed through a status column.
//! 7. [`mirror`]: a second store that is kept equal to a table of yours.
//! 8. [`measure`]: what the engine knows of itself; [`alarm`]: what is wrong.
//! 9. [`migrate`], [`database`]: the schema and the sessions. [`breaker`]: leaving alone what is down.

#![forbid(unsafe_code)]

pub mod alarm;
pub mod breaker;
#[cfg(feature = "chaos")]
pub mod chaos;
pub mod database;
mod engine;
pub mod error;
pub mod events;
pub mod housekeeping;
pub mod job;
pub mod link;
pub mod measure;
pub mod migrate;
pub mod mirror;
pub mod once;
pub mod queue;
pub mod schedule;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;
pub mod sweep;
#[cfg(feature = "testing")]
pub mod testing;
mod wake;
pub mod worker;

pub use engine::Leasehold;
pub use error::{ConnectError, EnqueueError, FinishError, SchemaError, WorkerError};
pub use job::{Backoff, Generation, Job, JobId, JobState, Policy};
pub use leasehold_macros::Job;
pub use queue::enqueue::{Draft, Enqueue, EnqueueOn, Enqueued};
pub use queue::finish::Finished;
pub use worker::{Ctx, JobError, JobResult, JobTx, Outcome, State, Tally};
