//! Enqueue: stores a job as a row, in the caller's transaction or in its own.
//!
//! # Invariants
//! - Inside a transaction the job exists if and only if that transaction commits.
//! - With a key, there is one job however often the call is repeated.
//! - Every driver calls the same SQL function, so they all behave the same.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use tokio_postgres::types::{Json, Type};

use super::batch::BatchId;
use super::check::{check_json, check_text, kwargs_of};
use super::follow_up::FollowUps;
use crate::error::EnqueueError;
use crate::job::{Job, JobId, check_queue_name};
use crate::link::Param;

/// The default lifetime of an idempotency key.
const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest delay, expiry or lifetime of a key: PostgreSQL's own times end in the year 294276.
const LONGEST_TIME: Duration = Duration::from_secs(100_000 * 366 * 24 * 60 * 60);
/// The start of the year 1. Earlier years have no common notation: ISO 8601 has a year 0.
const EARLIEST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// The result of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new job.
    New(JobId),
    /// The key was taken: this is the job of the first enqueue.
    Duplicate(JobId),
}

impl Enqueued {
    /// Returns the id of the job, new or not.
    pub fn id(self) -> JobId {
        match self {
            Self::New(id) | Self::Duplicate(id) => id,
        }
    }

    /// Returns true if this call stored the job.
    pub fn is_new(self) -> bool {
        matches!(self, Self::New(_))
    }
}

/// A job about to be enqueued, with the settings of this call.
///
/// ```no_run
/// # use leasehold::{Draft, Enqueue, Job, Leasehold, jiff::Timestamp};
/// # #[derive(Job, serde::Serialize, serde::Deserialize)]
/// # #[job(name = "reminder.send")]
/// # struct Remind { user: i64 }
/// # async fn remind(leasehold: &Leasehold, user: i64, at: Timestamp) -> Result<(), leasehold::EnqueueError> {
/// let first = Remind { user }.draft()?.run_at(at).key(format!("reminder:{user}")).enqueue(leasehold).await?;
/// // The key is taken for 24 hours: this is the same job.
/// let again = Remind { user }.draft()?.run_at(at).key(format!("reminder:{user}")).enqueue(leasehold).await?;
/// assert_eq!((first.id(), again.is_new()), (again.id(), false));
/// # Ok(())
/// # }
/// ```
#[must_use = "a draft does nothing until it is enqueued"]
#[derive(Clone, Debug)]
pub struct Draft {
    pub(crate) name: String,
    pub(crate) kwargs: Box<RawValue>,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    pub(crate) run_after: Option<Duration>,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) expire_after: Option<Duration>,
    pub(crate) tag: String,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) key: Option<String>,
    pub(crate) key_ttl: Duration,
    pub(crate) trace_context: Option<String>,
    pub(crate) limit_key: Option<String>,
    pub(crate) batch: Option<i64>,
    pub(crate) follow_ups: FollowUps,
}

impl Draft {
    /// Drafts a typed job, with the policy of its name.
    pub fn of<J: Job>(job: &J) -> Result<Self, EnqueueError> {
        let policy = J::policy();
        let mut draft = Self::raw(J::NAME, kwargs_of(job)?);
        draft.queue = J::QUEUE.to_owned();
        draft.priority = policy.priority;
        draft.max_attempts = policy.max_attempts;
        draft.limit_key = job.limit_key();
        Ok(draft)
    }

    /// Drafts a job that this program has no type for.
    pub fn untyped(name: &str, kwargs: &serde_json::Value) -> Result<Self, EnqueueError> {
        Ok(Self::raw(name, serde_json::value::to_raw_value(kwargs)?))
    }

    /// Drafts a job from JSON text as given.
    pub fn raw(name: &str, kwargs: Box<RawValue>) -> Self {
        Self {
            name: name.to_owned(),
            kwargs,
            queue: "default".to_owned(),
            priority: 0,
            run_after: None,
            run_at: None,
            expire_after: None,
            tag: String::new(),
            max_attempts: None,
            key: None,
            key_ttl: KEY_TTL,
            trace_context: None,
            limit_key: None,
            batch: None,
            follow_ups: FollowUps::default(),
        }
    }

    /// Enqueues into this queue instead of the queue of the job type. A name has 1 to 64 of a-z, 0-9, dot, dash and
    /// underscore.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Lower runs first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Runs the job not before this much time has passed, by the database's clock.
    pub fn run_after(mut self, delay: Duration) -> Self {
        self.run_after = Some(delay);
        self
    }

    /// Runs the job not before this moment, by the database's clock.
    pub fn run_at(mut self, at: Timestamp) -> Self {
        self.run_at = Some(at);
        self
    }

    /// Expires the job if it does not start within this time: it is kept, never run. Default: 30 days.
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.expire_after = Some(time);
        self
    }

    /// Where the job came from, for operators and metrics.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// How often the job may start before it is dead. Default: the setting of the queue, 25.
    pub fn max_attempts(mut self, attempts: i32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Makes the enqueue idempotent: while the key is taken, a repeat returns the first job.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// How long the key stays taken after the enqueue. It is taken at least until the job is completed,
    /// cancelled or dead. Default: 24 hours. Zero: only until then.
    pub fn key_ttl(mut self, time: Duration) -> Self {
        self.key_ttl = time;
        self
    }

    /// The W3C traceparent that the job belongs to.
    pub fn trace_context(mut self, traceparent: impl Into<String>) -> Self {
        self.trace_context = Some(traceparent.into());
        self
    }

    /// Which limit holds the job back, such as `tenant:7`. Default: what the job type says, or none.
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.limit_key = Some(key.into());
        self
    }

    /// Makes the job a member of this batch, which must be open.
    pub fn in_batch(mut self, batch: BatchId) -> Self {
        self.batch = Some(batch.0);
        self
    }

    /// Enqueues `next` when this job has completed. A chain is written in its order:
    /// `first.then(second).then(third)`. The follow-up is enqueued once, in the transaction that completes the
    /// job; it reads the result of this job by [`Ctx::batch_results`](crate::Ctx::batch_results).
    pub fn then(mut self, next: Draft) -> Self {
        self.follow_ups.then(next);
        self
    }

    /// Enqueues `next` when this job is dead, in place of the one for any end.
    pub fn on_death(mut self, next: Draft) -> Self {
        self.follow_ups.on_death = Some(Box::new(next));
        self
    }

    /// Enqueues `next` when this job has ended, however, unless [`Draft::then`] or [`Draft::on_death`] has one
    /// for that end.
    pub fn on_end(mut self, next: Draft) -> Self {
        self.follow_ups.on_end = Some(Box::new(next));
        self
    }

    /// Stores the job through a connection, a transaction, or [`crate::Leasehold`] itself.
    pub async fn enqueue(self, on: impl EnqueueOn) -> Result<Enqueued, EnqueueError> {
        self.check()?;
        on.enqueue_one(self).await
    }

    pub(crate) fn check(&self) -> Result<(), EnqueueError> {
        check_queue_name(&self.queue).map_err(|error| EnqueueError::Refused(error.to_string()))?;
        check_text("name", &self.name, 1..=200)?;
        check_text("tag", &self.tag, 0..=200)?;
        if let Some(key) = &self.key {
            check_text("key", key, 1..=200)?;
        }
        if let Some(key) = &self.limit_key {
            check_text("limit key", key, 1..=200)?;
        }
        if let Some(trace) = &self.trace_context {
            check_text("trace context", trace, 0..=1024)?;
        }
        if let Some(attempts) = self.max_attempts.filter(|attempts| *attempts < 1) {
            let text = format!("max_attempts is {attempts}; it must be at least 1");
            return Err(EnqueueError::Refused(text));
        }
        self.check_times()?;
        self.follow_ups.check()?;
        check_json(self.kwargs.get())
    }

    /// Rejects times with which PostgreSQL cannot calculate.
    fn check_times(&self) -> Result<(), EnqueueError> {
        let times = [
            ("run_after", self.run_after),
            ("expire_after", self.expire_after),
            ("key_ttl", Some(self.key_ttl)),
        ];
        for (what, time) in times {
            if let Some(time) = time.filter(|time| *time > LONGEST_TIME) {
                return Err(EnqueueError::Refused(format!(
                    "{what} is {} s; it must be at most 100,000 years",
                    time.as_secs()
                )));
            }
        }
        match self.run_at.filter(|at| *at < EARLIEST) {
            Some(at) => {
                Err(EnqueueError::Refused(format!("run_at is {at}; it must be after the year 0")))
            }
            None => Ok(()),
        }
    }
}

/// Enqueue verbs on every job type.
pub trait Enqueue: Job {
    /// Enqueues with the policy of the name.
    ///
    /// A queue that no worker works is no error: the worker may start later. Through [`Leasehold`](crate::Leasehold) a warning is logged
    /// ten seconds later if no live worker works the queue or handles the name. In a transaction or a session of the
    /// caller, of any driver, the job is seen by the sample that a worker with housekeeping takes each minute: it logs
    /// the alarm `no_workers` as a warning, once, when the queue has had ready jobs and no live worker for some minutes.
    fn enqueue(
        self,
        on: impl EnqueueOn + Send,
    ) -> impl Future<Output = Result<Enqueued, EnqueueError>> + Send {
        let draft = Draft::of(&self);
        async move { draft?.enqueue(on).await }
    }

    /// Drafts the job, for further settings: `Welcome { user }.draft()?.run_after(…).key(…).enqueue(&tx)`.
    fn draft(&self) -> Result<Draft, EnqueueError> {
        Draft::of(self)
    }
}

impl<J: Job> Enqueue for J {}

/// A target of an enqueue: each driver's connection and transaction.
pub trait EnqueueOn: Sized {
    /// Stores one checked draft.
    fn enqueue_one(
        self,
        draft: Draft,
    ) -> impl Future<Output = Result<Enqueued, EnqueueError>> + Send;
}

/// Enqueues one job. It is in this file and not in `queries`: its parameters have the order of the values below.
/// Delays are counted by the database's clock, never by the caller's. The casts are for drivers that pass text.
pub(crate) const ENQUEUE: &str = "
select job_id, inserted
  from leasehold.enqueue(
    name => $1, kwargs => $2::jsonb, queue => $3, priority => $4,
    scheduled_at => coalesce($6::timestamptz, statement_timestamp() + make_interval(secs => $5)),
    expires_at => statement_timestamp() + make_interval(secs => $7),
    tag => $8, max_attempts => $9, key => $10, key_ttl => make_interval(secs => $11),
    trace_context => $12, limit_key => $13, batch => $14, on_success => $15::jsonb, on_end => $16::jsonb,
    on_death => $17::jsonb)";

/// The values of a draft, in the order of the statement's parameters.
pub(crate) struct Values<'a> {
    draft: &'a Draft,
    kwargs: Json<&'a RawValue>,
    run_after: Option<f64>,
    expire_after: Option<f64>,
    key_ttl: f64,
    follow_ups: [Option<String>; 3],
}

impl<'a> Values<'a> {
    pub(crate) fn of(draft: &'a Draft) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Self {
            draft,
            kwargs: Json(&draft.kwargs),
            run_after: seconds(draft.run_after),
            expire_after: seconds(draft.expire_after),
            key_ttl: draft.key_ttl.as_secs_f64(),
            follow_ups: draft.follow_ups.texts(),
        }
    }

    pub(crate) fn params(&self) -> [Param<'_>; 17] {
        [
            (&self.draft.name, Type::TEXT),
            (&self.kwargs, Type::JSONB),
            (&self.draft.queue, Type::TEXT),
            (&self.draft.priority, Type::INT4),
            (&self.run_after, Type::FLOAT8),
            (&self.draft.run_at, Type::TIMESTAMPTZ),
            (&self.expire_after, Type::FLOAT8),
            (&self.draft.tag, Type::TEXT),
            (&self.draft.max_attempts, Type::INT4),
            (&self.draft.key, Type::TEXT),
            (&self.key_ttl, Type::FLOAT8),
            (&self.draft.trace_context, Type::TEXT),
            (&self.draft.limit_key, Type::TEXT),
            (&self.draft.batch, Type::INT8),
            (&self.follow_ups[0], Type::TEXT),
            (&self.follow_ups[1], Type::TEXT),
            (&self.follow_ups[2], Type::TEXT),
        ]
    }
}

/// The values of a draft in types that every driver binds.
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9", feature = "diesel-async"))]
pub(crate) struct TextValues<'a> {
    pub(crate) name: &'a str,
    pub(crate) kwargs: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) priority: i32,
    pub(crate) run_after: Option<f64>,
    pub(crate) run_at: Option<String>,
    pub(crate) expire_after: Option<f64>,
    pub(crate) tag: &'a str,
    pub(crate) max_attempts: Option<i32>,
    pub(crate) key: Option<&'a str>,
    pub(crate) key_ttl: f64,
    pub(crate) trace_context: Option<&'a str>,
    pub(crate) limit_key: Option<&'a str>,
    pub(crate) batch: Option<i64>,
    pub(crate) on_success: Option<String>,
    pub(crate) on_end: Option<String>,
    pub(crate) on_death: Option<String>,
}

#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9", feature = "diesel-async"))]
impl<'a> TextValues<'a> {
    pub(crate) fn of(draft: &'a Draft) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let [on_success, on_end, on_death] = draft.follow_ups.texts();
        Self {
            name: &draft.name,
            kwargs: draft.kwargs.get(),
            queue: &draft.queue,
            priority: draft.priority,
            run_after: seconds(draft.run_after),
            run_at: draft.run_at.map(|at| at.to_string()),
            expire_after: seconds(draft.expire_after),
            tag: &draft.tag,
            max_attempts: draft.max_attempts,
            key: draft.key.as_deref(),
            key_ttl: draft.key_ttl.as_secs_f64(),
            trace_context: draft.trace_context.as_deref(),
            limit_key: draft.limit_key.as_deref(),
            batch: draft.batch,
            on_success,
            on_end,
            on_death,
        }
    }
}

/// Binds [`TextValues`] to a query of a driver, in the order of the parameters. diesel needs the SQL types; it has them
/// in scope.
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9", feature = "diesel-async"))]
macro_rules! bind_values {
    ($driver:ident, $query:expr, $values:expr) => {{
        let (query, values) = ($query, $values);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Text, values.name);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Text, values.kwargs);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Text, values.queue);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Integer, values.priority);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Double>, values.run_after);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.run_at);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Double>, values.expire_after);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Text, values.tag);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Integer>, values.max_attempts);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.key);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Double, values.key_ttl);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.trace_context);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.limit_key);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<BigInt>, values.batch);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.on_success);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.on_end);
        let query = $crate::queue::enqueue::bind_values!(@$driver query, Nullable<Text>, values.on_death);
        query
    }};
    (@sqlx $query:ident, $kind:ty, $value:expr) => {
        $query.bind($value)
    };
    (@diesel $query:ident, $kind:ty, $value:expr) => {
        $query.bind::<$kind, _>($value)
    };
}
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9", feature = "diesel-async"))]
pub(crate) use bind_values;

async fn enqueue_one(
    client: &impl tokio_postgres::GenericClient,
    draft: Draft,
) -> Result<Enqueued, EnqueueError> {
    let values = Values::of(&draft);
    let rows = client.query_typed(ENQUEUE, &values.params()).await?;
    read_enqueued(&rows)
}

pub(crate) fn read_enqueued(rows: &[tokio_postgres::Row]) -> Result<Enqueued, EnqueueError> {
    let row = rows.first().ok_or_else(|| {
        EnqueueError::Refused("the database returned no id; run leasehold doctor".into())
    })?;
    Ok(enqueued(row.get(0), row.get(1)))
}

pub(crate) fn enqueued(id: i64, inserted: bool) -> Enqueued {
    if inserted { Enqueued::New(JobId(id)) } else { Enqueued::Duplicate(JobId(id)) }
}

impl EnqueueOn for &tokio_postgres::Client {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        enqueue_one(self, draft).await
    }
}

impl EnqueueOn for &tokio_postgres::Transaction<'_> {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        enqueue_one(self, draft).await
    }
}

impl EnqueueOn for &deadpool_postgres::Client {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let client: &tokio_postgres::Client = self;
        enqueue_one(client, draft).await
    }
}

impl EnqueueOn for &deadpool_postgres::Transaction<'_> {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let transaction: &tokio_postgres::Transaction<'_> = self;
        enqueue_one(transaction, draft).await
    }
}
