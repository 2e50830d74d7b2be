//! A person with many annotations takes another name while others save and search.

use std::time::{Duration, Instant};

use annotations::index::{Query, SearchIndex as _};
use anyhow::{Context, Result, ensure};
use leasehold::mirror::CheckReport;

use super::people::{self, Load};
use super::{Bench, replay, rows};

/// Each look counts the jobs that are left: seldom enough not to be what is measured.
const LOOK: Duration = Duration::from_millis(500);

pub struct Renamed {
    /// From the rename until the index had every annotation under the new name.
    pub took: Duration,
    /// What others noticed meanwhile.
    pub load: Load,
    pub check: CheckReport,
}

pub async fn run(bench: &Bench, per_second: u32) -> Result<Renamed> {
    let before = rows::PROLIFIC;
    let now = format!("{before}2");
    let who = bench.service.user(before).await?.id;
    let started = Instant::now();
    bench.service.rename_user(who, &now).await?.context("they had that name already")?;
    let (load, took) = people::run(bench, per_second, until_told(bench, started)).await?;
    let check = replay::until_equal(bench).await?;
    let found = |user: &str| Query { user: Some(user.to_owned()), limit: 1, ..Query::default() };
    ensure!(bench.store.search(&found(before)).await?.hits.is_empty(), "the old name is found");
    ensure!(!bench.store.search(&found(&now)).await?.hits.is_empty(), "the new name is not found");
    Ok(Renamed { took, load, check })
}

/// Ends when no job of the rename is left.
async fn until_told(bench: &Bench, started: Instant) -> Result<Duration> {
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
