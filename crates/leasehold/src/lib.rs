//! Durable work in Postgres: jobs are committed with your data and held by fenced leases.
//!
//! # In reading order
//! 1. [`job`]: what a job is; [`Job`] is a struct with a name.
//! 2. [`queue`]: `enqueue` stores it, `claim` takes it, `finish` ends it. Each is a call of one SQL
//!    function in `functions/`; the fence is in its `where` clause.
//! 3. [`worker`]: the claim → run → finish loop. `fetch` claims, `run` runs, `finisher` records,
//!    `keeper` renews.
//! 4. [`housekeeping`]: `expire` reclaims the jobs of dead workers.
//! 5. [`once`]: effects that must not repeat. [`schedule`]: jobs that the clock enqueues.
//! 6. [`sweep`]: rows of your own table, claimed through a status column.
//! 7. [`mirror`]: a second store that is kept equal to your own table.
//! 8. [`measure`]: samples and metrics; [`alarm`]: conditions that need an operator.
//! 9. [`admin`]: list, cancel, redrive, promote, delete and update jobs; queues, schedules, workers.
//! 10. [`migrate`], [`database`]: the schema and the sessions. [`breaker`]: stops calling a service that
//!     is down.

#![forbid(unsafe_code)]

pub mod admin;
pub mod alarm;
pub mod breaker;
#[cfg(feature = "chaos")]
pub mod chaos;
pub mod database;
#[cfg(any(feature = "diesel-async", feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod drivers;
mod engine;
pub mod error;
mod error_text;
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
pub mod sweep;
#[cfg(feature = "testing")]
pub mod testing;
pub mod worker;

pub use engine::Leasehold;
pub use error::{AdminError, ConnectError, EnqueueError, FinishError, SchemaError, WorkerError};
pub use job::{Backoff, Cause, Generation, Job, JobId, JobState, Policy};
pub use leasehold_macros::Job;
pub use queue::enqueue::{Draft, Enqueue, EnqueueOn, Enqueued};
pub use queue::finish::Finished;
pub use worker::{Ctx, FinishedJob, JobError, JobResult, JobTx, Outcome, State, Tally};
