//! What to sweep: a table of yours, its columns, and what to do with due rows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::batch::Batch;
use super::gate::Gate;
use super::pass::COUNT_EVERY;
use super::prepare::SweepError;
use super::when::{Clock, When};
use crate::job::{Backoff, check_queue_name};
use crate::worker::JobError;

pub(super) type Handler =
    Arc<dyn Fn(Batch) -> BoxFuture<'static, Result<(), JobError>> + Send + Sync>;

/// The three words of a status column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States {
    pub(super) waiting: String,
    pub(super) claimed: String,
    pub(super) done: String,
}

impl States {
    pub fn new(
        waiting: impl Into<String>,
        claimed: impl Into<String>,
        done: impl Into<String>,
    ) -> Self {
        Self { waiting: waiting.into(), claimed: claimed.into(), done: done.into() }
    }
}

/// A sweep over a table of yours.
///
/// ```
/// use leasehold::sweep::{States, Sweep, When};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let sweep = Sweep::new("sessions.expiry", "sessions")
///     .key("id")
///     .due("expires_at < statement_timestamp()")
///     .order_by("expires_at")
///     .status("state", States::new("live", "ending", "ended"))
///     .when(When::nightly("00:00", "Europe/Madrid")?)
///     .handle(|batch| async move {
///         println!("{} sessions end", batch.keys().len());
///         Ok(())
///     });
/// # drop(sweep);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a sweep does nothing until a worker runs it"]
pub struct Sweep {
    pub(super) name: String,
    pub(super) table: String,
    pub(super) key: String,
    pub(super) due: String,
    pub(super) order: String,
    pub(super) status: String,
    pub(super) states: States,
    pub(super) claimed_at: String,
    pub(super) claim: String,
    pub(super) columns: Vec<String>,
    pub(super) batch: u32,
    pub(super) watchdog_after: Duration,
    pub(super) watchdog_every: Duration,
    pub(super) watchdog_most: u32,
    pub(super) max_attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) when: When,
    pub(super) gate: Gate,
    pub(super) loops: usize,
    pub(super) count_every: Duration,
    pub(super) finishing: Option<String>,
    pub(super) handler: Option<Handler>,
}

impl Sweep {
    /// A sweep of a name, which has the form of a queue's, over `table` or `schema.table`.
    pub fn new(name: impl Into<String>, table: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            table: table.into(),
            key: "id".to_owned(),
            due: String::new(),
            order: String::new(),
            status: String::new(),
            states: States::new("waiting", "claimed", "done"),
            claimed_at: "claimed_at".to_owned(),
            claim: "claim".to_owned(),
            columns: Vec::new(),
            batch: 1000,
            watchdog_after: Duration::from_secs(2 * 60 * 60),
            watchdog_every: Duration::from_secs(60),
            watchdog_most: 100_000,
            max_attempts: 5,
            backoff: Backoff::doubling(Duration::from_secs(300), Duration::from_secs(6 * 60 * 60)),
            when: When::default(),
            gate: Gate::none(),
            loops: 1,
            count_every: COUNT_EVERY,
            finishing: None,
            handler: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn loop_count(&self) -> usize {
        self.loops
    }

    /// The column that tells rows apart: unique and not null, of any type; shown as text.
    /// Default: `id`.
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = column.into();
        self
    }

    /// SQL that says of a row whether it is due. Your own text: nothing in it is quoted, so never
    /// build it from what users wrote.
    pub fn due(mut self, predicate: impl Into<String>) -> Self {
        self.due = predicate.into();
        self
    }

    /// The column in whose order rows are taken; the index of waiting rows begins with it.
    pub fn order_by(mut self, column: impl Into<String>) -> Self {
        self.order = column.into();
        self
    }

    /// The column that holds the state of a row, and its three words.
    pub fn status(mut self, column: impl Into<String>, states: States) -> Self {
        self.status = column.into();
        self.states = states;
        self
    }

    /// The `timestamptz` column that says since when a row is claimed. Default: `claimed_at`.
    pub fn claimed_at(mut self, column: impl Into<String>) -> Self {
        self.claimed_at = column.into();
        self
    }

    /// The `bigint` column that holds the fence: which claim a row belongs to. Default: `claim`.
    pub fn claim(mut self, column: impl Into<String>) -> Self {
        self.claim = column.into();
        self
    }

    /// Columns that the handler gets, in this order.
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// How many rows one claim takes. Larger: fewer round trips, and more rows that wait for the
    /// watchdog when a worker dies. Default: 1000.
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = rows;
        self
    }

    /// Rows claimed for longer than this go back. Shorter: sooner after a crash, and a slow worker
    /// loses its rows sooner; see [`Batch::renew`]. Default: 2 h.
    pub fn watchdog_after(mut self, time: Duration) -> Self {
        self.watchdog_after = time;
        self
    }

    /// How often the watchdog looks, across all workers. Default: 1 min.
    pub fn watchdog_every(mut self, interval: Duration) -> Self {
        self.watchdog_every = interval;
        self
    }

    /// At most so many rows go back in one run of the watchdog: a clock that jumps must not bring
    /// everything back at once. Default: 100 000.
    pub fn watchdog_most(mut self, rows: u32) -> Self {
        self.watchdog_most = rows;
        self
    }

    /// How often a row may fail before it is set aside as dead. Default: 5.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// How long a failed row waits: doubling from `first` to `cap`. Default: 5 min to 6 h.
    pub fn backoff(mut self, first: Duration, cap: Duration) -> Self {
        self.backoff = Backoff::doubling(first, cap);
        self
    }

    /// When the sweep runs. Default: every night at midnight, UTC.
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// What spreads claims out. Default: nothing; rows that others have locked are skipped anyway.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// How many loops one worker runs, each with a connection of its own. Default: 1.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops;
        self
    }

    /// SQL that runs in the statement that finishes rows, and that may read them as `finished`, with
    /// all columns of the table: counts, jobs to enqueue, whatever must happen exactly once. One
    /// statement, which may begin with `with`. Your own text, as in [`Sweep::due`].
    ///
    /// ```
    /// # use leasehold::sweep::Sweep;
    /// # let sweep = Sweep::new("pastes.expiry", "pastes");
    /// sweep.finishing(
    ///     "update contents c set uses = c.uses - f.n
    ///        from (select content_id, count(*) as n from finished group by content_id) f
    ///       where c.id = f.content_id",
    /// )
    /// # ;
    /// ```
    pub fn finishing(mut self, sql: impl Into<String>) -> Self {
        self.finishing = Some(sql.into());
        self
    }

    /// What to do with a batch before its rows are finished. It may run again for the same rows: when
    /// the worker dies, or is slower than the watchdog. An error fails every row that was not
    /// finished yet.
    pub fn handle<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Batch) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        self.handler = Some(Arc::new(move |batch| handler(batch).boxed()));
        self
    }

    /// Finds what is wrong with the declaration itself, before any table is asked.
    pub(super) fn check(&self) -> Result<(), SweepError> {
        let wrong =
            |what: String| Err(SweepError::Declaration(format!("sweep {:?}: {what}", self.name)));
        if check_queue_name(&self.name).is_err() {
            return wrong(
                "its name is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore".into(),
            );
        }
        for (missing, how) in [
            (self.due.trim().is_empty(), ".due(\"expires_at < statement_timestamp()\")"),
            (self.order.is_empty(), ".order_by(\"expires_at\")"),
            (self.status.is_empty(), ".status(\"status\", States::new(…))"),
            (self.key.is_empty(), ".key(\"id\")"),
            (self.table.is_empty(), "Sweep::new(name, \"schema.table\")"),
        ] {
            if missing {
                return wrong(format!("something is missing; add {how}"));
            }
        }
        let States { waiting, claimed, done } = &self.states;
        if waiting == claimed || claimed == done || waiting == done {
            return wrong("its three states are not three different words".into());
        }
        for (fits, what) in [
            ((1..=100_000).contains(&self.batch), "batch must be between 1 and 100000"),
            ((1..=1000).contains(&self.max_attempts), "max_attempts must be between 1 and 1000"),
            ((1..=64).contains(&self.loops), "loops must be between 1 and 64"),
            (self.watchdog_most > 0, "watchdog_most must be at least 1"),
            (!self.watchdog_after.is_zero(), "watchdog_after must be longer than nothing"),
            (!self.watchdog_every.is_zero(), "watchdog_every must be longer than nothing"),
            (
                self.when.0 != Clock::Every(Duration::ZERO),
                "a continuous sweep needs a pause, such as When::continuous(Duration::from_secs(1))",
            ),
        ] {
            if !fits {
                return wrong(what.into());
            }
        }
        Ok(())
    }
}
