//! The worker: claim → run → finish. Jobs that it leaves behind return when their lease runs out.
//!
//! Read in this order: `claim_loop` claims (`last_chance` those jobs that one more loss would bury), `slots` has room
//! for them, `run` runs, `finisher` records, `keeper` renews; `builder` puts them together, `running` starts and stops them, `sleep`
//! decides how long a loop waits, and `wakes` ends that wait sooner. `service` is what runs beside the
//! jobs: sweeps, mirrors, and services of the program.
//!
//! # Invariants
//! - A worker needs the database and nothing else: no leader, no session lock, no NOTIFY.
//! - It uses its own connections to claim, to finish, to renew and for housekeeping, plus one to listen
//!   on if the database is reached directly. Its services use connections of their own.
//! - The worker that takes the sample of a minute opens one more for it, and closes it again.
//!
//! # What can go wrong
//! - The process dies: its leases run out, and other workers get the jobs.
//! - The process is paused: the same; when it resumes, its results match no lease and change nothing.

mod builder;
mod claim_loop;
mod context;
mod decisions;
mod finisher;
mod fleet;
mod handler;
mod hooks;
mod idle;
mod keeper;
mod last_chance;
mod layer;
mod lease_table;
mod outcome;
mod record_batch;
mod record_one;
mod registry;
mod report;
mod run;
mod running;
mod service;
#[cfg(unix)]
mod signals;
mod sleep;
pub(crate) mod slots;
mod transaction;
mod untyped;
pub(crate) mod wakes;

pub use builder::WorkerBuilder;
pub use context::{Ctx, StopReason};
pub use fleet::FleetWorker;
pub use handler::{FromAttempt, FromRef, Handler, IntoManyResult, ManyHandler, ManyItem, State};
pub use hooks::FinishedJob;
pub use idle::FinishedCounts;
pub use layer::Next;
pub use outcome::{IntoJobResult, JobError, JobResult, Outcome};
pub use service::{ServiceContext, WorkerService};
#[cfg(unix)]
#[doc(hidden)]
pub use signals::StopSignals;
pub use transaction::{JobTx, Transactions};
pub use untyped::{ManyJobs, UntypedJob};

pub(crate) use context::Attempt;
