//! The lease table: every lease that this worker holds, and the attempts under it.
//!
//! Shared between the runtime that runs handlers and the thread that renews leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::context::{Attempt, LeaseShared, StopReason};
use crate::job::{Generation, JobId};

/// The lock of the only job that runs in this process.
pub(crate) type SoloGuard = OwnedRwLockWriteGuard<()>;
/// The lock of jobs that run concurrently. A claim takes it before it is sent, and its jobs share it,
/// so that none of them waits, claimed and not started, for a job that must run alone.
pub(crate) type SharedGuard = Arc<OwnedRwLockReadGuard<()>>;

/// How the jobs of a claim run: concurrently, or one alone.
pub(crate) enum Execution {
    Shared(SharedGuard),
    Solo(SoloGuard),
}

#[derive(Default)]
pub(crate) struct LeaseTable(Mutex<HashMap<Generation, HeldLease>>);

/// One lease and what is left of its jobs.
struct HeldLease {
    attempts: Vec<Arc<Attempt>>,
    left: usize,
    lease: Duration,
    /// Read before the claim or the last successful renewal was sent.
    renewed_at: Instant,
    shared: Arc<LeaseShared>,
    lost: bool,
    /// Released when the end of the job is recorded, not when its handler returns: a process that died
    /// in between would count against a job that is finished.
    solo: Option<SoloGuard>,
}

impl LeaseTable {
    fn leases(&self) -> MutexGuard<'_, HashMap<Generation, HeldLease>> {
        // A panic while it was locked leaves the map consistent: every change is one call.
        self.0.lock()
    }

    pub(crate) fn open(
        &self,
        generation: Generation,
        shared: Arc<LeaseShared>,
        attempts: Vec<Arc<Attempt>>,
        lease: Duration,
        renewed_at: Instant,
        solo: Option<SoloGuard>,
    ) {
        let left = attempts.len();
        let lost = false;
        let held = HeldLease { attempts, left, lease, renewed_at, shared, lost, solo };
        self.leases().insert(generation, held);
    }

    /// Removes finished attempts; the lease is removed with its last one.
    pub(crate) fn close(&self, generation: Generation, finished: usize) {
        let mut leases = self.leases();
        if let Some(held) = leases.get_mut(&generation) {
            held.left = held.left.saturating_sub(finished);
            if held.left == 0 {
                leases.remove(&generation);
            }
        }
    }

    /// Lets other jobs of the process start beside a job that ran alone, although its end is not recorded.
    pub(crate) fn let_go(&self, generation: Generation) {
        if let Some(held) = self.leases().get_mut(&generation) {
            held.solo = None;
        }
    }

    /// Returns how many attempts of a lease have not finished.
    pub(crate) fn left(&self, generation: Generation) -> usize {
        self.leases().get(&generation).map_or(0, |held| held.left)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.leases().is_empty()
    }

    /// Returns the leases that are due for renewal: a third of their time has passed.
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
            held.shared.end.renewed(asked_at, held.lease);
        }
    }

    /// Gives a lease up: asks its handlers to stop. Their results will be dropped.
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

    /// Returns the leases that ran out by this worker's own, earlier deadline.
    pub(crate) fn run_out(&self, now: Instant) -> Vec<Generation> {
        self.leases()
            .iter()
            .filter(|(_, held)| !held.lost && held.shared.end.has_passed(now))
            .map(|(generation, _)| *generation)
            .collect()
    }

    pub(crate) fn generations(&self) -> Vec<Generation> {
        self.leases().keys().copied().collect()
    }

    /// Returns every attempt that is not known to have ended.
    pub(crate) fn attempts(&self) -> Vec<Arc<Attempt>> {
        self.leases().values().flat_map(|held| held.attempts.iter().cloned()).collect()
    }

    pub(crate) fn ids(&self) -> Vec<i64> {
        let leases = self.leases();
        leases.values().flat_map(|held| &held.attempts).map(|attempt| attempt.job.id.0).collect()
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

    /// Returns how soon a lease runs out by this worker's own deadline.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Duration> {
        self.leases()
            .values()
            .filter(|held| !held.lost)
            .map(|held| held.shared.end.remaining(now))
            .min()
    }

    /// Returns how soon a lease needs the keeper.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Duration> {
        self.leases()
            .values()
            .filter(|held| !held.lost)
            .map(|held| (held.renewed_at + held.lease / 3).saturating_duration_since(now))
            .min()
    }
}
