//! What `leasehold-testing` needs to run a handler without a worker. Not covered by the guarantees.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::link::Links;
use crate::mirror::{Mirror, MirrorError};
use crate::queue::claim::Claimer;
use crate::sweep::{Prepared, Sweep, SweepError};
use crate::worker::Ctx;

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

/// The statements of a sweep as they are sent, for tests that step through them or check their plans.
/// Parameters are `$1` and so on.
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
    /// The settings of sweep sessions.
    pub settings: &'static str,
}

/// Checks a sweep, stores its declaration and returns its statements.
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

/// The statements of a mirror as they are sent, for tests that check their plans.
#[derive(Clone, Debug)]
pub struct MirrorSql {
    pub versions: String,
    pub documents: String,
    pub digest: String,
    pub first_keys: String,
    pub next_keys: String,
    /// The settings of mirror sessions.
    pub settings: &'static str,
}

/// Checks a mirror, stores its declaration and returns its statements.
pub async fn mirror_sql(mirror: &Mirror, engine: &Leasehold) -> Result<MirrorSql, MirrorError> {
    let runtime = crate::mirror::MirrorRuntime::new(engine, mirror.clone());
    let statements = runtime.prepared().await?.statements.clone();
    Ok(MirrorSql {
        versions: statements.versions,
        documents: statements.documents,
        digest: statements.digest,
        first_keys: statements.first_keys,
        next_keys: statements.next_keys,
        settings: crate::mirror::SETTINGS,
    })
}

/// Returns the second number of a sweep's advisory lock; the first is 7306.
pub fn gate_key(sweep: &str) -> i32 {
    crate::sweep::gate_key(sweep)
}
