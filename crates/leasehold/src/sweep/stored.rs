//! Sweeps by name, for people who have the database and not the program.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::declare::{States, Sweep};
use super::prepare::{Prepared, SweepError};
use super::watchdog::{WatchReport, watch};
use crate::engine::Leasehold;

/// One run of the watchdog of a sweep that some worker has declared. None: there is no such sweep.
pub async fn watch_by_name(
    engine: &Leasehold,
    name: &str,
) -> Result<Option<WatchReport>, SweepError> {
    let link = crate::link::Link::new(engine.database().clone(), super::prepare::CALL_LIMIT);
    let sql = "select table_name, key_column, order_column, status_column, waiting, claimed, done, \
                      claimed_at_column, claim_column, watchdog_most, \
                      extract(epoch from watchdog_after)::float8 \
                 from leasehold.sweep where name = $1";
    let rows = link.query(sql, &[(&name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text = |at: usize| row.get::<_, String>(at);
    let most = u32::try_from(row.get::<_, i64>(9)).unwrap_or(u32::MAX);
    let sweep = Sweep::new(name, text(0))
        .key(text(1))
        .order_by(text(2))
        .status(text(3), States::new(text(4), text(5), text(6)))
        .claimed_at(text(7))
        .claim(text(8))
        .watchdog_most(most)
        .watchdog_after(Duration::try_from_secs_f64(row.get(10)).unwrap_or(Duration::MAX))
        // What is due is in the program; the watchdog does not ask.
        .due("false");
    let prepared = Prepared::looked_at(&sweep, &link).await?;
    watch(&prepared, &prepared.link(engine)).await.map(Some)
}
