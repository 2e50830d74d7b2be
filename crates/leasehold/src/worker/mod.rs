//! The worker: claim → run → finish, and whatever is left behind comes back by itself.
//!
//! Read in this order: `fetch` claims (jobs whose worker died by `last_chance`), `run` runs, `finisher`
//! records, `keeper` renews; `builder` puts them together, `running` starts and stops them, and `wakes`
//! makes them look sooner.
//!
//! # What is true
//! - A worker needs the database and nothing else: no leader, no session lock, no NOTIFY.
//! - It uses four connections of its own (claim, finish, renew, tidy), plus one to listen on when
//!   the database is reached directly, plus one for each loop and each watchdog of its sweeps.
//! - Whoever takes the sample of a minute opens one more for it, and closes it again.
//!
//! # What can go wrong
//! - The process dies: its leases run out, other workers get the jobs.
//! - It is paused: the same; when it comes back, its results match no lease and change nothing.

mod book;
mod builder;
mod context;
mod fetch;
mod finisher;
mod handler;
mod idle;
mod keeper;
mod last_chance;
mod outcome;
mod registry;
mod run;
mod running;
mod transaction;
mod wakes;

pub use builder::WorkerBuilder;
pub(crate) use context::Attempt;
pub use context::{Ctx, Fence, StopReason};
pub use handler::{BatchHandler, BatchItem, FromAttempt, FromRef, Handler, IntoBatchResult, State};
pub(crate) use handler::{Registered, Runner, VerdictFuture, VerdictsFuture};
pub use idle::Tally;
pub use outcome::{IntoJobResult, JobError, JobResult, Outcome};
pub(crate) use run::panic_text;
pub use transaction::JobTx;
