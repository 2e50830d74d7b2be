//! Differences made with triggers off, so that the mirror does not see them: rows that the index lacks,
//! has in an older version, or has although they are deleted.

use anyhow::{Result, ensure};
use leasehold::mirror::CheckReport;

use super::{Bench, replay, rows};

/// Number of differences of each kind.
pub const EACH: u64 = 10;
/// Numbers that no inserted annotation has.
const FRESH: u64 = 4_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// What the first check found.
    pub found: CheckReport,
    /// Documents written to repair the differences.
    pub written: u64,
    /// What the last check found.
    pub last: CheckReport,
}

impl Planted {
    pub fn count() -> u64 {
        3 * EACH
    }

    /// True if the check found and repaired all differences and wrote nothing else.
    pub fn is_exact(&self) -> bool {
        self.found.differences == Self::count()
            && self.written == Self::count()
            && self.last.is_equal()
    }
}

pub async fn run(bench: &Bench) -> Result<Planted> {
    // Spread over the whole table; each kind hits other rows.
    let some = |from: u64| {
        format!(
            "select id from (select id, row_number() over (order by id) as n, \
             count(*) over () as all_rows from annotations.annotation) r \
             where n % (all_rows / {EACH}) = {from} order by n limit {EACH}"
        )
    };
    rows::without_triggers(&bench.session, &rows::insert(FRESH, FRESH + EACH)).await?;
    let update = format!(
        "update annotations.annotation set version = version + 1, text = 'changed in secret' \
          where id in ({})",
        some(1)
    );
    rows::without_triggers(&bench.session, &update).await?;
    let delete = format!("delete from annotations.annotation where id in ({})", some(2));
    rows::without_triggers(&bench.session, &delete).await?;
    ensure!(replay::waiting(&bench.session).await? == 0, "the planting made jobs");

    let before = bench.store.stored();
    let found = bench.mirror.check_once(&bench.engine).await?;
    let working = replay::Working::start(bench)?;
    let last = replay::until_equal(bench).await;
    working.stop().await?;
    Ok(Planted { found, written: bench.store.stored() - before, last: last? })
}
