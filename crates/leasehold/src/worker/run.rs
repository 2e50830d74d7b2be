//! Runs claimed jobs in tasks, each with a slot, a fence and a way to stop it.
//!
//! # Invariants
//! - A task runs one job after the other as long as their handlers end at the first poll. When one waits, the
//!   task waits with it and runs no other, and another task runs the jobs behind it.
//! - A job whose lease has ended, by the worker's own earlier deadline, is not started.
//! - A panic in a handler fails that attempt and no other.
//! - An attempt ends once: by its handler, by the keeper at the run limit, or by the shutdown,
//!   whichever decides first.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::context::{Attempt, LeaseEnd, LeaseShared, StopReason};
use super::decisions::{Decisions, Ends};
use super::handler::{Registered, Runner};
use super::layer::Layers;
use super::lease_table::{Execution, LeaseTable, SharedGuard, SoloGuard};
use super::outcome::JobError;
use super::registry::WorkerStats;
use super::slots::pool::LATE;
use super::slots::{Slots, Turn, Work};
use super::transaction::TransactionPool;
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::job::Generation;
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
    /// The keeper starts tasks too, from a runtime of its own.
    pub(crate) runtime: tokio::runtime::Handle,
    /// What every log line of this worker carries: the database of a fleet.
    pub(crate) span: tracing::Span,
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

/// A task sends the ends of its short jobs after this time, also if they are few, and lets other tasks run.
const LONGEST_TURN: Duration = Duration::from_millis(1);

impl Executor {
    /// Adds the claim's jobs to the lease table and starts them, or lets them wait for a slot. After the stop,
    /// they are released instead.
    pub(crate) fn start(self: &Arc<Self>, claim: Claim, slots: &Arc<Slots>, execution: Execution) {
        let (solo_lock, solo) = match execution {
            Execution::Shared(solo_lock) => (Some(solo_lock), None),
            Execution::Solo(solo) => (None, Some(solo)),
        };
        let works = self.open(claim, slots, solo);
        match slots.add(works, solo_lock) {
            Ok(tasks) => (0..tasks).for_each(|_| self.spawn(slots)),
            Err(attempts) => self.release(attempts),
        }
    }

    /// Releases the job of a claim that came too late to run alone.
    pub(super) fn release_claim(&self, claim: Claim, slots: &Slots) {
        let works = self.open(claim, slots, None);
        self.release(works.into_iter().flat_map(Work::into_attempts).collect());
    }

    /// Adds the jobs of a claim to the lease table. Returns what runs together.
    fn open(&self, claim: Claim, slots: &Slots, solo: Option<SoloGuard>) -> Vec<Work> {
        let Claim { generation, jobs, lease, run_limit, asked_at } = claim;
        let shared = Arc::new(LeaseShared {
            engine: self.engine.clone(),
            queue: Arc::clone(&slots.queue),
            transactions: Some(Arc::clone(&self.transactions)),
            layers: self.layers.clone(),
            runs_alone: solo.is_some(),
            end: LeaseEnd::new(asked_at, lease),
        });
        let mut attempts = Vec::with_capacity(jobs.len());
        let mut works = Vec::with_capacity(jobs.len());
        let mut batches: HashMap<(Arc<str>, i64), Vec<Arc<Attempt>>> = HashMap::new();
        let mut last: Option<(Arc<str>, Option<&Registered>)> = None;
        for job in jobs {
            let registered = match &last {
                Some((name, registered)) if Arc::ptr_eq(name, &job.name) => *registered,
                _ => {
                    let registered = self.runners.get(&*job.name);
                    last = Some((Arc::clone(&job.name), registered));
                    registered
                }
            };
            // The run limit of the job type takes precedence over that of the queue.
            let run_limit = registered.and_then(|known| known.run_limit).unwrap_or(run_limit);
            let attempt = Arc::new(Attempt::new(job, Arc::clone(&shared), run_limit));
            attempts.push(Arc::clone(&attempt));
            match registered.map(|known| &known.runner) {
                Some(Runner::Many { jobs, .. }) => {
                    // More than there are slots would never start.
                    let most = jobs.most().min(slots.together());
                    let together = (Arc::clone(&attempt.job.name), jobs.group(&attempt));
                    let waiting = batches.entry(together).or_default();
                    waiting.push(attempt);
                    if waiting.len() >= most {
                        works.push(Work::Many(std::mem::take(waiting)));
                    }
                }
                _ => works.push(Work::One(attempt)),
            }
        }
        works.extend(batches.into_values().filter(|rest| !rest.is_empty()).map(Work::Many));
        self.lease_table.open(generation, shared, attempts, lease, asked_at, solo);
        works
    }

    /// Releases jobs that wait for a slot of a worker that stops.
    pub(super) fn release(&self, attempts: Vec<Arc<Attempt>>) {
        for attempt in attempts {
            if attempt.decide() {
                self.decisions.send_last(attempt, Transition::Release);
            }
        }
    }

    /// Starts a task that runs jobs of a queue.
    pub(super) fn spawn(self: &Arc<Self>, slots: &Arc<Slots>) {
        let running = Arc::clone(self).run_jobs(Turn::new(slots), Arc::clone(slots));
        self.tasks.spawn_on(running.instrument(self.span.clone()), &self.runtime);
    }

    /// Starts tasks for jobs that wait, whenever another database of the fleet leaves slots to them.
    pub(super) async fn start_given(self: Arc<Self>, slots: Arc<Slots>) {
        loop {
            let tasks = slots.given_slots().await;
            (0..tasks).for_each(|_| self.spawn(&slots));
        }
    }

    /// Waits until no job is on its last chance, and none waits to run alone.
    pub(crate) async fn join(&self) -> SharedGuard {
        Arc::new(Arc::clone(&self.solo_lock).read_owned().await)
    }

    /// Runs jobs of a queue, one after the other, until none waits.
    async fn run_jobs(self: Arc<Self>, mut turn: Turn, slots: Arc<Slots>) {
        let mut ends = self.decisions.ends(&slots.queue);
        let mut took = None;
        let mut began = Instant::now();
        loop {
            // Until its end is submitted, a job keeps its slot: what the finisher cannot take is not claimed.
            let Some(work) = turn.next(took.take(), !ends.is_empty()) else {
                if ends.is_empty() {
                    return;
                }
                submit(&mut turn, &mut ends).await;
                continue;
            };
            let started = Instant::now();
            match work {
                Work::One(attempt) => self.run_one(attempt, &mut turn, &slots, &mut ends).await,
                Work::Many(attempts) => {
                    self.run_many(attempts, &mut turn, &slots, &mut ends).await;
                }
            }
            let now = Instant::now();
            took = Some(now.saturating_duration_since(started));
            if ends.is_full() || now.saturating_duration_since(began) >= LONGEST_TURN {
                submit(&mut turn, &mut ends).await;
                tokio::task::yield_now().await;
                began = Instant::now();
            }
        }
    }

    async fn run_one(
        self: &Arc<Self>,
        attempt: Arc<Attempt>,
        turn: &mut Turn,
        slots: &Arc<Slots>,
        ends: &mut Ends<'_>,
    ) {
        if let Err(transition) = self.may_start(&attempt) {
            return self.decide(attempt, transition, ends);
        }
        let Some(Runner::One(run)) = self.runner(&attempt) else {
            // Names without a handler are not claimed.
            return self.decide(attempt, Transition::Release, ends);
        };
        let running = AssertUnwindSafe(run(Arc::clone(&attempt))).catch_unwind();
        let running = running.instrument(span(&attempt));
        let stopping = (attempt.aborted(), attempt.lost());
        let outcome = self.finish_or(running, stopping, turn, slots, ends).await;
        if attempt.shared.runs_alone && slots.is_shared() {
            self.let_go_soon(attempt.job.generation);
        }
        // Otherwise the keeper or the stop has decided how the attempt ends.
        if let Some(outcome) = outcome {
            let transition = outcome.unwrap_or_else(|panic| after_panic(&*panic));
            self.decide(attempt, transition, ends);
        }
    }

    /// In a fleet, lets the jobs of the other databases start [`LATE`] after the handler of a job that ran alone,
    /// although its end may not be recorded yet: its database may be down for long.
    fn let_go_soon(&self, generation: Generation) {
        let lease_table = Arc::clone(&self.lease_table);
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            lease_table.let_go(generation);
        });
    }

    async fn run_many(
        self: &Arc<Self>,
        attempts: Vec<Arc<Attempt>>,
        turn: &mut Turn,
        slots: &Arc<Slots>,
        ends: &mut Ends<'_>,
    ) {
        let mut starting = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            match self.may_start(&attempt) {
                Ok(()) => starting.push(attempt),
                Err(transition) => self.decide(attempt, transition, ends),
            }
        }
        let Some(first) = starting.first() else { return };
        let Some(Runner::Many { run, .. }) = self.runner(first) else { return };
        let running = AssertUnwindSafe(run(starting.clone())).catch_unwind();
        let aborted = async {
            let each = starting.iter().map(|attempt| Box::pin(attempt.aborted()));
            futures_util::future::select_all(each).await;
        };
        // The jobs of one claim have one lease.
        let stopping = (aborted, first.lost());
        let outcome = self.finish_or(running, stopping, turn, slots, ends).await;
        if first.shared.runs_alone && slots.is_shared() {
            self.let_go_soon(first.job.generation);
        }
        let Some(outcome) = outcome else { return };
        let transitions =
            outcome.unwrap_or_else(|panic| starting.iter().map(|_| after_panic(&*panic)).collect());
        for (attempt, transition) in starting.into_iter().zip(transitions) {
            self.decide(attempt, transition, ends);
        }
    }

    /// Runs a handler to its end, or until it is aborted. Most short handlers end at the first poll; when one
    /// does not, another task runs the jobs behind it, and the ends before it need not wait for it. When its lease
    /// is lost meanwhile, its slot is free for the other databases of a fleet: a handler that hangs with its
    /// database may run for long.
    async fn finish_or<T>(
        self: &Arc<Self>,
        running: impl Future<Output = T>,
        (aborted, lost): (impl Future<Output = ()>, impl Future<Output = ()>),
        turn: &mut Turn,
        slots: &Arc<Slots>,
        ends: &mut Ends<'_>,
    ) -> Option<T> {
        let mut running = pin!(running);
        if let Poll::Ready(outcome) = futures_util::poll!(&mut running) {
            return Some(outcome);
        }
        if slots.hand_over() {
            self.spawn(slots);
        }
        let finishing = async {
            let mut aborted = pin!(aborted);
            if slots.is_shared() {
                tokio::select! {
                    biased;
                    () = &mut aborted => return None,
                    outcome = &mut running => return Some(outcome),
                    () = lost => turn.park(),
                }
            }
            tokio::select! {
                biased;
                () = aborted => None,
                outcome = running => Some(outcome),
            }
        };
        let sending = ends.send();
        futures_util::future::join(sending, finishing).await.1
    }

    fn runner(&self, attempt: &Attempt) -> Option<&Runner> {
        self.runners.get(&*attempt.job.name).map(|known| &known.runner)
    }

    /// Records that a job starts, or returns how its attempt ends without. After the stop it is released; if
    /// its lease has ended while it waited, it may belong to another worker.
    fn may_start(&self, attempt: &Attempt) -> Result<(), Transition> {
        let now = Instant::now();
        if attempt.shared.end.has_passed(now) {
            attempt.stop(StopReason::LeaseLost);
        }
        match attempt.stop_reason() {
            Some(StopReason::Cancelled) => {
                return Err(Transition::Cancel { why: "cancelled before it started".to_owned() });
            }
            Some(_) => return Err(Transition::Release),
            None if self.stop.is_cancelled() => return Err(Transition::Release),
            None => {}
        }
        let _ = attempt.started.set(now);
        self.events
            .send(|| Event::Started { job: attempt.job.id, generation: attempt.job.generation });
        Ok(())
    }

    fn decide(&self, attempt: Arc<Attempt>, transition: Transition, ends: &mut Ends<'_>) {
        if !attempt.decide() {
            return;
        }
        let mut transition = weigh(&attempt, transition);
        if self.hides_errors {
            transition.hide_text();
        }
        ends.push(attempt, transition);
    }
}

/// Submits ends. While the finisher can take none, the slots are free for the other databases of a fleet: one that
/// cannot record ends must not keep them.
async fn submit(turn: &mut Turn, ends: &mut Ends<'_>) {
    let mut sending = pin!(ends.send());
    if let Poll::Ready(()) = futures_util::poll!(&mut sending) {
        return;
    }
    turn.park();
    sending.await;
}

/// Returns the span that every log line of an attempt carries. It has no kwargs, which may hold
/// secrets: they are in the database, for roles that may read them.
pub(super) fn span(attempt: &Attempt) -> tracing::Span {
    tracing::info_span!(
        "job",
        job.id = attempt.job.id.0,
        job.name = &*attempt.job.name,
        job.queue = &**attempt.queue(),
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
