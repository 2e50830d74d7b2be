//! Sweeps: handle rows of the user's own table in batches, and finish each row once.
//!
//! A row is waiting, claimed or done: three values in the table's status column. A worker claims due
//! rows in batches, handles them, and finishes them under a fence; the watchdog resets rows that a dead
//! worker left claimed.
//!
//! # In reading order
//! `declare` holds the declaration, `statements` turns it into SQL, `prepare` checks it against the
//! table, `service` runs it in a worker, `run` joins a run that is due, `pass` is the loop, `batch` is
//! what a handler sees, `finish` ends a batch, `watchdog` resets rows, `gate` spreads claims out.
//!
//! This folder uses only what the crate offers to every program: `tests/outside` compiles it as one.
//!
//! # Invariants
//! - A row is claimed by one statement that locks what it picks and skips what others have locked.
//! - Finishing matches the row's claim, which is new at every claim. A worker that lost the claim
//!   changes nothing.
//! - The `finishing` SQL runs in the statement that finishes rows: both happen, or neither.
//! - Gates, workers' clocks and the watchdog decide only when something happens, never whether it
//!   happens once.
//!
//! # What can go wrong
//! - A worker dies while it handles rows: they stay claimed until the watchdog's time is up.
//! - A worker is slower than that: its finish matches nothing, and the rows belong to the next claim.
//! - A handler fails: its rows wait and are retried, a bounded number of times.

mod batch;
mod counts;
mod declare;
mod finish;
mod gate;
mod install;
mod pass;
mod prepare;
mod run;
mod service;
mod statements;
mod stored;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod watchdog;
mod when;

pub use batch::{ClaimedRows, SweptRows};
pub use declare::{States, Sweep};
pub use gate::{Answer, Asking, ClaimGate, Gate, Leaving};
pub use pass::SweepReport;
pub use prepare::SweepError;
pub use service::SweepService;
pub use stored::{WatchdogRun, run_watchdog};
pub use watchdog::WatchdogReport;
pub use when::When;
