//! Prune: ended leases, old keys and marks, workers long gone, history past its time.

use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::HousekeepingConfig;
use crate::error::CallError;
use crate::link::Link;

/// Partitions are made and dropped this often.
const PARTITIONS_EVERY: Duration = Duration::from_secs(600);

pub(crate) struct Prune {
    keep_history: f64,
    keep_dead: Option<f64>,
    partitions_at: Instant,
}

/// What one run removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pruned {
    pub(crate) leases: i32,
    pub(crate) keys: i32,
    pub(crate) markers: i32,
    pub(crate) workers: i32,
    pub(crate) dead: i32,
    pub(crate) partitions: i32,
}

impl Pruned {
    pub(crate) fn did_something(&self) -> bool {
        *self != Self::default()
    }
}

impl Prune {
    pub(crate) fn new(config: &HousekeepingConfig) -> Self {
        Self {
            keep_history: config.keep_history.as_secs_f64(),
            keep_dead: config.keep_dead.map(|keep| keep.as_secs_f64()),
            partitions_at: Instant::now(),
        }
    }

    pub(crate) async fn run_once(&mut self, link: &Link) -> Result<Pruned, CallError> {
        let rows = link
            .query(
                "select leases, keys, markers, workers, dead \
                 from leasehold.prune(dead_for => make_interval(secs => $1))",
                &[(&self.keep_dead, Type::FLOAT8)],
            )
            .await?;
        let mut pruned = rows.first().map_or(Pruned::default(), |row| Pruned {
            leases: row.get(0),
            keys: row.get(1),
            markers: row.get(2),
            workers: row.get(3),
            dead: row.get(4),
            partitions: 0,
        });
        if Instant::now() >= self.partitions_at {
            self.partitions_at = Instant::now() + PARTITIONS_EVERY;
            link.query("select leasehold.extend_history()", &[]).await?;
            let sql = "select leasehold.drop_history(make_interval(secs => $1))";
            let rows = link.query(sql, &[(&self.keep_history, Type::FLOAT8)]).await?;
            pruned.partitions = rows.first().map_or(0, |row| row.get(0));
        }
        Ok(pruned)
    }
}
