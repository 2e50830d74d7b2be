//! What `leasehold-testing` needs to run a handler without a worker. No part of the promises.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::link::Link;
use crate::mirror::{Mirror, MirrorError};
use crate::queue::claim::Claimer;
use crate::sweep::{Prepared, Sweep, SweepError};
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

/// The statements of a sweep as they are sent, for tests that step through them or look at their
/// plans. Parameters stand in them as `$1`.
#[derive(Clone, Debug)]
pub struct SweepSql {
    pub claim: String,
    pub claim_on: String,
    pub finish: String,
    pub renew: String,
    pub fail: String,
    pub close: String,
    pub reset_stuck: String,
    pub reset_failed: String,
    /// What sessions that sweep set for themselves.
    pub settings: &'static str,
}

/// Checks a sweep, stores its declaration and gives its statements.
pub async fn sweep_sql(sweep: &Sweep, engine: &Leasehold) -> Result<SweepSql, SweepError> {
    let statements = Prepared::new(sweep, engine).await?.statements;
    Ok(SweepSql {
        claim: statements.claim,
        claim_on: statements.claim_on,
        finish: statements.finish,
        renew: statements.renew,
        fail: statements.fail,
        close: statements.close,
        reset_stuck: statements.reset_stuck,
        reset_failed: statements.reset_failed,
        settings: crate::sweep::SETTINGS,
    })
}

/// The statements of a mirror as they are sent, for tests that look at their plans.
#[derive(Clone, Debug)]
pub struct MirrorSql {
    pub versions: String,
    pub documents: String,
    pub digest: String,
    pub first_keys: String,
    pub next_keys: String,
    /// What sessions of a mirror set for themselves.
    pub settings: &'static str,
}

/// Checks a mirror, stores its declaration and gives its statements.
pub async fn mirror_sql(mirror: &Mirror, engine: &Leasehold) -> Result<MirrorSql, MirrorError> {
    let desk = crate::mirror::Desk::new(engine, mirror.clone());
    let statements = desk.prepared().await?.statements.clone();
    Ok(MirrorSql {
        versions: statements.versions,
        documents: statements.documents,
        digest: statements.digest,
        first_keys: statements.first_keys,
        next_keys: statements.next_keys,
        settings: crate::mirror::SETTINGS,
    })
}

/// The second number of a sweep's advisory lock; the first is 7306.
pub fn gate_key(sweep: &str) -> i32 {
    crate::sweep::gate_key(sweep)
}
