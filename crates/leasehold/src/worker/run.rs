//! Running: each claimed job in a task of its own, with a slot, a fence and a way to stop it.
//!
//! # What is true
//! - A panic in a handler is that attempt's failure and nobody else's.
//! - An attempt ends once: by its handler, by the keeper at the run limit, or by the shutdown,
//!   whoever decides first.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::FutureExt;
use tokio::sync::{OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;

use super::book::{Alone, Book};
use super::context::{Attempt, StopReason};
use super::finisher::Decision;
use super::handler::{Registered, Runner};
use super::registry::Vitals;
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::queue::claim::Claim;
use crate::queue::finish::Verdict;

/// Everything that running a job needs, shared by the queues of one worker.
pub(crate) struct Crew {
    pub(crate) engine: Leasehold,
    pub(crate) runners: HashMap<String, Registered>,
    pub(crate) book: Arc<Book>,
    pub(crate) decisions: mpsc::Sender<Decision>,
    pub(crate) events: Events,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: watch::Receiver<bool>,
    /// Whoever runs a job reads; a job on its last chance runs alone, and its lease holds this for
    /// writing until its end is recorded.
    pub(crate) company: Arc<RwLock<()>>,
}

impl Crew {
    /// Puts the claim's jobs in the book and starts them.
    pub(crate) async fn start(
        self: &Arc<Self>,
        claim: Claim,
        queue: &Arc<str>,
        slots: &Arc<Semaphore>,
        alone: Option<Alone>,
    ) {
        let Claim { generation, jobs, lease, run_limit, asked_at } = claim;
        let in_company = alone.is_none();
        let attempts: Vec<Arc<Attempt>> = jobs
            .into_iter()
            .map(|job| {
                // What the kind of job says goes before what the queue says.
                let registered = self.runners.get(&*job.name);
                let run_limit = registered.and_then(|known| known.run_limit).unwrap_or(run_limit);
                Arc::new(Attempt::new(job, Arc::clone(queue), self.engine.clone(), run_limit))
            })
            .collect();
        self.book.open(generation, attempts.clone(), lease, asked_at, alone);
        let mut batches: HashMap<(Arc<str>, bool), Vec<Arc<Attempt>>> = HashMap::new();
        for attempt in attempts {
            match self.runner(&attempt) {
                Some(Runner::Many { most, apart, .. }) => {
                    let (most, apart) = (*most, apart(attempt.job.priority));
                    let kind = (Arc::clone(&attempt.job.name), apart);
                    let waiting = batches.entry(kind).or_default();
                    waiting.push(attempt);
                    if waiting.len() >= most {
                        let full = std::mem::take(waiting);
                        self.spawn_many(full, in_company, slots).await;
                    }
                }
                _ => self.spawn_one(attempt, in_company, slots).await,
            }
        }
        for rest in batches.into_values().filter(|rest| !rest.is_empty()) {
            self.spawn_many(rest, in_company, slots).await;
        }
    }

    async fn spawn_one(
        self: &Arc<Self>,
        attempt: Arc<Attempt>,
        in_company: bool,
        slots: &Arc<Semaphore>,
    ) {
        // Claims take no more than the free slots, so this does not wait in practice.
        let permit = Arc::clone(slots).acquire_owned().await;
        let (crew, running) = (Arc::clone(self), Arc::clone(&attempt));
        let task = self.tasks.spawn(async move {
            let _permit = permit;
            let _company = crew.join(in_company).await;
            crew.run_one(running).await;
        });
        let _ = attempt.task.set(task.abort_handle());
    }

    async fn spawn_many(
        self: &Arc<Self>,
        attempts: Vec<Arc<Attempt>>,
        in_company: bool,
        slots: &Arc<Semaphore>,
    ) {
        let wanted = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        let permits: Option<OwnedSemaphorePermit> =
            Arc::clone(slots).acquire_many_owned(wanted).await.ok();
        let (crew, running) = (Arc::clone(self), attempts.clone());
        let task = self.tasks.spawn(async move {
            let _permits = permits;
            let _company = crew.join(in_company).await;
            crew.run_many(running).await;
        });
        for attempt in attempts {
            let _ = attempt.task.set(task.abort_handle());
        }
    }

    /// Waits until no job is on its last chance. Such a job itself has nobody to wait for.
    async fn join(&self, in_company: bool) -> Option<OwnedRwLockReadGuard<()>> {
        if in_company { Some(Arc::clone(&self.company).read_owned().await) } else { None }
    }

    async fn run_one(&self, attempt: Arc<Attempt>) {
        if !self.may_start(&attempt) {
            return self.decide(attempt, Verdict::Release).await;
        }
        let Some(Runner::One(run)) = self.runner(&attempt) else {
            // Names without a handler are not claimed.
            return self.decide(attempt, Verdict::Release).await;
        };
        self.vitals.busy.fetch_add(1, Ordering::Relaxed);
        let span = span(&attempt);
        let running = AssertUnwindSafe(run(Arc::clone(&attempt))).catch_unwind();
        let outcome = tracing::Instrument::instrument(running, span).await;
        self.vitals.busy.fetch_sub(1, Ordering::Relaxed);
        let verdict = outcome.unwrap_or_else(|panic| after_panic(&*panic));
        self.decide(attempt, verdict).await;
    }

    async fn run_many(&self, attempts: Vec<Arc<Attempt>>) {
        let mut starting = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            if self.may_start(&attempt) {
                starting.push(attempt);
            } else {
                self.decide(attempt, Verdict::Release).await;
            }
        }
        let Some(Runner::Many { run, .. }) =
            starting.first().and_then(|attempt| self.runner(attempt))
        else {
            return;
        };
        self.vitals.busy.fetch_add(starting.len(), Ordering::Relaxed);
        let outcome = AssertUnwindSafe(run(starting.clone())).catch_unwind().await;
        self.vitals.busy.fetch_sub(starting.len(), Ordering::Relaxed);
        let verdicts =
            outcome.unwrap_or_else(|panic| starting.iter().map(|_| after_panic(&*panic)).collect());
        for (attempt, verdict) in starting.into_iter().zip(verdicts) {
            self.decide(attempt, verdict).await;
        }
    }

    fn runner(&self, attempt: &Attempt) -> Option<&Runner> {
        self.runners.get(&*attempt.job.name).map(|known| &known.runner)
    }

    /// A job that was not started before the stop is handed back; one whose lease was lost while
    /// it waited belongs to somebody else.
    fn may_start(&self, attempt: &Attempt) -> bool {
        if *self.stop.borrow() || attempt.stop_reason().is_some() {
            return false;
        }
        let _ = attempt.started.set(Instant::now());
        self.events
            .send(|| Event::Started { job: attempt.job.id, generation: attempt.job.generation });
        true
    }

    async fn decide(&self, attempt: Arc<Attempt>, verdict: Verdict) {
        if !attempt.decide() {
            return;
        }
        let verdict = weigh(&attempt, verdict);
        if matches!(verdict, Verdict::Retry { .. } | Verdict::Bury { .. }) {
            // A handler that was given up at its limit never gets here; the keeper says that.
            span(&attempt)
                .in_scope(|| tracing::info!("the attempt failed; see: leasehold jobs show"));
        }
        // The finisher outlives every task; when it is gone, the process is ending and the lease
        // brings the job back.
        let _ = self.decisions.send(Decision { attempt, verdict }).await;
    }
}

/// Every line that a handler logs carries these. Arguments and errors may hold secrets: they are in the
/// database, for those who may read them.
fn span(attempt: &Attempt) -> tracing::Span {
    tracing::info_span!(
        "job",
        job.id = attempt.job.id.0,
        job.name = &*attempt.job.name,
        job.queue = &*attempt.queue,
        job.attempt = attempt.job.attempts,
    )
}

/// What a request to stop makes of the handler's answer.
fn weigh(attempt: &Attempt, verdict: Verdict) -> Verdict {
    match (attempt.stop_reason(), verdict) {
        (_, Verdict::Complete) if attempt.was_completed_in_transaction() => {
            Verdict::CompletedInTransaction
        }
        // The server answers the COMMIT of an aborted transaction with a silent ROLLBACK: a handler
        // that overlooked the error believes that its work is stored.
        (_, Verdict::Complete) if attempt.failed_in_transaction() => Verdict::Retry {
            after: None,
            why: "complete_in failed and the handler went on as if it had not".to_owned(),
        },
        (Some(StopReason::Cancelled), Verdict::Retry { why, .. }) => Verdict::Cancel { why },
        (Some(StopReason::Shutdown), Verdict::Retry { .. }) => Verdict::Release,
        (_, verdict) => verdict,
    }
}

fn after_panic(panic: &(dyn std::any::Any + Send)) -> Verdict {
    Verdict::Retry { after: None, why: panic_text(panic) }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("the handler panicked: {text}")
}
