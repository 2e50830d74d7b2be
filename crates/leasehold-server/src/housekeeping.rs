//! Keeping house beside a page or a service, without running jobs.
//!
//! # What is true
//! - Whoever stays when every worker is gone measures, judges and tells: otherwise the fault that stops
//!   all workers is the one that nobody hears of.
//!
//! # What can go wrong
//! - The role may not: said once in the log, and on the console for as long as it runs.

use leasehold::Leasehold;
use serde::Serialize;

use crate::dev::services::{Service, Stopping};
use crate::exit::Failure;

/// Who keeps house, as this process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// This process does.
    Here,
    /// Somebody asked that others do.
    Elsewhere,
    /// This process would, and its role may not.
    NotAllowed,
}

impl Kept {
    /// What becomes of a process that would keep house.
    pub async fn by(engine: &Leasehold) -> Result<Self, Failure> {
        if engine.may_keep_house().await? {
            return Ok(Self::Here);
        }
        tracing::warn!(
            "this role may not keep house: samples, alarms and expired leases are left to others; \
             let it: grant leasehold_housekeeper to it"
        );
        Ok(Self::NotAllowed)
    }
}

/// The part that keeps house and runs no jobs.
pub fn service(engine: &Leasehold, name: &str, says: &str, stopping: &Stopping) -> Service {
    let worker = engine.worker().name(name).only_housekeeping();
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    Service::new("housekeeping", says, async move {
        Ok(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?)
    })
}

/// The part, when this process may have it.
pub async fn beside(
    engine: &Leasehold,
    name: &str,
    stopping: &Stopping,
) -> Result<(Option<Service>, Kept), Failure> {
    let kept = Kept::by(engine).await?;
    let says = "measures, raises alarms, returns the jobs of dead workers, fires schedules";
    let part = (kept == Kept::Here).then(|| service(engine, name, says, stopping));
    Ok((part, kept))
}
