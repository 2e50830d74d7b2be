//! What a handler knows about the job it runs, and the fence it works under.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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
use crate::link::Param;
use crate::queue::claim::ClaimedJob;
use crate::queue::finish::{COMPLETE_IN_TRANSACTION, COMPLETE_IN_TRANSACTION_WITH_RESULT};

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

/// One attempt of one job.
pub(crate) struct Attempt {
    pub(crate) job: ClaimedJob,
    pub(crate) queue: Arc<str>,
    pub(crate) engine: Leasehold,
    pub(crate) run_limit: Duration,
    /// Connections of the worker for [`super::JobTx`]; `None` outside a worker.
    pub(crate) transactions: Option<Arc<TransactionPool>>,
    /// The layers of the worker; `None` without any.
    pub(crate) layers: Option<Arc<Layers>>,
    /// What the completion keeps, as JSON.
    result: Mutex<Option<String>>,
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
    pub(crate) task: std::sync::OnceLock<tokio::task::AbortHandle>,
}

impl Attempt {
    pub(crate) fn new(
        job: ClaimedJob,
        queue: Arc<str>,
        engine: Leasehold,
        run_limit: Duration,
    ) -> Self {
        Self {
            job,
            queue,
            engine,
            run_limit,
            transactions: None,
            layers: None,
            result: Mutex::default(),
            values: Mutex::default(),
            stop: AtomicU8::new(0),
            stopped: Notify::new(),
            decided: AtomicBool::new(false),
            completed_in_transaction: AtomicBool::new(false),
            failed_in_transaction: AtomicBool::new(false),
            started: std::sync::OnceLock::new(),
            task: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn with_transactions(mut self, transactions: &Arc<TransactionPool>) -> Self {
        self.transactions = Some(Arc::clone(transactions));
        self
    }

    pub(crate) fn with_layers(mut self, layers: Option<&Arc<Layers>>) -> Self {
        self.layers = layers.cloned();
        self
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

    /// Returns true to the one caller that may decide how the attempt ends.
    pub(crate) fn decide(&self) -> bool {
        !self.decided.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn was_completed_in_transaction(&self) -> bool {
        self.completed_in_transaction.load(Ordering::SeqCst)
    }

    /// Returns what the completion keeps.
    pub(crate) fn result(&self) -> Option<String> {
        self.result.lock().clone()
    }

    pub(crate) fn keeps_a_result(&self) -> bool {
        self.result.lock().is_some()
    }

    pub(crate) fn keep_result(&self, result: String) {
        *self.result.lock() = Some(result);
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
        Self(Arc::new(Attempt::new(job, queue, engine, run_limit)))
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
        &self.0.queue
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
        &self.0.engine
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
        format!("leasehold:{}:{}:{step}", self.0.engine.system_id(), self.id())
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
        let (ids, result) = ([self.id().0], self.0.result());
        let (ids, generation) = (&ids[..], self.generation().0);
        let fence: [Param<'_>; 2] = [(&ids, Type::INT8_ARRAY), (&generation, Type::INT8)];
        let completing = match &result {
            None => transaction.query_typed(COMPLETE_IN_TRANSACTION, &fence).await,
            Some(result) => {
                let [ids, generation] = fence;
                let params = [ids, generation, (result as _, Type::TEXT)];
                transaction.query_typed(COMPLETE_IN_TRANSACTION_WITH_RESULT, &params).await
            }
        };
        let rows = completing.map_err(|error| {
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
