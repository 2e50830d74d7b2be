//! Expire: reclaims leases whose worker is gone, and expires jobs that were not started in time.

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
pub(super) struct ExpireLeases {
    not_elected: u32,
}

/// What one run did in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expired {
    pub(super) queue: String,
    pub(super) returned: i32,
    pub(super) buried: i32,
}

impl ExpireLeases {
    /// Reclaims the jobs of dead workers. Returns what became of them per queue.
    pub(super) async fn run_once(&mut self, link: &Link) -> Result<Vec<Expired>, CallError> {
        let mut gone: Vec<Expired> = Vec::new();
        let mut jobs = 0;
        loop {
            let more = self.rescue(link).await?;
            let count: i32 = more.iter().map(|gone| gone.returned + gone.buried).sum();
            gone.extend(more);
            jobs += count;
            // Fewer jobs than the limit of leases: there are no more.
            if count < LEASES || jobs >= JOBS_PER_TICK {
                return Ok(gone);
            }
        }
    }

    async fn rescue(&mut self, link: &Link) -> Result<Vec<Expired>, CallError> {
        let anyway = self.not_elected >= MOST_ROUNDS_NOT_ELECTED;
        let sql = "select elected, queue, returned, buried from leasehold.rescue($1, $2)";
        let params = [(&LEASES as _, Type::INT4), (&anyway as _, Type::BOOL)];
        let rows = link.query(sql, &params).await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        self.not_elected = if first.get(0) { 0 } else { self.not_elected + 1 };
        let gone = rows.iter().filter_map(|row| {
            let queue: Option<String> = row.get(1);
            Some(Expired { queue: queue?, returned: row.get(2), buried: row.get(3) })
        });
        Ok(gone.collect())
    }
}

/// Walks over the jobs, a bounded piece per tick that the whole fleet shares, so that no index on the
/// expiry time is needed. A million waiting jobs take about three minutes; jobs past their time are not
/// claimed meanwhile.
pub(super) async fn walk_jobs(link: &Link) -> Result<Walked, CallError> {
    let rows = link.query("select expired, strays from leasehold.walk_jobs()", &[]).await?;
    Ok(rows
        .first()
        .map_or(Walked::default(), |row| Walked { expired: row.get(0), strays: row.get(1) }))
}

/// What one piece of the walk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) expired: i32,
    pub(super) strays: i32,
}
