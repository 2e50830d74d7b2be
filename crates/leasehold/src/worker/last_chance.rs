//! Jobs that one more loss would bury: each runs alone in the process.
//!
//! # What is true
//! - Such a job is claimed when nothing else runs in this process, and nothing else is claimed before
//!   its end is recorded. If the process dies meanwhile, this job is the cause.
//! - While it waits for the others to end, no queue of this process claims: other workers take what is
//!   due. A worker with long-running handlers spends at most a tenth of its time on that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetch::Fetch;
use super::lease_table::Execution;
use crate::error::CallError;

/// When to look for such jobs, and how long to wait until nothing else runs.
pub(super) struct Turn {
    at: Instant,
    backoff: Duration,
    poll: Duration,
}

impl Turn {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);
    /// A look that finds nothing takes at most 1 / `SHARE` of the time.
    const SHARE: u32 = 100;

    pub(super) fn new(poll: Duration) -> Self {
        Self { at: Instant::now(), backoff: Self::FIRST, poll }
    }

    fn put_off(&mut self) {
        self.at = Instant::now() + self.backoff * 10;
        self.backoff = (self.backoff * 2).min(Self::LONGEST);
    }

    fn looked(&mut self, took: Duration) {
        let pause = took.saturating_mul(Self::SHARE).clamp(self.poll, Self::LONGEST);
        self.at = Instant::now() + pause;
    }
}

impl Fetch {
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
        let mut stop = self.executor.stop.clone();
        let alone = tokio::select! {
            alone = Arc::clone(&self.executor.solo_lock).write_owned() => alone,
            () = tokio::time::sleep(turn.backoff) => {
                turn.put_off();
                return Ok(false);
            }
            _ = stop.wait_for(|stop| *stop) => return Ok(false),
        };
        turn.backoff = Turn::FIRST;
        let claimed = self.claim(async |claimer, id| claimer.claim_last_chance(id).await).await;
        // Otherwise a job that the server refuses would keep the queue from its other jobs.
        let claims = claimed.inspect_err(|_| turn.put_off())?;
        // One statement claims one job.
        let Some(claim) = claims.leases.into_iter().next() else { return Ok(false) };
        self.start(claim, Execution::Solo(alone)).await;
        Ok(true)
    }
}
