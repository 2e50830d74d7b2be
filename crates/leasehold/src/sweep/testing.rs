//! The statements of a sweep, for tests. Not covered by the guarantees.

use super::declare::Sweep;
use super::prepare::{Prepared, SETTINGS, SweepError};
use crate::Leasehold;

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
        settings: SETTINGS,
    })
}

/// Returns the second number of a sweep's advisory lock; the first is 7306.
pub fn gate_key(sweep: &str) -> i32 {
    super::statements::gate_key(sweep)
}
