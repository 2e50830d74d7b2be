//! Expire: leases whose worker is gone, and jobs that were not started in time.

use tokio_postgres::types::Type;

use crate::error::CallError;
use crate::link::Link;

/// So many leases a tick: a clock that jumps must not bring back everything at once.
const LEASES_A_TICK: i32 = 200;
/// After so many ticks without winning the election, do it anyway: the holder may be a ghost.
const PATIENCE: u32 = 5;

#[derive(Default)]
pub(crate) struct ExpireLeases {
    not_elected: u32,
    ticks: u32,
}

/// What one run did in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) queue: String,
    pub(crate) returned: i32,
    pub(crate) buried: i32,
}

impl ExpireLeases {
    /// Says what became of the jobs of dead workers; nothing where nobody died.
    pub(crate) async fn run_once(&mut self, link: &Link) -> Result<Vec<Expired>, CallError> {
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(60) {
            link.query("select leasehold.clamp_leases()", &[]).await?;
        }
        let anyway = self.not_elected >= PATIENCE;
        let sql = "select elected, queue, returned, buried from leasehold.rescue($1, $2)";
        let params = [(&LEASES_A_TICK as _, Type::INT4), (&anyway as _, Type::BOOL)];
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

/// Walks over the jobs, a bounded piece a tick shared by the whole fleet, so that no index has to
/// know when they expire. A million waiting jobs take about three minutes; jobs past their time are
/// not claimed meanwhile.
pub(crate) async fn walk_jobs(link: &Link) -> Result<Walked, CallError> {
    let rows = link.query("select expired, strays from leasehold.walk_jobs()", &[]).await?;
    Ok(rows
        .first()
        .map_or(Walked::default(), |row| Walked { expired: row.get(0), strays: row.get(1) }))
}

/// What one piece of the walk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) expired: i32,
    pub(crate) strays: i32,
}
