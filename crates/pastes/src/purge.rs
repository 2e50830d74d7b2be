//! Deletes rows that are past their retention.

use std::time::Duration;

use leasehold::{Job, JobError, Policy};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::service::Pastes;
use crate::worker::HOUSEKEEPING_QUEUE;

/// How long dead intents are kept after their object was deleted.
const KEEP_INTENTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most rows of each kind that one round of purging removes.
const PURGE_BATCH: i32 = 10_000;

/// Deletes rows that are past their retention.
#[derive(Serialize, Deserialize)]
pub struct Purge {}

impl Job for Purge {
    const NAME: &'static str = "pastes.purge";
    const QUEUE: &'static str = HOUSEKEEPING_QUEUE;

    fn policy() -> Policy {
        Policy::default().max_attempts(3)
    }
}

/// Purges in rounds until a round deletes fewer than `PURGE_BATCH` rows.
pub(crate) async fn run(pastes: Pastes) -> Result<(), JobError> {
    let tombstones = pastes.settings().tombstones.as_secs_f64();
    loop {
        let rows = pastes
            .0
            .sessions
            .query(
                "select pastes.purge($1, make_interval(secs => $2), make_interval(secs => $3))",
                &[
                    (&PURGE_BATCH, Type::INT4),
                    (&tombstones, Type::FLOAT8),
                    (&KEEP_INTENTS.as_secs_f64(), Type::FLOAT8),
                ],
            )
            .await?;
        let purged: i64 = rows.first().map_or(0, |row| row.get(0));
        if purged < i64::from(PURGE_BATCH) {
            return Ok(());
        }
    }
}
