//! Counts the rows that are due, claimed and stuck, once per turn of the watchdog. The sample cannot
//! count them: it runs with the rights of the schema's owner and must not read a table, or run a
//! predicate, of another role. The counts use their own session, because a transaction needs one to
//! itself and handlers may need all those of the pool.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::prepare::{Prepared, SweepError};
use crate::Leasehold;
use crate::error::CallError;
use crate::link::Param;

/// The most rows that are counted.
const MOST: i64 = 10_000;
/// The server has its own timeouts; this is for a server that does not respond at all.
const LIMIT: Duration = Duration::from_secs(10);
/// A count may take two seconds, and must not use a plan that reads the whole table.
const LIMITS: &str = "set local lock_timeout = '1s'; set local statement_timeout = '2s'; \
     set local enable_seqscan = off; set local enable_bitmapscan = off";

/// Counts rows and stores the counts.
pub(super) async fn note(prepared: &Prepared, engine: &Leasehold) -> Result<(), SweepError> {
    let counted = tokio::time::timeout(LIMIT, count(prepared, engine)).await;
    counted.unwrap_or_else(|_| Err(CallError::TimedOut(LIMIT).into()))
}

async fn count(prepared: &Prepared, engine: &Leasehold) -> Result<(), SweepError> {
    let connected = engine.database().connect().await;
    let mut session = connected.map_err(|error| CallError::Connect(Box::new(error)))?;
    let sweep = &prepared.sweep;
    let (name, most) = ((&sweep.name as _, Type::TEXT), (&MOST as _, Type::INT8));
    // The watchdog may fail three turns before a row counts as stuck.
    let grace = sweep.watchdog_every.saturating_mul(3).saturating_add(Duration::from_secs(60));
    let late = sweep.watchdog_after.saturating_add(grace).as_secs_f64();
    let claimed = [name.clone(), most.clone(), (&late as _, Type::FLOAT8)];
    // One transaction each: a count that takes too long loses only its own number.
    let counted = alone(&mut session, &prepared.statements.note_claimed, &claimed).await;
    alone(&mut session, &prepared.statements.note_due, &[name, most]).await?;
    counted
}

async fn alone(
    session: &mut tokio_postgres::Client,
    sql: &str,
    params: &[Param<'_>],
) -> Result<(), SweepError> {
    let database = |error| SweepError::Call(CallError::Database(error));
    let counting = session.transaction().await.map_err(database)?;
    counting.batch_execute(LIMITS).await.map_err(database)?;
    counting.query_typed(sql, params).await.map_err(database)?;
    counting.commit().await.map_err(database)
}
