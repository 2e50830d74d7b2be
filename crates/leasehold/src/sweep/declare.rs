//! The declaration of a sweep: the user's table, its columns, and the handler of due rows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::batch::ClaimedRows;
use super::gate::Gate;
use super::pass::COUNT_EVERY;
use super::prepare::{CALL_LIMIT, SweepError};
use super::when::{Clock, When};
use crate::job::check_queue_name;
use crate::{Backoff, JobError};

pub(super) type Handler =
    Arc<dyn Fn(ClaimedRows) -> BoxFuture<'static, Result<(), JobError>> + Send + Sync>;

/// The three values of a status column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct States {
    pub(super) waiting: String,
    pub(super) claimed: String,
    pub(super) done: String,
}

impl States {
    /// Names the three values, such as `States::new("live", "ending", "ended")`.
    pub fn new(
        waiting: impl Into<String>,
        claimed: impl Into<String>,
        done: impl Into<String>,
    ) -> Self {
        Self { waiting: waiting.into(), claimed: claimed.into(), done: done.into() }
    }
}

/// The SQL that runs in the statement that finishes rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finishing {
    /// Entries of `with`, without that word.
    pub(super) entries: Option<String>,
    pub(super) statement: String,
}

/// A sweep over a table of the user.
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
    pub(super) claim_size: u32,
    pub(super) watchdog_after: Duration,
    pub(super) watchdog_every: Duration,
    pub(super) watchdog_most: u32,
    pub(super) max_attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) when: When,
    pub(super) gate: Gate,
    pub(super) loops: usize,
    pub(super) count_every: Duration,
    pub(super) limit: Duration,
    pub(super) finishing: Option<Finishing>,
    pub(super) handler: Option<Handler>,
}

impl Sweep {
    /// Creates a sweep over `table` or `schema.table`. Its name has the form of a queue name.
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
            claim_size: 1000,
            watchdog_after: Duration::from_secs(2 * 60 * 60),
            watchdog_every: Duration::from_secs(60),
            watchdog_most: 100_000,
            max_attempts: 5,
            backoff: Backoff::doubling(Duration::from_secs(300), Duration::from_secs(6 * 60 * 60)),
            when: When::default(),
            gate: Gate::none(),
            loops: 1,
            count_every: COUNT_EVERY,
            limit: CALL_LIMIT,
            finishing: None,
            handler: None,
        }
    }

    /// Returns the name of the sweep.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the key column, which identifies a row: unique and not null, of any type; shown as text.
    /// Default: `id`.
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = column.into();
        self
    }

    /// Sets the SQL condition for due rows. The text is used as it is, without quoting, so never build
    /// it from user input.
    pub fn due(mut self, predicate: impl Into<String>) -> Self {
        self.due = predicate.into();
        self
    }

    /// Sets the column in whose order rows are claimed; the index of waiting rows begins with it.
    pub fn order_by(mut self, column: impl Into<String>) -> Self {
        self.order = column.into();
        self
    }

    /// Sets the column that holds the state of a row, and its three values.
    pub fn status(mut self, column: impl Into<String>, states: States) -> Self {
        self.status = column.into();
        self.states = states;
        self
    }

    /// Sets the `timestamptz` column that holds the time of the claim. Default: `claimed_at`.
    pub fn claimed_at(mut self, column: impl Into<String>) -> Self {
        self.claimed_at = column.into();
        self
    }

    /// Sets the `bigint` column that holds the fence: the claim that a row belongs to. Default:
    /// `claim`.
    pub fn claim(mut self, column: impl Into<String>) -> Self {
        self.claim = column.into();
        self
    }

    /// Sets the columns that the handler gets, in this order.
    pub fn columns<C: Into<String>>(mut self, columns: impl IntoIterator<Item = C>) -> Self {
        self.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how many rows one claim takes. A larger number needs fewer round trips, but more rows wait
    /// for the watchdog when a worker dies. Default: 1000.
    pub fn claim_size(mut self, rows: u32) -> Self {
        self.claim_size = rows;
        self
    }

    /// Sets how long a row may be claimed before the watchdog resets it. A shorter time recovers sooner
    /// from a crash, but a slow worker loses its rows sooner; see [`ClaimedRows::renew`]. Default: 2 h.
    pub fn watchdog_after(mut self, time: Duration) -> Self {
        self.watchdog_after = time;
        self
    }

    /// Sets how often the watchdog runs, across all workers. Default: 1 min.
    pub fn watchdog_every(mut self, interval: Duration) -> Self {
        self.watchdog_every = interval;
        self
    }

    /// Sets the most rows that one run of the watchdog resets: a clock that jumps must not reset all
    /// rows at once. Default: 100 000.
    pub fn watchdog_most(mut self, rows: u32) -> Self {
        self.watchdog_most = rows;
        self
    }

    /// Sets how often a row may fail before it is dead. Default: 5.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets how long a failed row waits: doubling from `first` to `cap`. Default: 5 min to 6 h.
    pub fn backoff(mut self, first: Duration, cap: Duration) -> Self {
        self.backoff = Backoff::doubling(first, cap);
        self
    }

    /// Sets when the sweep runs. Default: every night at midnight, UTC.
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Sets the gate that spreads claims out. Default: none; claims skip locked rows anyway.
    pub fn gate(mut self, gate: Gate) -> Self {
        self.gate = gate;
        self
    }

    /// Sets how many loops one worker runs, each with its own connection. Default: 1.
    pub fn loops(mut self, loops: usize) -> Self {
        self.loops = loops;
        self
    }

    /// Sets how often a loop stores its counts and checks whether the sweep is paused. A shorter time
    /// notices a pause sooner, at the cost of one small statement each time. Default: 1 s.
    pub fn count_every(mut self, pause: Duration) -> Self {
        self.count_every = pause;
        self
    }

    /// Sets the timeout of one statement of the sweep. A finish that takes longer is retried in halves.
    /// Default: 30 s.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets one SQL statement that runs in the statement that finishes rows. It may read them as
    /// `finished`, with all columns of the table: counts, jobs to enqueue, anything that must happen
    /// exactly once. The text is used as it is, as in [`Sweep::due`].
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
    pub fn finishing(mut self, statement: impl Into<String>) -> Self {
        self.finishing = Some(Finishing { entries: None, statement: statement.into() });
        self
    }

    /// Sets several statements that run in the statement that finishes rows: `entries` are entries of
    /// `with` that come before `statement`, each of which may write. They are apart from `statement`
    /// because Postgres allows statements that write only at the top level of `with`.
    ///
    /// ```
    /// # use leasehold::sweep::Sweep;
    /// # let sweep = Sweep::new("pastes.expiry", "pastes");
    /// sweep.finishing_with(
    ///     "freed as (delete from contents c using finished f where c.id = f.content_id returning c.size)",
    ///     "update quota set used = used - (select coalesce(sum(size), 0) from freed)",
    /// )
    /// # ;
    /// ```
    pub fn finishing_with(
        mut self,
        entries: impl Into<String>,
        statement: impl Into<String>,
    ) -> Self {
        let (entries, statement) = (Some(entries.into()), statement.into());
        self.finishing = Some(Finishing { entries, statement });
        self
    }

    /// Sets the handler of a batch, which runs before its rows are finished. It may run again for the
    /// same rows: when the worker dies, or is slower than the watchdog. An error fails every row that
    /// was not finished yet.
    pub fn handle<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(ClaimedRows) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        self.handler = Some(Arc::new(move |batch| handler(batch).boxed()));
        self
    }

    /// Finds errors in the declaration itself, before it is compared with the table.
    pub(super) fn check(&self) -> Result<(), SweepError> {
        let wrong =
            |what: String| Err(SweepError::Declaration(format!("sweep {:?}: {what}", self.name)));
        if check_queue_name(&self.name).is_err() {
            return wrong(
                "its name is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore".into(),
            );
        }
        for (missing, what) in [
            (
                self.due.trim().is_empty(),
                "it has no due condition; add .due(\"expires_at < statement_timestamp()\")",
            ),
            (self.order.is_empty(), "it has no order; add .order_by(\"expires_at\")"),
            (
                self.status.is_empty(),
                "it has no status column; add .status(\"status\", States::new(…))",
            ),
            (self.key.is_empty(), "it has no key; add .key(\"id\")"),
            (self.table.is_empty(), "it has no table; use Sweep::new(name, \"schema.table\")"),
        ] {
            if missing {
                return wrong(what.into());
            }
        }
        let States { waiting, claimed, done } = &self.states;
        if waiting == claimed || claimed == done || waiting == done {
            return wrong(format!(
                "its states are {waiting:?}, {claimed:?} and {done:?}; they must be three different words"
            ));
        }
        for (fits, what) in [
            (
                (1..=100_000).contains(&self.claim_size),
                format!("claim_size is {}; it must be between 1 and 100000", self.claim_size),
            ),
            (
                (1..=1000).contains(&self.max_attempts),
                format!("max_attempts is {}; it must be between 1 and 1000", self.max_attempts),
            ),
            (
                (1..=64).contains(&self.loops),
                format!("loops is {}; it must be between 1 and 64", self.loops),
            ),
            (self.watchdog_most > 0, "watchdog_most is 0; it must be at least 1".into()),
            (!self.watchdog_after.is_zero(), "watchdog_after is 0; it must be longer".into()),
            (!self.watchdog_every.is_zero(), "watchdog_every is 0; it must be longer".into()),
            (
                (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.limit),
                format!("limit is {:?}; it must be between 1 s and 1 h", self.limit),
            ),
            (
                self.when.0 != Clock::Every(Duration::ZERO),
                "the pause of a continuous sweep is 0; use one such as \
                 When::continuous(Duration::from_secs(1))"
                    .into(),
            ),
        ] {
            if !fits {
                return wrong(what);
            }
        }
        Ok(())
    }
}
