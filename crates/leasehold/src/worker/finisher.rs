//! The finisher: records how attempts ended, many at a time.
//!
//! # Invariants
//! - A result is recorded, or known to be lost, or dropped with an error in the log after
//!   [`RECORD_FOR`]. The number of unrecorded results is bounded, so the worker stops claiming
//!   meanwhile.
//! - After a lost reply it asks what became of the finish before it repeats it.
//! - A finish that the server refuses permanently is retried once, then replaced by a plain failure of
//!   the attempt, then dropped. A batch is halved until the job at fault is alone.
//! - A batch that runs into a timeout a second time is halved too: the others do not wait for a job whose
//!   row another transaction has locked.
//! - No result waits for long for another one: a round that takes longer than `MOMENT` continues
//!   concurrently with the next, and a session that does not reply is left (see [`Stream`]).
//!
//! In reading order: this file takes decisions and closes what is recorded; `record_batch` sends many
//! of one lease in one statement, `record_one` those that need a statement each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::decisions::{Decision, TOGETHER};
use super::hooks::RunningHooks;
use super::lease_table::LeaseTable;
use super::record_batch::Together;
use super::report;
use super::wakes::{Notifiers, wake};
use crate::backoff::{RECONNECT, Waits};
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::job::{Generation, JobId};
use crate::link::Stream;
use crate::measure::process::Process;
use crate::queue::finish::{self, FinishState, Finished, Transition};

/// The most decisions of one round, and how many messages hold them.
const ROUND: usize = 8192;
const MESSAGES: usize = ROUND / TOGETHER;
/// How long a part of a batch waits for more of it.
const LINGER: Duration = Duration::from_millis(1);
/// How long it waits for all of it, while more keeps coming. A lease that ends in one statement is one row of
/// history, and no statement looks for what is left of it.
const LONGEST_LINGER: Duration = Duration::from_millis(5);
/// How long the next round waits for this one. Rounds in sequence make large batches; a slow round must
/// not delay the next.
const MOMENT: Duration = Duration::from_millis(50);
/// For how long the finisher tries to record the end of an attempt while the database is down. The
/// lease is lost long before, but the result counts as long as the job has not been reclaimed.
const RECORD_FOR: Duration = Duration::from_secs(60 * 60);

/// Ends of one lease that one statement records.
type Key = (Generation, Together);

/// Records the results of one queue.
pub(crate) struct Finisher {
    pub(crate) link: Stream,
    pub(crate) lease_table: Arc<LeaseTable>,
    pub(crate) events: Events,
    pub(crate) process: Arc<Process>,
    /// A job that waits again has a new due time, which the claim loop of its queue must learn.
    pub(crate) notifiers: Arc<Notifiers>,
    pub(crate) hooks: Arc<RunningHooks>,
}

/// The wait before the next try, and when to stop trying.
pub(super) struct Tries {
    waits: Waits,
    until: Instant,
}

impl Tries {
    pub(super) fn new() -> Self {
        Self { waits: RECONNECT.waits(), until: Instant::now() + RECORD_FOR }
    }

    /// Waits before the next try. Returns false if there is none.
    pub(super) async fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.waits.next_wait()).await;
        true
    }
}

impl Finisher {
    /// Runs until every sender is gone and everything is recorded.
    pub(crate) async fn run(self, mut decisions: mpsc::UnboundedReceiver<Vec<Decision>>) {
        let mut held_up: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut messages = Vec::new();
        loop {
            let more = tokio::select! {
                // Prefer the rounds that began first.
                biased;
                Some(()) = held_up.next(), if !held_up.is_empty() => continue,
                count = decisions.recv_many(&mut messages, MESSAGES) => count > 0,
            };
            if !more {
                break;
            }
            let mut taken: Vec<Decision> = messages.drain(..).flatten().collect();
            self.linger(&mut decisions, &mut taken).await;
            let mut round: BoxFuture<'_, ()> = Box::pin(self.round(taken));
            let mut moment = std::pin::pin!(tokio::time::sleep(MOMENT));
            loop {
                tokio::select! {
                    biased;
                    Some(()) = held_up.next(), if !held_up.is_empty() => {}
                    () = &mut round => break,
                    () = &mut moment => {
                        held_up.push(round);
                        break;
                    }
                }
            }
        }
        while held_up.next().await.is_some() {}
    }

    /// Completing a batch in one statement is much cheaper than in pieces: waits a moment for the rest
    /// if only a part of it is there.
    async fn linger(
        &self,
        decisions: &mut mpsc::UnboundedReceiver<Vec<Decision>>,
        taken: &mut Vec<Decision>,
    ) {
        let Some(generation) = taken.last().map(|decision| decision.attempt.job.generation) else {
            return;
        };
        let until = Instant::now() + LONGEST_LINGER;
        while taken.len() < ROUND
            && self.lease_table.left(generation) > taken.len()
            && Instant::now() < until
        {
            match tokio::time::timeout(LINGER, decisions.recv()).await {
                Ok(Some(more)) => taken.extend(more),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Sends all statements at once.
    pub(super) async fn round(&self, taken: Vec<Decision>) {
        let mut batches: HashMap<Key, Vec<Decision>> = HashMap::new();
        let mut others = Vec::new();
        // Most follow others of their lease: look each group up once.
        let mut group: Option<(Key, Vec<Decision>)> = None;
        let mut add = |(key, mut ends)| batches.entry(key).or_default().append(&mut ends);
        for decision in taken {
            let Some(kind) = Together::of(&decision.transition) else {
                others.push(decision);
                continue;
            };
            let key = (decision.attempt.job.generation, kind);
            match &mut group {
                Some((same, ends)) if *same == key => ends.push(decision),
                _ => group.replace((key, vec![decision])).into_iter().for_each(&mut add),
            }
        }
        group.into_iter().for_each(&mut add);
        let batches = batches
            .into_iter()
            .map(|((generation, kind), ends)| self.batch(generation, kind, ends));
        let others = others.into_iter().map(|decision| self.one(decision));
        futures_util::future::join(join_all(batches), join_all(others)).await;
    }

    /// Asks until the database returns what became of the jobs. `None`: it never did.
    pub(super) async fn explain(
        &self,
        ids: &[i64],
        generation: Generation,
        tries: &mut Tries,
    ) -> Option<Vec<(JobId, FinishState)>> {
        // The worker's own view of the lease does not matter: the result counts as long as the job has
        // not been reclaimed, and only the database knows that.
        let mut refused = false;
        while tries.again().await {
            match finish::explain(&self.link, ids, generation).await {
                Ok(states) => return Some(states),
                // Once may be a statement that a migration made stale: the next session prepares it anew.
                Err(error) if error.is_permanent() && refused => return None,
                Err(error) => refused = error.is_permanent(),
            }
        }
        None
    }

    /// Drops attempts whose end could not be recorded.
    pub(super) fn drop_ends(&self, ends: Vec<Decision>, error: &CallError) {
        for end in &ends {
            report::dropped(&end.attempt, error);
        }
        self.remove(ends.into_iter().map(|end| (end, Finished::Lost)).collect());
    }

    pub(super) fn end(
        &self,
        mut end: Decision,
        transition: &Transition,
        outcome: Finished,
        next_in: Option<Duration>,
    ) {
        report::failed(&end.attempt, outcome, next_in, transition);
        // What was recorded may differ from what the handler decided.
        end.transition = transition.clone();
        self.close([(end, outcome)]);
    }

    /// Closes attempts that a batch recorded, or that were lost. The counted deferrals are failures.
    pub(super) fn close_batch(&self, ends: impl IntoIterator<Item = (Decision, Finished)>) {
        let reported = |(end, outcome): (Decision, Finished)| {
            report::failed(&end.attempt, outcome, None, &end.transition);
            (end, outcome)
        };
        self.close(ends.into_iter().map(reported));
    }

    /// Closes attempts whose end is recorded, or that were lost.
    fn close(&self, ends: impl IntoIterator<Item = (Decision, Finished)>) {
        let ends: Vec<(Decision, Finished)> = ends.into_iter().collect();
        for (end, _) in ends.iter().filter(|(_, outcome)| *outcome == Finished::Lost) {
            report::lost(end.attempt.job.id, end.attempt.job.generation);
        }
        self.remove(ends);
    }

    /// Counts the ends, sends their events and removes them from the lease table.
    fn remove(&self, ends: Vec<(Decision, Finished)>) {
        self.process.finished(&ends, |(end, outcome)| (&end.attempt, *outcome));
        // One lease after the other: most ends follow others of their lease.
        let mut closed: Option<(Generation, usize)> = None;
        let close = |(generation, count)| self.lease_table.close(generation, count);
        for (end, outcome) in &ends {
            let (job, generation) = (end.attempt.job.id, end.attempt.job.generation);
            let outcome = *outcome;
            let is_back = matches!(
                outcome,
                Finished::Retried | Finished::Snoozed | Finished::Deferred | Finished::Released
            );
            if is_back {
                wake(&self.notifiers, end.attempt.queue());
            }
            self.events.send(|| Event::Finished { job, generation, outcome });
            self.hooks.call(&end.attempt, &end.transition, outcome);
            match &mut closed {
                Some((same, count)) if *same == generation => *count += 1,
                _ => closed.replace((generation, 1)).into_iter().for_each(close),
            }
        }
        closed.into_iter().for_each(close);
    }
}

pub(super) fn intended(transition: &Transition) -> Finished {
    match transition {
        Transition::Complete | Transition::CompletedInTransaction => Finished::Completed,
        Transition::Retry { .. } => Finished::Retried,
        Transition::Snooze { .. } => Finished::Snoozed,
        Transition::Defer { .. } => Finished::Deferred,
        Transition::Cancel { .. } => Finished::Cancelled,
        Transition::Bury { .. } => Finished::Buried,
        Transition::Release => Finished::Released,
    }
}
