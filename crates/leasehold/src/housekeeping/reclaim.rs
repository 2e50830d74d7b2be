//! Reclaim: returns the jobs of leases that ran out, and expires jobs that were not started in time.

use tokio_postgres::types::Type;

use crate::error::CallError;
use crate::link::Link;

/// Leases per statement.
const LEASES: i32 = 200;
/// A tick continues until this many jobs were reclaimed: a clock that jumps must not return every job
/// at once, and thousands of jobs with one lease each must not take an hour.
const JOBS_PER_TICK: i32 = 2000;
/// After this many ticks without winning the election, reclaim anyway: its holder may be a dead
/// session.
const MOST_ROUNDS_NOT_ELECTED: u32 = 5;

#[derive(Default)]
pub(super) struct ReclaimLeases {
    not_elected: u32,
}

/// What one run did in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReclaimedQueue {
    pub(super) queue: String,
    pub(super) returned: i32,
    pub(super) dead: i32,
}

impl ReclaimLeases {
    /// Reclaims the jobs of dead workers. Returns per queue how many were returned and how many buried.
    pub(super) async fn run_once(&mut self, link: &Link) -> Result<Vec<ReclaimedQueue>, CallError> {
        let mut reclaimed: Vec<ReclaimedQueue> = Vec::new();
        let mut jobs = 0;
        loop {
            let more = self.reclaim(link).await?;
            let count: i32 = more.iter().map(|reclaimed| reclaimed.returned + reclaimed.dead).sum();
            reclaimed.extend(more);
            jobs += count;
            // Fewer jobs than the limit of leases: no more leases have run out.
            if count < LEASES || jobs >= JOBS_PER_TICK {
                return Ok(reclaimed);
            }
        }
    }

    async fn reclaim(&mut self, link: &Link) -> Result<Vec<ReclaimedQueue>, CallError> {
        let anyway = self.not_elected >= MOST_ROUNDS_NOT_ELECTED;
        let sql = "select elected, queue, returned, buried from leasehold_internal.reclaim($1, $2)";
        let params = [(&LEASES as _, Type::INT4), (&anyway as _, Type::BOOL)];
        let rows = link.query(sql, &params).await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        self.not_elected = if first.get(0) { 0 } else { self.not_elected + 1 };
        let reclaimed = rows.iter().filter_map(|row| {
            let queue: Option<String> = row.get(1);
            Some(ReclaimedQueue { queue: queue?, returned: row.get(2), dead: row.get(3) })
        });
        Ok(reclaimed.collect())
    }
}

/// Walks over the jobs, a bounded piece per tick that the whole fleet shares, so that no index on the
/// expiry time is needed. A million waiting jobs take about three minutes; jobs past their time are not
/// claimed meanwhile.
pub(super) async fn walk_jobs(link: &Link) -> Result<WalkReport, CallError> {
    let rows =
        link.query("select expired, strays from leasehold_internal.walk_jobs()", &[]).await?;
    Ok(rows.first().map_or(WalkReport::default(), |row| WalkReport {
        expired: row.get(0),
        strays: row.get(1),
    }))
}

/// What one piece of the walk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WalkReport {
    pub(super) expired: i32,
    pub(super) strays: i32,
}
