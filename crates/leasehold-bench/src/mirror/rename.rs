//! Renames a user with many annotations while others save and search.

use std::time::{Duration, Instant};

use annotations::index::{Query, SearchIndex as _};
use anyhow::{Context, Result, ensure};
use leasehold::mirror::CheckReport;

use super::interactive::{self, Load};
use super::{Bench, replay, rows};
use leasehold_server::bench::server::WalMeter;

/// The polling interval. Each poll counts the jobs that are left, so it must not dominate the figures.
const LOOK: Duration = Duration::from_millis(500);

pub struct Renamed {
    /// From the rename until the index had every annotation under the new name.
    pub took: Duration,
    /// Load of other users with the index, the last stretch just before the rename, and during it.
    pub before: Load,
    pub load: Load,
    /// WAL written during the rename, including the saves of others.
    pub wal_bytes: f64,
    pub check: CheckReport,
}

/// `before`: the load measured on the same bench so far, with the index.
pub async fn run(
    bench: &Bench,
    per_second: u32,
    time: Duration,
    mut before: Load,
) -> Result<Renamed> {
    let old = rows::PROLIFIC;
    let new = format!("{old}2");
    let who = bench.service.user(old).await?.id;
    let (just_before, ()) =
        interactive::run(bench, per_second, interactive::nothing_for(time)).await?;
    before.add(&just_before)?;
    let wal = WalMeter::start(&bench.session).await?;
    let started = Instant::now();
    bench.service.rename_user(who, &new).await?.context("they had that name already")?;
    let (load, took) = interactive::run(bench, per_second, until_renamed(bench, started)).await?;
    let wal_bytes = wal.bytes(&bench.session).await?;
    let check = replay::until_equal(bench).await?;
    let found = |user: &str| Query { user: Some(user.to_owned()), limit: 1, ..Query::default() };
    ensure!(bench.store.search(&found(old)).await?.hits.is_empty(), "the old name is found");
    ensure!(!bench.store.search(&found(&new)).await?.hits.is_empty(), "the new name is not found");
    Ok(Renamed { took, before, load, wal_bytes, check })
}

/// Returns when no job of the rename is left.
async fn until_renamed(bench: &Bench, started: Instant) -> Result<Duration> {
    let sql = "select not exists (select from annotations.bulk \
                                   where tag = 'rename_user' and finished_at is null) \
                      and not exists (select from leasehold.job \
                                       where queue = 'annotations' and tag = 'rename_user')";
    loop {
        let rows = bench.session.query_typed(sql, &[]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < Duration::from_secs(3600), "the rename does not end");
        tokio::time::sleep(LOOK).await;
    }
}
