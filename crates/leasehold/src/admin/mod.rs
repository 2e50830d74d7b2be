//! Administration: read and change jobs, queues, schedules, sweeps, mirrors and alarms from Rust.
//!
//! ```no_run
//! # async fn example(leasehold: leasehold::Leasehold, id: leasehold::JobId) -> anyhow::Result<()> {
//! use leasehold::admin::{By, JobFilter, Page};
//!
//! let by = By::new("ann").why("the provider is back");
//! let filter: JobFilter = "queue:mail state:dead error:\"connection reset\"".parse()?;
//! let page = leasehold.jobs().list(&filter, &Page::first(50)).await?;
//! println!("{} of them, the newest first", page.jobs.len());
//! leasehold.dead().redrive(&filter, &by).await?;
//! leasehold.jobs().cancel(id, &by).await?;
//! leasehold.queues().pause("mail", &by).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - Each verb is one call of a SQL function whose write names the state it expects. A job in another
//!   state stays as it is, and [`Change::WrongState`] names it.
//! - `within(&transaction)` runs every call of a handle in the caller's transaction of tokio-postgres: it takes
//!   effect when the caller commits, or not at all. In a transaction of sqlx or diesel, call the SQL functions:
//!   `select leasehold.cancel($1, $2)`.
//! - `leasehold.audit` records each change with its actor and reason.
//! - Reading needs the role `leasehold_viewer`. Its calls return no kwargs, error texts and notes:
//!   [`JobInfo::kwargs`] is `None`. Changing needs `leasehold_operator`.
//! - A list returns pages of at most [`Page::MAX`] jobs and about [`PAGE_BYTES`], newest first.
//!
//! # What can go wrong
//! - A call without a reply: unknown whether it took effect. Every verb may be repeated: the second call
//!   finds the new state and changes nothing.
//!
//! In reading order: [`filter`] selects jobs; [`jobs`] and [`dead`] read and change them (`read` makes the
//! statements); [`batches`], [`queues`], [`limits`], [`schedules`], [`workers`], [`sweeps`], [`mirrors`] and [`alarms`] do
//! the same for the rest; [`measurements`] reads samples; `diagnosis` has the statements of `leasehold doctor`.

pub mod alarms;
pub mod batches;
pub mod dead;
#[doc(hidden)]
pub mod diagnosis;
pub mod filter;
pub mod jobs;
pub mod limits;
pub mod measurements;
pub mod mirrors;
pub mod queues;
mod read;
pub mod schedules;
mod seconds;
mod session;
pub mod sweeps;
mod words;
pub mod workers;

pub use alarms::{AlarmChange, AlarmInfo, AlarmState, Alarms, WatchChange, WatchInfo};
pub use batches::{BatchInfo, BatchPage, BatchState, Batches, CancelledBatch, JobResultValue};
pub use dead::{Dead, DeadGroup, Redriven};
pub use filter::{FilterError, JobFilter};
pub use jobs::{Change, JobInfo, JobPage, JobUpdate, Jobs, PastFailure};
pub use limits::{LimitInfo, LimitKeyInfo, LimitSource, LimitState, Limits};
pub use measurements::{Measurement, Measurements, SampleTime, SeriesPoint, SeriesQuery};
pub use mirrors::{
    DifferenceKind, MirrorDifference, MirrorInfo, MirrorOrder, MirrorPhase, MirrorSummary, Mirrors,
    Reindex,
};
pub use queues::{QueueChange, QueueInfo, QueueSettings, Queues};
pub use read::{Cursor, PAGE_BYTES, Page, ParseCursorError};
pub use schedules::{ScheduleInfo, Schedules};
pub use sweeps::{DeadRow, SweepInfo, SweepState, SweepSummary, Sweeps};
pub use workers::{WorkerInfo, WorkerState, Workers};

/// Who changes something, and why: for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    actor: String,
    reason: Option<String>,
}

impl By {
    /// Names the operator or the program, such as `ann@laptop`.
    pub fn new(actor: impl Into<String>) -> Self {
        Self { actor: actor.into(), reason: None }
    }

    /// Adds the reason.
    pub fn why(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Returns the operator or the program.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Returns the reason.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// The result of a pause, a resume or a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the queue, limit, schedule, sweep or watch may be unchanged"]
#[non_exhaustive]
pub enum Toggle {
    /// Changed.
    Changed,
    /// It was so already; nothing was changed.
    Already,
    /// There is none of this name.
    NotFound,
}
