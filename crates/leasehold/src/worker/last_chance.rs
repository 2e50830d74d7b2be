//! Jobs that one more loss would bury: each runs alone in the process.
//!
//! # Invariants
//! - Such a job is claimed when nothing else runs in this process, and nothing else is claimed before
//!   its end is recorded. If the process dies meanwhile, this job is the cause.
//! - While it waits for the others to end, no queue of this process claims: other workers take what is
//!   due. A worker with long-running handlers spends at most a tenth of its time on that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::claim_loop::ClaimLoop;
use super::lease_table::{Execution, SoloGuard};
use super::slots::pool::LATE;
use crate::backoff::{Backoff, Jitter, Waits};
use crate::error::CallError;

/// How long to wait until nothing else runs. It doubles while that is in vain.
const SOLO_WAITS: Backoff =
    Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)).jitter(Jitter::None);
/// After a wait in vain, the time until the next one, as a multiple of that wait: the waits then take at most a
/// tenth of the time.
const PAUSE: u32 = 10;
/// The longest time between two looks.
const LONGEST: Duration = Duration::from_secs(60);
/// A look that finds nothing takes at most 1 / `SHARE` of the time.
const SHARE: u32 = 100;

/// When to look for such jobs, and how long to wait until nothing else runs.
pub(super) struct Turn {
    at: Instant,
    wait: Duration,
    waits: Waits,
    poll: Duration,
}

impl Turn {
    pub(super) fn new(poll: Duration) -> Self {
        let mut waits = SOLO_WAITS.waits();
        Self { at: Instant::now(), wait: waits.next_wait(), waits, poll }
    }

    /// Records a wait in vain.
    fn in_vain(&mut self) {
        self.at = Instant::now() + self.wait * PAUSE;
        self.wait = self.waits.next_wait();
    }

    /// Records that nothing else runs.
    fn is_alone(&mut self) {
        self.waits.reset();
        self.wait = self.waits.next_wait();
    }

    fn looked(&mut self, took: Duration) {
        let pause = took.saturating_mul(SHARE).clamp(self.poll, LONGEST);
        self.at = Instant::now() + pause;
    }
}

impl ClaimLoop {
    /// Claims a job on its last chance, if one is due and nothing else runs. Claimed earlier, it could
    /// be buried for what another job did.
    pub(super) async fn claim_last_chance(&self, turn: &mut Turn) -> Result<bool, CallError> {
        let began = Instant::now();
        if began < turn.at {
            return Ok(false);
        }
        let waits = self.claimer().last_chance_waits().await;
        if !matches!(waits, Ok(true)) {
            turn.looked(began.elapsed());
            return waits;
        }
        let solo = tokio::select! {
            solo = Arc::clone(&self.executor.solo_lock).write_owned() => solo,
            () = tokio::time::sleep(turn.wait) => {
                turn.in_vain();
                return Ok(false);
            }
            () = self.executor.stop.cancelled() => return Ok(false),
        };
        turn.is_alone();
        let claiming = self.claim(async |claimer, id| claimer.claim_last_chance(id).await);
        let (claimed, solo) = self.claim_alone(claiming, solo, turn.wait).await;
        // Otherwise a job that the server refuses would keep the queue from its other jobs.
        let claims = claimed.inspect_err(|_| turn.in_vain())?;
        // One statement claims one job.
        let Some(claim) = claims.leases.into_iter().next() else { return Ok(false) };
        match solo {
            Some(solo) => self.start(claim, Execution::Solo(solo)),
            None => self.executor.release_claim(claim, &self.slots),
        }
        Ok(true)
    }

    /// Waits for the claim. In a fleet a late one lets the lock go, because the jobs of all databases wait for it.
    /// Without the lock the job must not run.
    async fn claim_alone<T>(
        &self,
        claiming: impl Future<Output = T>,
        solo: SoloGuard,
        wait: Duration,
    ) -> (T, Option<SoloGuard>) {
        if !self.slots.is_shared() {
            return (claiming.await, Some(solo));
        }
        let mut claiming = std::pin::pin!(claiming);
        if let Ok(claimed) = tokio::time::timeout(LATE, &mut claiming).await {
            return (claimed, Some(solo));
        }
        drop(solo);
        let claimed = claiming.await;
        let locking = Arc::clone(&self.executor.solo_lock).write_owned();
        (claimed, tokio::time::timeout(wait, locking).await.ok())
    }
}
