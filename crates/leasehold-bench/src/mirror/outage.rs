//! Makes the index unreachable while users save and search, and brings it back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold::mirror::CheckReport;

use super::interactive::{self, Load};
use super::{Bench, replay};
use leasehold_server::bench::server::checkpoint;

pub struct Outages {
    /// With the index, all rounds together.
    pub normal: Load,
    /// Without it.
    pub away: Load,
    /// The longest time from the end of an outage until every save of it was in the index.
    pub recovery: Duration,
    /// The check after the last outage.
    pub last: CheckReport,
}

pub async fn run(bench: &Bench, per_second: u32, time: Duration, rounds: u32) -> Result<Outages> {
    let mut outages = round(bench, per_second, time).await?;
    for _ in 1..rounds {
        let other = round(bench, per_second, time).await?;
        outages.normal.add(&other.normal)?;
        outages.away.add(&other.away)?;
        outages.recovery = outages.recovery.max(other.recovery);
        outages.last = other.last;
    }
    Ok(outages)
}

async fn round(bench: &Bench, per_second: u32, time: Duration) -> Result<Outages> {
    checkpoint(&bench.session).await?;
    let (normal, ()) = interactive::run(bench, per_second, interactive::nothing_for(time))
        .await
        .context("interactive load with the index")?;
    bench.store.take_away();
    let away = interactive::run(bench, per_second, interactive::nothing_for(time)).await;
    bench.store.restore();
    let (away, ()) = away.context("interactive load without the index")?;
    let back = Instant::now();
    let last = replay::until_equal(bench).await.context("after the outage")?;
    Ok(Outages { normal, away, recovery: back.elapsed(), last })
}
