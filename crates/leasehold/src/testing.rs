//! What `leasehold-testing` needs to run a handler without a worker. Not covered by the guarantees.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::link::Links;
use crate::queue::claim::Claimer;
use crate::worker::Ctx;

pub use crate::mirror::testing::{MirrorSql, mirror_sql};
pub use crate::sweep::testing::{SweepSql, gate_key, sweep_sql};

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the attempts of a claim that was made without a worker, such as by SQL. Nothing renews its
/// lease.
pub async fn attempts_of_claim(
    engine: &Leasehold,
    queue: &str,
    claimed_by: &str,
    claim_id: Uuid,
) -> Result<Vec<Ctx>, CallError> {
    let links = Links::new(engine.database(), 1, LIMIT);
    let claimer = Claimer { links: &links, worker: claimed_by, queue, names: &[] };
    let claims = claimer.recover(claim_id).await?;
    let queue: Arc<str> = queue.into();
    let mut attempts = Vec::new();
    for claim in claims.leases {
        let limit = claim.run_limit;
        attempts.extend(
            claim
                .jobs
                .into_iter()
                .map(|job| Ctx::of_attempt(job, Arc::clone(&queue), engine.clone(), limit)),
        );
    }
    Ok(attempts)
}
