//! Jobs whose worker died: claimed one at a time, each under its own lease. One that another loss would
//! bury has the whole process to itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetch::Fetch;
use crate::error::CallError;

/// When to wait for a moment in which nothing runs, and how long. Waiting keeps other jobs from
/// starting, so a worker whose handlers run long spends at most a tenth of its time on it.
pub(super) struct Turn {
    at: Instant,
    patience: Duration,
}

impl Turn {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);

    fn put_off(&mut self) {
        self.at = Instant::now() + self.patience * 10;
        self.patience = (self.patience * 2).min(Self::LONGEST);
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self { at: Instant::now(), patience: Self::FIRST }
    }
}

impl Fetch {
    /// Jobs that were lost before, each alone under its lease.
    pub(super) async fn claim_lost(
        &self,
        turn: &mut Turn,
        free: usize,
    ) -> Result<usize, CallError> {
        let mut claimed = usize::from(self.claim_last_chance(turn).await?);
        while claimed < free {
            let claim = self
                .claim(|claimer, id| async move { claimer.claim_lost(false, id).await })
                .await?;
            let Some(claim) = claim else { break };
            self.start(claim, None).await;
            claimed += 1;
        }
        Ok(claimed)
    }

    /// A job that one more loss would bury. It is claimed when nothing else runs in this process, and
    /// nothing else starts before its end is recorded: if the process dies meanwhile, it was this
    /// job. Claimed earlier, it would be buried for what another job did.
    async fn claim_last_chance(&self, turn: &mut Turn) -> Result<bool, CallError> {
        if Instant::now() < turn.at || !self.claimer().last_chance_waits().await? {
            return Ok(false);
        }
        let mut stop = self.crew.stop.clone();
        let alone = tokio::select! {
            alone = Arc::clone(&self.crew.company).write_owned() => alone,
            () = tokio::time::sleep(turn.patience) => {
                turn.put_off();
                return Ok(false);
            }
            _ = stop.wait_for(|stop| *stop) => return Ok(false),
        };
        turn.patience = Turn::FIRST;
        let claim =
            self.claim(|claimer, id| async move { claimer.claim_lost(true, id).await }).await?;
        let Some(claim) = claim else { return Ok(false) };
        self.start(claim, Some(alone)).await;
        Ok(true)
    }
}
