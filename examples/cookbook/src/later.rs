use std::time::Duration;

use leasehold::jiff::Timestamp;
use leasehold::{Enqueue, EnqueueError, Job, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "trial.end")]
pub struct EndTrial {
    pub account: i64,
}

pub async fn remind(leasehold: &Leasehold, ends: Timestamp) -> Result<(), EnqueueError> {
    // In an hour, by the clock of the database. If no worker starts the job within a day from now, it
    // is dead as `expired`.
    let soon = EndTrial { account: 7 }.draft()?.run_after(Duration::from_secs(3600));
    soon.expire_after(Duration::from_secs(86_400)).enqueue(leasehold).await?;
    // At a moment.
    EndTrial { account: 7 }.draft()?.run_at(ends).enqueue(leasehold).await?;
    Ok(())
}
