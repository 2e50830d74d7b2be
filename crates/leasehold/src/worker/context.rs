//! What a handler knows about the job it runs, and the fence it works under.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::layer::Layers;
use super::transaction::TransactionPool;
use crate::engine::Leasehold;
use crate::error::FinishError;
use crate::job::{Generation, JobId};
use crate::queue::claim::ClaimedJob;
use crate::queue::finish::COMPLETE_IN_TRANSACTION;

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum StopReason {
    /// An operator or a client asked to cancel the job.
    Cancelled = 1,
    /// The lease is lost or about to be: nothing done from here on will count.
    LeaseLost = 2,
    /// The handler has run longer than its limit.
    RunLimit = 3,
    /// The worker is shutting down; it releases the job.
    Shutdown = 4,
}

/// The context of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Ctx(pub(crate) Arc<Attempt>);

/// What the attempts of one lease share, so that an attempt counts one reference and not one per part.
pub(crate) struct LeaseShared {
    pub(crate) engine: Leasehold,
    pub(crate) queue: Arc<str>,
    /// Connections of the worker for [`super::JobTx`]; `None` outside a worker.
    pub(crate) transactions: Option<Arc<TransactionPool>>,
    /// The layers of the worker; `None` without any.
    pub(crate) layers: Option<Arc<Layers>>,
    /// No other job may run in the process.
    pub(crate) runs_alone: bool,
    pub(crate) end: LeaseEnd,
}

/// When this worker stops relying on a lease: before the database does. A renewal moves it.
pub(crate) struct LeaseEnd {
    claimed_at: Instant,
    /// Microseconds after `claimed_at`.
    after: AtomicU64,
}

impl LeaseEnd {
    /// Returns the end of a lease that was requested at `claimed_at`.
    pub(crate) fn new(claimed_at: Instant, lease: Duration) -> Self {
        let end = Self { claimed_at, after: AtomicU64::new(0) };
        end.renewed(claimed_at, lease);
        end
    }

    /// Records that the lease was renewed by a statement sent at `asked_at`: a sixth of the lease is left to
    /// handlers that are asked to stop.
    pub(crate) fn renewed(&self, asked_at: Instant, lease: Duration) {
        let after = asked_at.saturating_duration_since(self.claimed_at) + lease - lease / 6;
        self.after.store(u64::try_from(after.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Returns how long this worker may still rely on the lease; zero: no longer.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        let after = Duration::from_micros(self.after.load(Ordering::SeqCst));
        after.saturating_sub(now.saturating_duration_since(self.claimed_at))
    }

    pub(crate) fn has_passed(&self, now: Instant) -> bool {
        self.remaining(now).is_zero()
    }
}

/// One attempt of one job.
pub(crate) struct Attempt {
    pub(crate) job: ClaimedJob,
    pub(crate) shared: Arc<LeaseShared>,
    pub(crate) run_limit: Duration,
    /// What layers left for the handler, one value per type.
    values: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    stop: AtomicU8,
    stopped: Notify,
    /// Set by the one caller that decides how the attempt ends.
    decided: AtomicBool,
    completed_in_transaction: AtomicBool,
    /// A completion inside a transaction was tried and failed.
    failed_in_transaction: AtomicBool,
    pub(crate) started: std::sync::OnceLock<Instant>,
    aborted: Notify,
}

impl Attempt {
    pub(crate) fn new(job: ClaimedJob, shared: Arc<LeaseShared>, run_limit: Duration) -> Self {
        Self {
            job,
            shared,
            run_limit,
            values: Mutex::default(),
            stop: AtomicU8::new(0),
            stopped: Notify::new(),
            decided: AtomicBool::new(false),
            completed_in_transaction: AtomicBool::new(false),
            failed_in_transaction: AtomicBool::new(false),
            started: std::sync::OnceLock::new(),
            aborted: Notify::new(),
        }
    }

    pub(crate) fn queue(&self) -> &Arc<str> {
        &self.shared.queue
    }

    /// Asks the handler to stop. The first reason stays, but a lost lease overrides all.
    pub(crate) fn stop(&self, reason: StopReason) {
        if reason == StopReason::LeaseLost {
            self.stop.store(reason as u8, Ordering::SeqCst);
        } else {
            let first =
                self.stop.compare_exchange(0, reason as u8, Ordering::SeqCst, Ordering::SeqCst);
            if first.is_err() {
                return;
            }
        }
        self.stopped.notify_waiters();
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        match self.stop.load(Ordering::SeqCst) {
            1 => Some(StopReason::Cancelled),
            2 => Some(StopReason::LeaseLost),
            3 => Some(StopReason::RunLimit),
            4 => Some(StopReason::Shutdown),
            _ => None,
        }
    }

    /// Drops the handler where it yields next. Its result counts no more: the caller has decided how the
    /// attempt ends.
    pub(crate) fn abort(&self) {
        self.aborted.notify_one();
    }

    /// Waits until [`Self::abort`] is called. At most one task may wait.
    pub(crate) async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Waits until the lease is lost.
    pub(crate) async fn lost(&self) {
        loop {
            let stopped = self.stopped.notified();
            if self.stop_reason() == Some(StopReason::LeaseLost) {
                return;
            }
            stopped.await;
        }
    }

    /// Returns true to the one caller that may decide how the attempt ends.
    pub(crate) fn decide(&self) -> bool {
        !self.decided.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn was_completed_in_transaction(&self) -> bool {
        self.completed_in_transaction.load(Ordering::SeqCst)
    }

    pub(crate) fn failed_in_transaction(&self) -> bool {
        self.failed_in_transaction.load(Ordering::SeqCst)
    }
}

impl Ctx {
    #[cfg(feature = "testing")]
    pub(crate) fn of_attempt(
        job: ClaimedJob,
        queue: Arc<str>,
        engine: Leasehold,
        run_limit: Duration,
    ) -> Self {
        // Nothing renews the lease of such an attempt, and nothing watches its end.
        let end = LeaseEnd::new(Instant::now(), Duration::MAX);
        let shared =
            LeaseShared { engine, queue, transactions: None, layers: None, runs_alone: false, end };
        Self(Arc::new(Attempt::new(job, Arc::new(shared), run_limit)))
    }

    /// Returns true if a transaction of the handler completed the job.
    #[cfg(feature = "testing")]
    pub fn was_completed_in_transaction(&self) -> bool {
        self.0.was_completed_in_transaction()
    }

    /// Returns the id of the job.
    pub fn id(&self) -> JobId {
        self.0.job.id
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.0.job.name
    }

    /// Returns the queue of the job.
    pub fn queue(&self) -> &str {
        &self.0.shared.queue
    }

    /// Returns the name of the job's database in its fleet; `None` outside of a fleet.
    pub fn database(&self) -> Option<&str> {
        self.0.shared.engine.name()
    }

    /// Returns the tag of the job; empty if it has none.
    pub fn tag(&self) -> &str {
        &self.0.job.tag
    }

    /// Returns the priority of the job; lower numbers run first.
    pub fn priority(&self) -> i32 {
        self.0.job.priority
    }

    /// Returns true if the attempt before this one deferred the job; see [`super::Outcome::Defer`].
    pub fn is_deferred(&self) -> bool {
        self.0.job.deferred
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> i32 {
        self.0.job.attempts
    }

    /// Returns how often the job may start.
    pub fn max_attempts(&self) -> i32 {
        self.0.job.max_attempts
    }

    /// Returns how many workers died while they held this job.
    pub fn lost_count(&self) -> i16 {
        self.0.job.lost_count
    }

    /// Returns when the job was enqueued, by the database's clock.
    pub fn enqueued_at(&self) -> Timestamp {
        self.0.job.enqueued_at.to_timestamp()
    }

    /// Returns when the job was due, by the database's clock.
    pub fn scheduled_at(&self) -> Timestamp {
        self.0.job.scheduled_at.to_timestamp()
    }

    /// Returns how long the job had waited when it was last due, by the database's clock.
    pub fn waited(&self) -> Duration {
        self.0.job.waited()
    }

    /// Returns the idempotency key of the enqueue.
    pub fn key(&self) -> Option<&str> {
        self.0.job.key.as_deref()
    }

    /// Returns the W3C traceparent of the enqueue.
    pub fn trace_context(&self) -> Option<&str> {
        self.0.job.trace_context.as_deref()
    }

    /// Returns the handle of the worker, such as to enqueue further jobs.
    pub fn engine(&self) -> &Leasehold {
        &self.0.shared.engine
    }

    /// Returns the job's kwargs as JSON text.
    pub fn kwargs(&self) -> &[u8] {
        self.0.job.kwargs.as_slice()
    }

    /// Keeps a value with this attempt, such as the tenant that a layer found in the kwargs. It replaces a value
    /// of the same type.
    pub fn insert<T: Send + Sync + 'static>(&self, value: T) {
        self.0.values.lock().insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Returns the value of this type that was kept with the attempt.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.0.values.lock().get(&TypeId::of::<T>()).cloned();
        value.and_then(|value| value.downcast().ok())
    }

    /// Returns a number for outside systems that can reject a smaller one. It grows with every claim of
    /// the job, through retries and redrives, and across failovers and restores.
    pub fn fence(&self) -> Generation {
        self.0.job.generation
    }

    /// Returns the generation of the claim, which is the fence.
    pub fn generation(&self) -> Generation {
        self.0.job.generation
    }

    /// Returns the same text in every attempt of this job: an idempotency key for outside systems.
    pub fn outside_key(&self, step: &str) -> String {
        format!("leasehold:{}:{}:{step}", self.0.shared.engine.identity_text(), self.id())
    }

    /// Returns why the handler should stop, if it should.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.0.stop_reason()
    }

    /// Waits until the handler should stop: `tokio::select!` on it in long handlers.
    pub async fn stopped(&self) -> StopReason {
        loop {
            // Subscribe before the check, or a stop in between would be missed.
            let stopped = self.0.stopped.notified();
            if let Some(reason) = self.stop_reason() {
                return reason;
            }
            stopped.await;
        }
    }

    /// Completes the job in the caller's transaction: the job is completed if and only if that
    /// transaction commits. [`FinishError::LeaseLost`] means that another worker owns the job: roll
    /// back.
    ///
    /// ```no_run
    /// # use leasehold::{Ctx, Job, JobResult, Outcome};
    /// # #[derive(Job, serde::Serialize, serde::Deserialize)]
    /// # #[job(name = "order.close")]
    /// # struct CloseOrder { id: i64 }
    /// async fn close_order(job: CloseOrder, ctx: Ctx) -> JobResult {
    ///     let mut client = ctx.engine().pool().get().await?;
    ///     let tx = client.transaction().await?;
    ///     tx.execute("update orders set state = 'closed' where id = $1", &[&job.id]).await?;
    ///     ctx.complete_in(&tx).await?;
    ///     tx.commit().await?;
    ///     Ok(Outcome::Complete)
    /// }
    /// ```
    ///
    /// Works at every isolation level; a serialization failure is a database error like any other,
    /// and the attempt is retried.
    pub async fn complete_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
    ) -> Result<(), FinishError> {
        self.complete_on(transaction).await
    }

    pub(crate) async fn complete_on(
        &self,
        transaction: &impl tokio_postgres::GenericClient,
    ) -> Result<(), FinishError> {
        let ids = [self.id().0];
        let rows = transaction
            .query_typed(
                COMPLETE_IN_TRANSACTION,
                &[(&&ids[..], Type::INT8_ARRAY), (&self.generation().0, Type::INT8)],
            )
            .await
            .map_err(|error| {
                self.note_failure();
                FinishError::Database(error)
            })?;
        self.note_completion(!rows.is_empty())
    }

    /// Records that completing in a transaction failed: a handler that ignores the error has not
    /// finished the job.
    pub(crate) fn note_failure(&self) {
        self.0.failed_in_transaction.store(true, Ordering::SeqCst);
    }

    /// Records that a transaction completed the job, so that the worker checks whether it committed
    /// instead of completing the job itself.
    pub(crate) fn note_completion(&self, completed: bool) -> Result<(), FinishError> {
        if !completed {
            return Err(self.lease_lost());
        }
        self.0.completed_in_transaction.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Checks, in a transaction, that this worker still owns the job, and keeps it so until the
    /// transaction ends. Handlers with several transactions begin each of them with this.
    pub async fn check_lease_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
    ) -> Result<(), FinishError> {
        let checked = transaction
            .query_typed(
                "select leasehold.check_lease($1, $2)",
                &[(&self.id().0, Type::INT8), (&self.generation().0, Type::INT8)],
            )
            .await;
        match checked {
            Ok(_) => Ok(()),
            Err(error) if error.code().is_some_and(|code| code.code() == "LH004") => {
                Err(self.lease_lost())
            }
            Err(error) => Err(FinishError::Database(error)),
        }
    }

    fn lease_lost(&self) -> FinishError {
        FinishError::LeaseLost { job: self.id(), generation: self.generation() }
    }
}
