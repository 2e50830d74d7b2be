//! Runs each claimed job in its own task, with a slot, a fence and a way to stop it.
//!
//! # Invariants
//! - A panic in a handler fails that attempt and no other.
//! - An attempt ends once: by its handler, by the keeper at the run limit, or by the shutdown,
//!   whichever decides first.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::context::{Attempt, StopReason};
use super::decisions::Decisions;
use super::handler::{Registered, Runner};
use super::layer::Layers;
use super::lease_table::{Execution, LeaseTable, SharedGuard};
use super::outcome::JobError;
use super::registry::WorkerStats;
use super::transaction::TransactionPool;
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::queue::claim::Claim;
use crate::queue::finish::Transition;

/// What the queues of one worker share to run jobs.
pub(crate) struct Executor {
    pub(crate) engine: Leasehold,
    pub(crate) runners: HashMap<String, Registered>,
    pub(crate) lease_table: Arc<LeaseTable>,
    pub(crate) decisions: Decisions,
    pub(crate) events: Events,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Claims hold this for reading from before they are sent until their last job ended. A job on its
    /// last chance runs alone: its lease holds this for writing until its end is recorded.
    pub(crate) solo_lock: Arc<RwLock<()>>,
    pub(crate) transactions: Arc<TransactionPool>,
    /// `None` without any.
    pub(crate) layers: Option<Arc<Layers>>,
    /// Keep the error texts of handlers out of the log and the table.
    pub(crate) hides_errors: bool,
}

impl Executor {
    /// Adds the claim's jobs to the lease table and starts them.
    pub(crate) async fn start(
        self: &Arc<Self>,
        claim: Claim,
        queue: &Arc<str>,
        slots: &Arc<Semaphore>,
        execution: Execution,
    ) {
        let Claim { generation, jobs, lease, run_limit, asked_at } = claim;
        let (solo_lock, solo) = match execution {
            Execution::Shared(solo_lock) => (Some(solo_lock), None),
            Execution::Solo(solo) => (None, Some(solo)),
        };
        let attempts: Vec<Arc<Attempt>> = jobs
            .into_iter()
            .map(|job| {
                // The run limit of the job type takes precedence over that of the queue.
                let registered = self.runners.get(&*job.name);
                let run_limit = registered.and_then(|known| known.run_limit).unwrap_or(run_limit);
                let attempt = Attempt::new(job, Arc::clone(queue), self.engine.clone(), run_limit);
                let attempt = attempt.with_transactions(&self.transactions);
                Arc::new(attempt.with_layers(self.layers.as_ref()))
            })
            .collect();
        self.lease_table.open(generation, attempts.clone(), lease, asked_at, solo);
        let mut batches: HashMap<(Arc<str>, i64), Vec<Arc<Attempt>>> = HashMap::new();
        for attempt in attempts {
            match self.runner(&attempt) {
                Some(Runner::Many { jobs, .. }) => {
                    let (most, group) = (jobs.most(), jobs.group(&attempt));
                    let together = (Arc::clone(&attempt.job.name), group);
                    let waiting = batches.entry(together).or_default();
                    waiting.push(attempt);
                    if waiting.len() >= most {
                        let full = std::mem::take(waiting);
                        self.spawn_many(full, solo_lock.clone(), slots).await;
                    }
                }
                _ => self.spawn_one(attempt, solo_lock.clone(), slots).await,
            }
        }
        for rest in batches.into_values().filter(|rest| !rest.is_empty()) {
            self.spawn_many(rest, solo_lock.clone(), slots).await;
        }
    }

    async fn spawn_one(
        self: &Arc<Self>,
        attempt: Arc<Attempt>,
        solo_lock: Option<SharedGuard>,
        slots: &Arc<Semaphore>,
    ) {
        // Claims take no more than the free slots, so this does not wait in practice.
        let permit = Arc::clone(slots).acquire_owned().await;
        let (executor, running) = (Arc::clone(self), Arc::clone(&attempt));
        let task = self.tasks.spawn(async move {
            let _held = (permit, solo_lock);
            executor.run_one(running).await;
        });
        let _ = attempt.task.set(task.abort_handle());
    }

    async fn spawn_many(
        self: &Arc<Self>,
        attempts: Vec<Arc<Attempt>>,
        solo_lock: Option<SharedGuard>,
        slots: &Arc<Semaphore>,
    ) {
        let wanted = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let permits: Option<OwnedSemaphorePermit> =
            Arc::clone(slots).acquire_many_owned(wanted).await.ok();
        let (executor, running) = (Arc::clone(self), attempts.clone());
        let task = self.tasks.spawn(async move {
            let _held = (permits, solo_lock);
            executor.run_many(running).await;
        });
        for attempt in attempts {
            let _ = attempt.task.set(task.abort_handle());
        }
    }

    /// Waits until no job is on its last chance, and none waits to run alone.
    pub(crate) async fn join(&self) -> SharedGuard {
        Arc::new(Arc::clone(&self.solo_lock).read_owned().await)
    }

    async fn run_one(&self, attempt: Arc<Attempt>) {
        if !self.may_start(&attempt) {
            return self.decide(attempt, Transition::Release).await;
        }
        let Some(Runner::One(run)) = self.runner(&attempt) else {
            // Names without a handler are not claimed.
            return self.decide(attempt, Transition::Release).await;
        };
        let busy = self.stats.work(1);
        let span = span(&attempt);
        let running = AssertUnwindSafe(run(Arc::clone(&attempt))).catch_unwind();
        let outcome = tracing::Instrument::instrument(running, span).await;
        drop(busy);
        let transition = outcome.unwrap_or_else(|panic| after_panic(&*panic));
        self.decide(attempt, transition).await;
    }

    async fn run_many(&self, attempts: Vec<Arc<Attempt>>) {
        let mut starting = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            if self.may_start(&attempt) {
                starting.push(attempt);
            } else {
                self.decide(attempt, Transition::Release).await;
            }
        }
        let Some(Runner::Many { run, .. }) =
            starting.first().and_then(|attempt| self.runner(attempt))
        else {
            return;
        };
        let busy = self.stats.work(starting.len());
        let outcome = AssertUnwindSafe(run(starting.clone())).catch_unwind().await;
        drop(busy);
        let transitions =
            outcome.unwrap_or_else(|panic| starting.iter().map(|_| after_panic(&*panic)).collect());
        for (attempt, transition) in starting.into_iter().zip(transitions) {
            self.decide(attempt, transition).await;
        }
    }

    fn runner(&self, attempt: &Attempt) -> Option<&Runner> {
        self.runners.get(&*attempt.job.name).map(|known| &known.runner)
    }

    /// Returns whether a job may start. After the stop it is released; if its lease was lost while it
    /// waited, it belongs to another worker.
    fn may_start(&self, attempt: &Attempt) -> bool {
        if self.stop.is_cancelled() || attempt.stop_reason().is_some() {
            return false;
        }
        let _ = attempt.started.set(Instant::now());
        self.events
            .send(|| Event::Started { job: attempt.job.id, generation: attempt.job.generation });
        true
    }

    async fn decide(&self, attempt: Arc<Attempt>, transition: Transition) {
        if !attempt.decide() {
            return;
        }
        let mut transition = weigh(&attempt, transition);
        if self.hides_errors {
            transition.hide_text();
        }
        self.decisions.send(attempt, transition).await;
    }
}

/// Returns the span that every log line of an attempt carries. It has no kwargs, which may hold
/// secrets: they are in the database, for roles that may read them.
pub(super) fn span(attempt: &Attempt) -> tracing::Span {
    tracing::info_span!(
        "job",
        job.id = attempt.job.id.0,
        job.name = &*attempt.job.name,
        job.queue = &*attempt.queue,
        job.attempt = attempt.job.attempts,
    )
}

/// Adjusts the handler's result to a request to stop.
fn weigh(attempt: &Attempt, transition: Transition) -> Transition {
    match (attempt.stop_reason(), transition) {
        (_, Transition::Complete) if attempt.was_completed_in_transaction() => {
            Transition::CompletedInTransaction
        }
        // The server ends the COMMIT of an aborted transaction with a silent ROLLBACK: a handler that
        // ignored the error believes that its work is stored.
        (_, Transition::Complete) if attempt.failed_in_transaction() => Transition::Retry {
            after: None,
            why: "complete_in failed and the handler ignored the error".to_owned(),
        },
        (Some(StopReason::Cancelled), Transition::Retry { why, .. }) => Transition::Cancel { why },
        (Some(StopReason::Shutdown), Transition::Retry { .. }) => Transition::Release,
        (_, transition) => transition,
    }
}

fn after_panic(panic: &(dyn std::any::Any + Send)) -> Transition {
    Transition::Retry { after: None, why: JobError::from_panic(panic).text }
}
