//! The claim loop: one per queue claims as many jobs as there are free slots and starts them. While handlers are
//! fast it claims ahead, so that a claim is in flight while the jobs of the former one run (see `slots`).
//!
//! # Invariants
//! - Polling makes it correct; a wake-up only makes it faster.
//! - A claim whose reply was lost is looked up before the next claim.
//! - Nothing is claimed while a job on its last chance runs in this process, or waits for the others to
//!   end: see `last_chance`.
//! - A claim uses the session with the fewest claims in flight: a slow queue does not delay the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::last_chance::Turn;
use super::lease_table::{Execution, SharedGuard};
use super::run::Executor;
use super::sleep::Sleep;
use super::slots::Slots;
use super::slots::pool::LATE;
use super::wakes::Wakes;
use crate::backoff::{RECONNECT, Waits};
use crate::error::CallError;
use crate::events::Event;
use crate::link::Links;
use crate::queue::claim::{Claim, Claimer, Claims, ReadFrom};
use crate::queue::cursors::{Cursors, Reach, Read};
use crate::queue::next_due::next_due;

/// A claim waits this long for more slots if only a few are free.
const GATHER: Duration = Duration::from_millis(1);

pub(crate) struct ClaimLoop {
    pub(crate) queue: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) names: Arc<[String]>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) claim_size: usize,
    pub(crate) poll: Duration,
    pub(crate) links: Arc<Links>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) notifier: Arc<Notify>,
}

/// Returns how many of `up_to` slots are reserved for deferred jobs: a quarter. If that is less than
/// one: one slot with a chance of 1 in 4.
fn share(up_to: usize, chance: u8) -> usize {
    match up_to / 4 {
        0 => usize::from(chance < 64).min(up_to),
        share => share,
    }
}

impl ClaimLoop {
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut cursors = Cursors::new(self.poll);
        let mut turn = Turn::new(self.poll);
        let mut backoff = RECONNECT.waits();
        let mut sleep = Sleep::new(Arc::clone(&self.queue), self.poll, Arc::clone(&self.wakes));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep.until_free(self.free_slots()) => {}
            }
            match self.claim_last_chance(&mut turn).await {
                Ok(true) => sleep.found_jobs(),
                Ok(false) => {}
                Err(error) => {
                    self.executor.engine.process().failed("claim", &error);
                    tracing::warn!(%error, queue = %self.queue, "looking for last chances failed");
                }
            }
            // Take the lock before the claim: claimed jobs then start at once, even if another job
            // waits to run alone.
            let solo_lock = tokio::select! {
                () = stop.cancelled() => break,
                solo_lock = self.executor.join() => solo_lock,
            };
            let reserved = self.slots.reserve(self.claim_size);
            let up_to = reserved.jobs;
            if up_to == 0 {
                // Handlers became slow since the loop waited for room, or another database has the slots.
                continue;
            }
            let (began, reach) = (Instant::now(), cursors.reach(Instant::now()));
            let found = self.read(&mut cursors, reach, up_to, solo_lock).await;
            self.note(&found, began.elapsed());
            self.slots.note_claim(found.as_ref().is_ok_and(|count| *count >= up_to));
            drop(reserved);
            let failed = found.is_err();
            let pause = match found {
                Ok(0) => {
                    backoff.reset();
                    let idle = self.pause(&mut sleep, &cursors).await;
                    cursors.pause(reach, Instant::now(), idle)
                }
                Ok(_) => {
                    sleep.found_jobs();
                    backoff.reset();
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, queue = %self.queue, "claiming failed; trying again");
                    cursors.failed(reach, began.elapsed());
                    self.pass_remains(&mut cursors, &error).await;
                    backoff.next_wait()
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = self.notifier.notified() => {}
            }
            if failed && self.slots.is_shared() {
                self.until_it_replies(&stop, &mut backoff).await;
            }
        }
    }

    /// Waits until the database replies again, without a slot: one that hangs must not take slots from the other
    /// databases of the fleet with each retry.
    async fn until_it_replies(&self, stop: &CancellationToken, backoff: &mut Waits) {
        loop {
            let asking = self.claimer();
            let error = match stop.run_until_cancelled(asking.now()).await {
                Some(Err(error)) => error,
                Some(Ok(_)) | None => return,
            };
            self.executor.engine.process().failed("claim", &error);
            let pause = tokio::time::sleep(backoff.next_wait());
            if stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    fn note(&self, found: &Result<usize, CallError>, took: Duration) {
        let process = self.executor.engine.process();
        let result = match found {
            Ok(0) => "empty",
            Ok(_) => "hit",
            Err(error) => {
                process.failed("claim", error);
                "error"
            }
        };
        process.claimed(&self.queue, result, took);
    }

    /// Waits until there is room for at least one job, and up to `GATHER` longer for a worthwhile number.
    async fn free_slots(&self) {
        self.slots.until_room(1).await;
        let worthwhile = (self.slots.capacity() / 2).clamp(1, (self.claim_size / 2).max(1));
        if self.slots.room() < worthwhile {
            let _ = tokio::time::timeout(GATHER, self.slots.until_room(worthwhile)).await;
        }
    }

    /// Waits for a claim. In a fleet a late one lets the lock go, so that a job of another database can run alone
    /// although this database hangs; its jobs then wait for the lock.
    async fn under_lock<T>(
        &self,
        claiming: impl Future<Output = T>,
        solo_lock: SharedGuard,
    ) -> (T, SharedGuard) {
        if !self.slots.is_shared() {
            return (claiming.await, solo_lock);
        }
        let mut claiming = std::pin::pin!(claiming);
        if let Ok(claimed) = tokio::time::timeout(LATE, &mut claiming).await {
            return (claimed, solo_lock);
        }
        drop(solo_lock);
        let claimed = claiming.await;
        (claimed, self.executor.join().await)
    }

    /// Returns how long to sleep after a claim that found nothing.
    async fn pause(&self, sleep: &mut Sleep, cursors: &Cursors) -> Duration {
        let lanes = cursors.lanes();
        let (links, queue, names) = (&self.links, &self.queue, &self.names);
        let pause = sleep.pause(|within| next_due(links, queue, names, &lanes, within));
        self.executor.stop.run_until_cancelled(pause).await.unwrap_or(Duration::ZERO)
    }

    /// After a timeout the same read would time out again, so the cursors move to a little before now.
    /// Scans find what is before that once the server is faster again.
    async fn pass_remains(&self, cursors: &mut Cursors, error: &CallError) {
        if matches!(error, CallError::TimedOut(_))
            && let Ok(Some(now)) = self.claimer().now().await
        {
            cursors.look_from(now);
        }
    }

    /// Claims up to `up_to` jobs and starts them. Returns how many.
    async fn read(
        &self,
        cursors: &mut Cursors,
        reach: Reach,
        up_to: usize,
        solo_lock: SharedGuard,
    ) -> Result<usize, CallError> {
        let claiming = self.claim_shares(cursors, reach, up_to);
        let (claimed, solo_lock) = self.under_lock(claiming, solo_lock).await;
        let (claims, complete) = claimed?;
        let jobs: Vec<_> = claims.iter().flat_map(Claims::jobs).collect();
        let count = jobs.len();
        let as_of = claims.last().and_then(|last| last.as_of);
        let took = claims.iter().map(|claim| claim.took).sum();
        cursors.took(&Read { reach, jobs, complete, as_of, took });
        for claim in claims.into_iter().flat_map(|claims| claims.leases) {
            self.start(claim, Execution::Shared(solo_lock.clone()));
        }
        Ok(count)
    }

    /// Claims in order. Deferred jobs are behind all others, so that thousands of jobs that keep
    /// failing do not block fresh ones. While some wait, a share of the slots is reserved for them, so
    /// that a stream of fresh jobs does not block them either. Also returns whether everything due
    /// within reach was examined.
    async fn claim_shares(
        &self,
        cursors: &mut Cursors,
        reach: Reach,
        up_to: usize,
    ) -> Result<(Vec<Claims>, bool), CallError> {
        let kept = if cursors.has_deferred { share(up_to, rand::random()) } else { 0 };
        let mut claims = Vec::new();
        let mut left = up_to;
        if up_to > kept {
            let most = up_to - kept;
            let claim =
                self.claim_from(&ReadFrom { cursors, reach, only_deferred: false }, most).await?;
            let count = claim.jobs().count();
            if reach == Reach::Everything {
                cursors.has_deferred = claim.has_deferred;
            }
            left -= count.min(left);
            claims.push(claim);
            if count < most || kept == 0 {
                return Ok((claims, count < most));
            }
        }
        match self.claim_from(&ReadFrom { cursors, reach, only_deferred: true }, left).await {
            Ok(claim) => {
                // None is due: the next scan checks again.
                cursors.has_deferred = !claim.leases.is_empty();
                claims.push(claim);
            }
            Err(error) if claims.is_empty() => return Err(error),
            // Jobs of the first claim must start.
            Err(error) => {
                tracing::warn!(%error, queue = %self.queue, "claiming failed; trying again");
            }
        }
        if claims.iter().any(|claim| !claim.leases.is_empty()) {
            return Ok((claims, false));
        }
        // The only slot was reserved, and no deferred job is due.
        let claim =
            self.claim_from(&ReadFrom { cursors, reach, only_deferred: false }, up_to).await?;
        let complete = claim.jobs().count() < up_to;
        Ok((vec![claim], complete))
    }

    async fn claim_from(&self, from: &ReadFrom<'_>, up_to: usize) -> Result<Claims, CallError> {
        let claimed = self.claim(async |claimer, id| claimer.claim(from, up_to, id).await).await;
        let error = match claimed {
            Err(error @ CallError::Database(_)) if error.was_refused() => error,
            claimed => return claimed,
        };
        // A trigger or a constraint may refuse one job: it must not block the jobs behind it.
        tracing::warn!(%error, queue = %self.queue, "a claim was refused; claiming one by one");
        let around = async |claimer: Claimer<'_>, id| {
            claimer.claim_around(from.only_deferred, up_to, id).await
        };
        match self.claim(around).await {
            Ok(claims) if claims.leases.is_empty() => Err(error),
            claimed => claimed,
        }
    }

    /// Claims; if the reply is lost, finds out what was claimed.
    pub(super) async fn claim(
        &self,
        claim: impl AsyncFnOnce(Claimer<'_>, Uuid) -> Result<Claims, CallError>,
    ) -> Result<Claims, CallError> {
        let id = Uuid::now_v7();
        let asked_at = Instant::now();
        let error = match claim(self.claimer(), id).await {
            Ok(claims) => {
                #[cfg(feature = "chaos")]
                if !claims.leases.is_empty() {
                    crate::chaos::point("claim.committed");
                }
                return Ok(claims);
            }
            Err(error) if error.was_refused() => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(%error, queue = %self.queue, "a claim had no reply; asking what it claimed");
        let mut backoff = RECONNECT.waits();
        // The statement may still be in flight: ask more than once.
        let mut replies = 0;
        for _ in 0..10 {
            tokio::time::sleep(backoff.next_wait()).await;
            match self.claimer().recover(id).await {
                Ok(mut found) if !found.leases.is_empty() => {
                    for claim in &mut found.leases {
                        // The lease began with the claim, not with its recovery.
                        claim.asked_at = asked_at;
                        let (generation, jobs) = (claim.generation, claim.jobs.len());
                        self.executor.events.send(|| Event::ClaimRecovered { generation, jobs });
                    }
                    return Ok(found);
                }
                Ok(_) if replies >= 2 => break,
                Ok(_) => replies += 1,
                Err(_) => {}
            }
        }
        Err(error)
    }

    pub(super) fn start(&self, claim: Claim, execution: Execution) {
        self.executor.start(claim, &self.slots, execution);
    }

    pub(super) fn claimer(&self) -> Claimer<'_> {
        Claimer { links: &self.links, worker: &self.worker, queue: &self.queue, names: &self.names }
    }
}
