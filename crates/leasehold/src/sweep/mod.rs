//! Sweeps: rows of your own table, worked on in batches, each finished once.
//!
//! A row waits, is claimed, is done: three words in a status column of yours. A worker claims due
//! rows in batches, does what is to be done outside, and finishes them under a fence; the watchdog
//! brings back what a dead worker left.
//!
//! # In reading order
//! `declare` says what to sweep, `statements` turns that into SQL, `prepare` checks it against the
//! table, `run` joins what is due, `pass` is the loop, `batch` is what a handler sees, `finish` ends a batch, `watchdog`
//! brings rows back, `gate` spreads claims out.
//!
//! # What is true
//! - A row is claimed by one statement that locks what it picks and skips what others have locked.
//! - Finishing matches the row's claim, which is new at every claim. Who lost it changes nothing.
//! - What `finishing` says happens in the statement that finishes: with it, or not at all.
//! - Gates, clocks of workers and the watchdog decide only when something happens, never whether it
//!   happens once.
//!
//! # What can go wrong
//! - A worker dies in the middle: its rows stay claimed until the watchdog's time is up.
//! - A worker is slower than that: its finish matches nothing, and the rows belong to the next one.
//! - A handler fails: its rows wait and are tried again, a bounded number of times.

mod batch;
mod declare;
mod due;
mod effect;
mod finish;
mod gate;
mod install;
mod pass;
mod prepare;
#[cfg(feature = "redis")]
mod redis_gate;
mod run;
mod statements;
mod stored;
mod watchdog;
mod watchdog_sql;
mod when;

pub use batch::{Batch, SweptRows};
pub use declare::{States, Sweep};
pub use gate::{Answer, Asking, ClaimGate, Gate, Leaving};
pub use pass::SweepReport;
pub use prepare::SweepError;
pub use stored::watch_by_name;
pub use watchdog::WatchReport;
pub use when::When;

pub(crate) use install::short;
pub(crate) use prepare::Prepared;
#[cfg(feature = "testing")]
pub(crate) use prepare::SETTINGS;
pub(crate) use run::Sweeper;
#[cfg(feature = "testing")]
pub(crate) use statements::gate_key;
pub(crate) use statements::{ident, literal, table};
pub(crate) use watchdog::Watchdog;
