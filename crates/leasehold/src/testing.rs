//! What `leasehold-testing` needs to run a handler without a worker. No part of the promises.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::link::Link;
use crate::queue::claim::Claimer;
use crate::worker::Ctx;

const LIMIT: Duration = Duration::from_secs(30);

/// The attempts of a claim that was made by other means than a worker, such as by SQL. Nobody
/// renews its lease.
pub async fn attempts_of_claim(
    engine: &Leasehold,
    queue: &str,
    claimed_by: &str,
    claim_id: Uuid,
) -> Result<Vec<Ctx>, CallError> {
    let link = Link::new(engine.database().clone(), LIMIT);
    let claimer = Claimer { link: &link, worker: claimed_by, queue, names: &[] };
    let Some(claim) = claimer.recover(claim_id).await? else { return Ok(Vec::new()) };
    let queue: Arc<str> = queue.into();
    let limit = claim.run_limit;
    Ok(claim
        .jobs
        .into_iter()
        .map(|job| Ctx::of_attempt(job, Arc::clone(&queue), engine.clone(), limit))
        .collect())
}
