//! Claims of jobs with a limit key, beside those in order.
//!
//! # What is true
//! - A queue without such jobs never makes this claim: the claim in order also returns whether there are
//!   any to look at.
//! - The two claims take turns at being first, so that neither kind fills every slot.

use super::claim_loop::ClaimLoop;
use crate::error::CallError;
use crate::queue::claim::Claims;

/// Which claim comes first.
#[derive(Debug, Default)]
pub(super) struct LimitedTurns {
    /// The last claim in order saw that there are keys to look at.
    waits: bool,
    first: bool,
}

impl LimitedTurns {
    /// Returns whether jobs with a limit key come before the others in this claim.
    pub(super) fn come_first(&mut self) -> bool {
        self.first = self.waits && !self.first;
        self.first
    }

    /// Records what a claim in order saw, and returns it.
    pub(super) fn saw(&mut self, claims: &[Claims]) -> bool {
        self.waits = claims.iter().any(|claim| claim.has_limited);
        self.waits
    }
}

impl ClaimLoop {
    /// Claims up to `up_to` jobs with limit keys.
    pub(super) async fn claim_limited(&self, up_to: usize) -> Result<Claims, CallError> {
        if up_to == 0 {
            return Ok(Claims::default());
        }
        let claimed =
            self.claim(async |claimer, id| claimer.claim_limited(up_to, false, id).await).await;
        match claimed {
            Err(error @ CallError::Database(_)) if error.was_refused() => {
                // A trigger or a constraint may refuse one job: it must not block the jobs behind it.
                tracing::warn!(%error, queue = %self.queue, "a claim was refused; claiming one by one");
                let around =
                    self.claim(async |claimer, id| claimer.claim_limited(up_to, true, id).await);
                match around.await {
                    Ok(claims) if claims.leases.is_empty() => Err(error),
                    claimed => claimed,
                }
            }
            claimed => claimed,
        }
    }
}
