//! Runs housekeeping in a console or service process, without running jobs.
//!
//! # Invariants
//! - A console or service that outlives the workers samples, evaluates and enqueues alarm notifications.
//!   Otherwise an outage that stops every worker would raise no alarm.
//!
//! # What can go wrong
//! - The role lacks the rights: the log shows that once, and the console as long as it runs.

use leasehold::Leasehold;
use serde::Serialize;

use crate::exit::Failure;
use crate::run::{Service, Stopping};

/// Which process runs housekeeping, as far as this one knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// This process does.
    Here,
    /// The operator left it to other processes.
    Elsewhere,
    /// This process would, but its role lacks the rights.
    NotAllowed,
}

impl Kept {
    /// Checks whether this process may run housekeeping.
    pub async fn by(engine: &Leasehold) -> Result<Self, Failure> {
        if engine.may_run_housekeeping().await? {
            return Ok(Self::Here);
        }
        tracing::warn!(
            "the role of this process may not run housekeeping: other processes must take samples, raise \
             alarms and reclaim jobs; to allow it, grant leasehold_housekeeper to the role"
        );
        Ok(Self::NotAllowed)
    }
}

/// Builds the service that runs housekeeping and no jobs.
pub fn service(engine: &Leasehold, name: &str, description: &str, stopping: &Stopping) -> Service {
    let worker = engine.worker().name(name).only_housekeeping();
    let (stop, immediate) = (stopping.clone(), stopping.clone());
    Service::new("housekeeping", description, async move {
        Ok(worker.run_with_shutdown(stop.asked(), immediate.cut_short()).await?)
    })
}

/// Builds that service if this process may run it.
pub async fn beside(
    engine: &Leasehold,
    name: &str,
    stopping: &Stopping,
) -> Result<(Option<Service>, Kept), Failure> {
    let kept = Kept::by(engine).await?;
    let description =
        "takes samples, raises alarms, reclaims jobs of dead workers, fires schedules";
    let part = (kept == Kept::Here).then(|| service(engine, name, description, stopping));
    Ok((part, kept))
}
