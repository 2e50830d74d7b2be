//! Fetching: one loop a queue claims as many jobs as there are free slots and starts them.
//!
//! # What is true
//! - Polling makes it correct; a wake-up only makes it sooner.
//! - A claim whose reply was lost is looked for before anything else is claimed.
//! - Jobs whose worker died come first: see `last_chance`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, watch};
use uuid::Uuid;

use super::book::Alone;
use super::last_chance::Turn;
use super::run::Crew;
use crate::error::CallError;
use crate::events::Event;
use crate::link::{Link, Patience};
use crate::queue::claim::{Claim, Claimer};
use crate::queue::lanes::{Lane, Lanes};

/// A claim waits this long for more slots when only a few are free.
const GATHER: Duration = Duration::from_millis(1);

pub(crate) struct Fetch {
    pub(crate) queue: Arc<str>,
    pub(crate) worker: Arc<str>,
    pub(crate) names: Arc<[String]>,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) total: usize,
    pub(crate) batch: usize,
    pub(crate) poll: Duration,
    pub(crate) link: Arc<Link>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) wake: Arc<Notify>,
}

enum Found {
    Jobs,
    /// Nothing after the places where we left off.
    NothingNew,
    /// Nothing at all.
    Nothing,
}

/// How many of so many places are kept for jobs that were put off: a quarter, and where that is less
/// than one, one now and then.
fn share(up_to: usize, chance: u8) -> usize {
    match up_to / 4 {
        0 => usize::from(chance < 64).min(up_to),
        share => share,
    }
}

impl Fetch {
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut lanes = Lanes::new();
        let mut turn = Turn::default();
        let mut patience = Patience::default();
        let mut empty_polls = 0u32;
        let mut woken = false;
        loop {
            let free = tokio::select! {
                // The sender is gone or says stop: either way no more claims.
                _ = stop.wait_for(|stop| *stop) => break,
                free = self.free_slots() => free,
            };
            let rescan = !woken && Instant::now() >= lanes.rescan_at();
            let began = Instant::now();
            let found = if rescan {
                self.rescan(&mut lanes, &mut turn, free).await
            } else {
                self.read_on(&mut lanes, free).await
            };
            self.note(&found, began.elapsed());
            let pause = match found {
                Ok(Found::Jobs) => {
                    (empty_polls, woken) = (0, false);
                    patience.reset();
                    continue;
                }
                Ok(Found::NothingNew) if woken => {
                    // Told of work that is not where we read on: look everywhere.
                    woken = false;
                    lanes.rescan_soon();
                    continue;
                }
                Ok(Found::NothingNew) => {
                    // Where we read on something may be due by the next poll, long before a rescan.
                    let rescan = lanes.rescan_at().saturating_duration_since(Instant::now());
                    rescan.min(self.poll)
                }
                Ok(Found::Nothing) => {
                    patience.reset();
                    empty_polls = empty_polls.saturating_add(1);
                    // An idle poll looks everywhere: what it waits for may lie before our places.
                    lanes.rescan_soon();
                    self.idle_pause(empty_polls)
                }
                Err(error) => {
                    tracing::warn!(%error, queue = %self.queue, "claiming failed; trying again");
                    patience.next_wait()
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => break,
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => woken = true,
            }
        }
    }

    fn note(&self, found: &Result<Found, CallError>, took: Duration) {
        let process = self.crew.engine.process();
        let result = match found {
            Ok(Found::Jobs) => "hit",
            Ok(Found::NothingNew | Found::Nothing) => "empty",
            Err(error) => {
                process.failed("claim", error);
                "error"
            }
        };
        process.fetched(&self.queue, result, took);
    }

    /// Waits until at least one slot is free, and a moment longer for a worthwhile number.
    async fn free_slots(&self) -> usize {
        let Ok(permit) = self.slots.acquire().await else {
            // Never closed while the loop runs.
            return std::future::pending().await;
        };
        drop(permit);
        let worthwhile = (self.total / 4).clamp(1, self.batch);
        if self.slots.available_permits() < worthwhile {
            tokio::time::sleep(GATHER).await;
        }
        self.slots.available_permits()
    }

    /// The longer nothing comes, the longer the pause, up to twice the poll interval.
    fn idle_pause(&self, empty_polls: u32) -> Duration {
        let longest = if empty_polls > 20 { self.poll * 2 } else { self.poll };
        longest.mul_f64(rand::random_range(0.8..=1.0))
    }

    /// Looks at every lane from its start, and for jobs whose worker died.
    async fn rescan(
        &self,
        lanes: &mut Lanes,
        turn: &mut Turn,
        free: usize,
    ) -> Result<Found, CallError> {
        let claimed = self.claim_lost(turn, free).await?;
        if claimed > 0 {
            return Ok(Found::Jobs);
        }
        let started = Instant::now();
        let scanned = self.claimer().lanes().await?;
        let took = started.elapsed();
        if scanned.is_empty() {
            lanes.end_rescan(scanned, &[], true, took);
            return Ok(Found::Nothing);
        }
        let (claims, complete) = self.claim_shares(&scanned, free.min(self.batch)).await?;
        let found = if claims.is_empty() { Found::Nothing } else { Found::Jobs };
        // The lanes are marked as read by the first; the others only move them on.
        let first = claims.first().map_or(&[][..], |claim| &claim.jobs);
        lanes.end_rescan(scanned, first, complete, took);
        for claim in claims {
            lanes.advance(&claim.jobs);
            self.start(claim, None).await;
        }
        Ok(found)
    }

    /// Claims from where we left off in each lane.
    async fn read_on(&self, lanes: &mut Lanes, free: usize) -> Result<Found, CallError> {
        if lanes.lanes().is_empty() {
            return Ok(Found::NothingNew);
        }
        let known = lanes.lanes().to_vec();
        let (claims, _) = self.claim_shares(&known, free.min(self.batch)).await?;
        if claims.is_empty() {
            return Ok(Found::NothingNew);
        }
        for claim in claims {
            lanes.advance(&claim.jobs);
            self.start(claim, None).await;
        }
        Ok(Found::Jobs)
    }

    /// Claims from lanes. Jobs that were put off have lanes of their own, and where both kinds wait,
    /// each has its share: thousands that fail again and again must not keep a fresh one out, nor a
    /// stream of fresh ones those. Says too whether every lane was read to its end.
    async fn claim_shares(
        &self,
        lanes: &[Lane],
        up_to: usize,
    ) -> Result<(Vec<Claim>, bool), CallError> {
        let (fresh, late): (Vec<Lane>, Vec<Lane>) =
            lanes.iter().cloned().partition(|lane| !lane.is_put_off());
        if fresh.is_empty() || late.is_empty() {
            let claim = self.claim_lanes(lanes, up_to).await?;
            let complete = claim.as_ref().is_none_or(|claim| claim.jobs.len() < up_to);
            return Ok((claim.into_iter().collect(), complete));
        }
        let kept = share(up_to, rand::random());
        let mut claims = Vec::new();
        let mut complete = true;
        let mut left = up_to;
        for (lanes, most) in [(&fresh, up_to - kept), (&late, up_to)] {
            let most = most.min(left);
            if most == 0 {
                complete = false;
                continue;
            }
            match self.claim_lanes(lanes, most).await {
                Ok(claim) => {
                    let count = claim.as_ref().map_or(0, |claim| claim.jobs.len());
                    complete &= count < most;
                    left -= count.min(left);
                    claims.extend(claim);
                }
                // What the first has claimed must start.
                Err(error) if !claims.is_empty() => {
                    tracing::warn!(%error, queue = %self.queue, "claiming failed; trying again");
                    complete = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok((claims, complete))
    }

    async fn claim_lanes(&self, lanes: &[Lane], up_to: usize) -> Result<Option<Claim>, CallError> {
        self.claim(|claimer, id| async move { claimer.claim(lanes, up_to, id).await }).await
    }

    /// Claims; when the reply is lost, finds out what was claimed.
    pub(super) async fn claim<'a, F, Fut>(&'a self, claim: F) -> Result<Option<Claim>, CallError>
    where
        F: FnOnce(Claimer<'a>, Uuid) -> Fut,
        Fut: Future<Output = Result<Option<Claim>, CallError>>,
    {
        let id = Uuid::now_v7();
        let asked_at = Instant::now();
        let error = match claim(self.claimer(), id).await {
            Ok(claim) => {
                #[cfg(feature = "chaos")]
                if claim.is_some() {
                    crate::chaos::point("claim.committed");
                }
                return Ok(claim);
            }
            Err(error) if error.was_refused() => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(%error, queue = %self.queue, "a claim had no answer; asking what it took");
        let mut patience = Patience::default();
        // The statement may still be on its way: ask more than once.
        let mut answers = 0;
        for _ in 0..10 {
            tokio::time::sleep(patience.next_wait()).await;
            match self.claimer().recover(id).await {
                Ok(Some(found)) => {
                    // The lease began when the claim was made, not when it was found again.
                    let found = Claim { asked_at, ..found };
                    let (generation, jobs) = (found.generation, found.jobs.len());
                    self.crew.events.send(|| Event::ClaimRecovered { generation, jobs });
                    return Ok(Some(found));
                }
                Ok(None) if answers >= 2 => break,
                Ok(None) => answers += 1,
                Err(_) => {}
            }
        }
        Err(error)
    }

    pub(super) async fn start(&self, claim: Claim, alone: Option<Alone>) {
        self.crew.start(claim, &self.queue, &self.slots, alone).await;
    }

    pub(super) fn claimer(&self) -> Claimer<'_> {
        Claimer { link: &self.link, worker: &self.worker, queue: &self.queue, names: &self.names }
    }
}
