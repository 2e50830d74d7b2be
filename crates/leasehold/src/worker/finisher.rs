//! The finisher: records how attempts ended, many at a time.
//!
//! # What is true
//! - A result is recorded, or known to be lost. While the database is away the finisher keeps
//!   trying; the queue before it is bounded, so the worker stops claiming meanwhile.
//! - After a lost reply it asks what became of the finish before it repeats it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::book::Book;
use super::context::Attempt;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::job::{Generation, JobId};
use crate::link::{Link, Patience};
use crate::measure::process::Process;
use crate::queue::finish::{self, Fate, Finished, Verdict};

/// Results that wait to be recorded. When it is full, handlers keep their slots.
pub(crate) const BACKLOG: usize = 8192;
/// How long a part of a batch waits for the rest of it.
const LINGER: Duration = Duration::from_millis(1);

pub(crate) struct Decision {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) verdict: Verdict,
}

pub(crate) struct Finisher {
    pub(crate) link: Arc<Link>,
    pub(crate) book: Arc<Book>,
    pub(crate) events: Events,
    pub(crate) process: Arc<Process>,
}

impl Finisher {
    /// Runs until every sender is gone and everything is recorded.
    pub(crate) async fn run(self, mut decisions: mpsc::Receiver<Decision>) {
        let mut taken = Vec::with_capacity(BACKLOG);
        while decisions.recv_many(&mut taken, BACKLOG).await > 0 {
            self.linger(&mut decisions, &mut taken).await;
            let mut completing: HashMap<Generation, Vec<Arc<Attempt>>> = HashMap::new();
            let mut put_off: HashMap<Generation, Vec<(Arc<Attempt>, Verdict)>> = HashMap::new();
            let mut others = Vec::new();
            for Decision { attempt, verdict } in taken.drain(..) {
                if verdict == Verdict::Complete {
                    completing.entry(attempt.job.generation).or_default().push(attempt);
                } else if matches!(verdict, Verdict::PutOff { .. }) {
                    put_off.entry(attempt.job.generation).or_default().push((attempt, verdict));
                } else {
                    others.push((attempt, verdict));
                }
            }
            // All statements go out at once on one session; the server answers in order.
            let completes = join_all(
                completing
                    .into_iter()
                    .map(|(generation, attempts)| self.complete(generation, attempts)),
            );
            let put_off = join_all(
                put_off.into_iter().map(|(generation, jobs)| self.put_off(generation, jobs)),
            );
            let rest =
                join_all(others.iter().map(|(attempt, verdict)| self.finish(attempt, verdict)));
            futures_util::future::join3(completes, put_off, rest).await;
        }
    }

    /// Completing a batch in one statement is much cheaper than in pieces: waits a moment for the
    /// rest when only a part of it is there.
    async fn linger(&self, decisions: &mut mpsc::Receiver<Decision>, taken: &mut Vec<Decision>) {
        let Some(generation) = taken.last().map(|decision| decision.attempt.job.generation) else {
            return;
        };
        if self.book.left(generation) > taken.len() {
            tokio::time::sleep(LINGER).await;
            while taken.len() < BACKLOG
                && let Ok(decision) = decisions.try_recv()
            {
                taken.push(decision);
            }
        }
    }

    async fn complete(&self, generation: Generation, attempts: Vec<Arc<Attempt>>) {
        let mut ids: Vec<JobId> = attempts.iter().map(|attempt| attempt.job.id).collect();
        let mut lost: HashSet<JobId> = HashSet::new();
        let (count, began) = (ids.len(), Instant::now());
        let mut patience = Patience::default();
        loop {
            // In the lease's own order the database can see at a glance that it is all of them.
            let numbers: Arc<[i64]> = self
                .book
                .all_ids(generation, ids.len())
                .unwrap_or_else(|| ids.iter().map(|id| id.0).collect());
            match finish::complete(&self.link, &numbers, generation).await {
                Ok(done) if done.len() == ids.len() => {
                    self.report_all(&ids, generation, Finished::Completed);
                    break;
                }
                Ok(done) => {
                    for id in ids {
                        let kept = done.contains(&id.0);
                        let outcome = if kept { Finished::Completed } else { Finished::Lost };
                        if !kept {
                            lost.insert(id);
                        }
                        self.report(id, generation, outcome);
                    }
                    break;
                }
                Err(error) => {
                    let numbers: Vec<i64> = ids.iter().map(|id| id.0).collect();
                    let fates = self.explain(&error, &numbers, generation, &mut patience).await;
                    let mut again = Vec::new();
                    for (id, fate) in fates {
                        match fate {
                            Fate::Held => again.push(id),
                            Fate::Finished => self.report(id, generation, Finished::Completed),
                            Fate::Lost => {
                                lost.insert(id);
                                self.report(id, generation, Finished::Lost);
                            }
                        }
                    }
                    if again.is_empty() {
                        break;
                    }
                    ids = again;
                }
            }
        }
        self.process.completed(count, began.elapsed());
        self.process.finished(attempts.iter().map(|attempt| {
            let kept = !lost.contains(&attempt.job.id);
            (attempt, if kept { Finished::Completed } else { Finished::Lost })
        }));
        self.book.close(generation, count);
    }

    /// Many at once: while a store is away, thousands are put off together.
    async fn put_off(&self, generation: Generation, mut jobs: Vec<(Arc<Attempt>, Verdict)>) {
        let count = jobs.len();
        let mut patience = Patience::default();
        while !jobs.is_empty() {
            let off: Vec<finish::Off<'_>> = jobs.iter().filter_map(off).collect();
            match finish::put_off(&self.link, &off, generation).await {
                Ok(done) => {
                    let done: HashSet<i64> = done.into_iter().collect();
                    let outcome = |attempt: &Attempt| match done.contains(&attempt.job.id.0) {
                        true => Finished::Snoozed,
                        false => Finished::Lost,
                    };
                    self.process
                        .finished(jobs.iter().map(|(attempt, _)| (attempt, outcome(attempt))));
                    for (attempt, _) in jobs.drain(..) {
                        self.report(attempt.job.id, generation, outcome(&attempt));
                    }
                }
                Err(error) => {
                    let ids: Vec<i64> = jobs.iter().map(|(attempt, _)| attempt.job.id.0).collect();
                    let fates = self.explain(&error, &ids, generation, &mut patience).await;
                    let fates: HashMap<JobId, Fate> = fates.into_iter().collect();
                    jobs.retain(|(attempt, _)| {
                        let id = attempt.job.id;
                        match fates.get(&id) {
                            Some(Fate::Held) => return true,
                            Some(Fate::Finished) => self.report(id, generation, Finished::Snoozed),
                            _ => self.report(id, generation, Finished::Lost),
                        }
                        false
                    });
                }
            }
        }
        self.book.close(generation, count);
    }

    async fn finish(&self, attempt: &Arc<Attempt>, verdict: &Verdict) {
        let (id, generation) = (attempt.job.id, attempt.job.generation);
        let mut patience = Patience::default();
        let mut verdict = verdict.clone();
        let outcome = loop {
            let written = match &verdict {
                Verdict::CompletedInTransaction => {
                    match finish::explain(&self.link, &[id.0], generation).await {
                        Ok(fates) => match fates.first() {
                            Some((_, Fate::Held)) => {
                                verdict = Verdict::Retry {
                                    after: None,
                                    why:
                                        "complete_in was called, but its transaction did not commit"
                                            .to_owned(),
                                };
                                continue;
                            }
                            Some((_, Fate::Finished)) => {
                                // The handler's transaction left the lease row alone.
                                let _ = finish::settle(&self.link, generation).await;
                                Ok(Finished::Completed)
                            }
                            _ => Ok(Finished::Lost),
                        },
                        Err(error) => Err(error),
                    }
                }
                verdict => finish::finish(&self.link, id, generation, verdict).await,
            };
            match written {
                Ok(Finished::Lost) if attempt.was_completed_in_transaction() => {
                    // A handler whose COMMIT reply was lost reports an error for a job that is done.
                    verdict = Verdict::CompletedInTransaction;
                    match finish::explain(&self.link, &[id.0], generation).await {
                        Ok(fates) if fates.first().is_some_and(|fate| fate.1 == Fate::Finished) => {
                            break Finished::Completed;
                        }
                        Ok(_) => break Finished::Lost,
                        Err(_) => {}
                    }
                }
                Ok(outcome) => break outcome,
                Err(error) => {
                    match self.explain(&error, &[id.0], generation, &mut patience).await.first() {
                        Some((_, Fate::Held)) => {}
                        Some((_, Fate::Finished)) => break intended(&verdict),
                        _ => break Finished::Lost,
                    }
                }
            }
        };
        self.process.finished([(attempt, outcome)]);
        self.report(id, generation, outcome);
        self.book.close(generation, 1);
    }

    /// Waits until the database tells what became of a finish that failed.
    async fn explain(
        &self,
        error: &CallError,
        ids: &[i64],
        generation: Generation,
        patience: &mut Patience,
    ) -> Vec<(JobId, Fate)> {
        self.process.failed("finish", error);
        tracing::warn!(%error, %generation, jobs = ids.len(), "a finish had no answer; asking what became of it");
        // Our own idea of the lease does not matter: as long as nobody took the job, its result counts,
        // and only the database knows that.
        loop {
            tokio::time::sleep(patience.next_wait()).await;
            if let Ok(fates) = finish::explain(&self.link, ids, generation).await {
                return fates;
            }
        }
    }

    fn report_all(&self, ids: &[JobId], generation: Generation, outcome: Finished) {
        for id in ids {
            self.report(*id, generation, outcome);
        }
    }

    fn report(&self, job: JobId, generation: Generation, outcome: Finished) {
        if outcome == Finished::Lost {
            tracing::warn!(job.id = job.0, %generation, "the lease was lost; the result was dropped");
        }
        self.events.send(|| Event::Finished { job, generation, outcome });
    }
}

fn off((attempt, verdict): &(Arc<Attempt>, Verdict)) -> Option<finish::Off<'_>> {
    match verdict {
        Verdict::PutOff { wait, why, counted } => {
            Some(finish::Off { id: attempt.job.id, wait: *wait, why, counted: *counted })
        }
        _ => None,
    }
}

fn intended(verdict: &Verdict) -> Finished {
    match verdict {
        Verdict::Complete | Verdict::CompletedInTransaction => Finished::Completed,
        Verdict::Retry { .. } => Finished::Retried,
        Verdict::Snooze { .. } | Verdict::PutOff { .. } => Finished::Snoozed,
        Verdict::Cancel { .. } => Finished::Cancelled,
        Verdict::Bury { .. } => Finished::Buried,
        Verdict::Release => Finished::Released,
    }
}
