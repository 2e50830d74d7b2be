//! The book: every lease this worker holds, and the attempts under it.
//!
//! Shared between the runtime that runs handlers and the thread that renews leases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedRwLockWriteGuard;

use super::context::{Attempt, StopReason};
use crate::job::{Generation, JobId};

/// The right to be the only job that runs in this process.
pub(crate) type Alone = OwnedRwLockWriteGuard<()>;

#[derive(Default)]
pub(crate) struct Book(Mutex<HashMap<Generation, Held>>);

/// One lease and what is left of its jobs.
struct Held {
    /// As the lease names them, in its order.
    ids: Arc<[i64]>,
    attempts: Vec<Arc<Attempt>>,
    left: usize,
    lease: Duration,
    /// Taken before the claim or the last successful renewal was sent.
    renewed_at: Instant,
    lost: bool,
    /// Let go when the end of the job is recorded, not when its handler returns: a process that died
    /// in between would count against a job that is done.
    _alone: Option<Alone>,
}

impl Held {
    /// When we stop believing in the lease: a sixth before the database does.
    fn ends_at(&self) -> Instant {
        self.renewed_at + self.lease - self.lease / 6
    }
}

impl Book {
    fn leases(&self) -> MutexGuard<'_, HashMap<Generation, Held>> {
        // A panic elsewhere while it was locked leaves the map whole: every change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(
        &self,
        generation: Generation,
        attempts: Vec<Arc<Attempt>>,
        lease: Duration,
        renewed_at: Instant,
        alone: Option<Alone>,
    ) {
        let ids = attempts.iter().map(|attempt| attempt.job.id.0).collect();
        let left = attempts.len();
        let held = Held { ids, attempts, left, lease, renewed_at, lost: false, _alone: alone };
        self.leases().insert(generation, held);
    }

    /// Strikes off finished attempts; the lease leaves the book with its last one.
    pub(crate) fn close(&self, generation: Generation, finished: usize) {
        let mut leases = self.leases();
        if let Some(held) = leases.get_mut(&generation) {
            held.left = held.left.saturating_sub(finished);
            if held.left == 0 {
                leases.remove(&generation);
            }
        }
    }

    /// The ids of a lease in its own order, when `count` of them is all of them.
    pub(crate) fn all_ids(&self, generation: Generation, count: usize) -> Option<Arc<[i64]>> {
        let leases = self.leases();
        let held = leases.get(&generation)?;
        (held.ids.len() == count).then(|| Arc::clone(&held.ids))
    }

    /// How many attempts of a lease are still to finish.
    pub(crate) fn left(&self, generation: Generation) -> usize {
        self.leases().get(&generation).map_or(0, |held| held.left)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases().is_empty()
    }

    /// Leases that are due for renewal: a third of their time has passed.
    pub(crate) fn due(&self, now: Instant) -> Vec<i64> {
        self.leases()
            .iter()
            .filter(|(_, held)| !held.lost && now >= held.renewed_at + held.lease / 3)
            .map(|(generation, _)| generation.0)
            .collect()
    }

    pub(crate) fn renewed(&self, generation: Generation, asked_at: Instant) {
        if let Some(held) = self.leases().get_mut(&generation) {
            held.renewed_at = asked_at;
        }
    }

    /// Gives a lease up: its handlers are told to stop, their results will be dropped.
    pub(crate) fn lose(&self, generation: Generation) -> bool {
        let mut leases = self.leases();
        let Some(held) = leases.get_mut(&generation).filter(|held| !held.lost) else {
            return false;
        };
        held.lost = true;
        for attempt in &held.attempts {
            attempt.stop(StopReason::LeaseLost);
        }
        true
    }

    /// Leases that ran out by our own, earlier, clock.
    pub(crate) fn run_out(&self, now: Instant) -> Vec<Generation> {
        self.leases()
            .iter()
            .filter(|(_, held)| !held.lost && now >= held.ends_at())
            .map(|(generation, _)| *generation)
            .collect()
    }

    pub(crate) fn generations(&self) -> Vec<Generation> {
        self.leases().keys().copied().collect()
    }

    /// Every attempt that is not known to be over.
    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.leases().values().flat_map(|held| held.attempts.iter().cloned()).collect()
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        self.leases().values().flat_map(|held| held.ids.iter().copied()).collect()
    }

    pub(crate) fn stop_jobs(&self, ids: &[JobId], reason: StopReason) {
        for held in self.leases().values() {
            for attempt in &held.attempts {
                if ids.contains(&attempt.job.id) {
                    attempt.stop(reason);
                }
            }
        }
    }

    /// How soon a lease runs out by our own clock.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Duration> {
        self.leases()
            .values()
            .filter(|held| !held.lost)
            .map(|held| held.ends_at().saturating_duration_since(now))
            .min()
    }

    /// How soon something in the book needs the keeper.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Duration> {
        self.leases()
            .values()
            .filter(|held| !held.lost)
            .map(|held| (held.renewed_at + held.lease / 3).saturating_duration_since(now))
            .min()
    }
}
