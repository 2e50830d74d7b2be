//! How many rows are due, once in a turn of the watchdog: for the sample, which must not run a predicate
//! that is not its own. In a session of its own, because a transaction has one to itself and handlers may
//! need all those of the pool.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::prepare::{Prepared, SweepError};
use crate::engine::Leasehold;
use crate::error::CallError;

/// So many are counted and no more.
const MOST: i64 = 10_000;
/// The server keeps its own limits; this is for one that does not answer at all.
const LIMIT: Duration = Duration::from_secs(10);
/// A count is worth a moment, and no plan that reads the whole table.
const LIMITS: &str = "set local lock_timeout = '1s'; set local statement_timeout = '2s'; \
     set local enable_seqscan = off; set local enable_bitmapscan = off";

/// Counts and writes it down.
pub(super) async fn note(prepared: &Prepared, engine: &Leasehold) {
    let counted = tokio::time::timeout(LIMIT, count(prepared, engine)).await;
    if let Err(error) = counted.unwrap_or_else(|_| Err(CallError::TimedOut(LIMIT).into())) {
        let sweep = prepared.sweep.name();
        tracing::debug!(sweep, %error, "due rows were not counted; the next turn tries again");
    }
}

async fn count(prepared: &Prepared, engine: &Leasehold) -> Result<(), SweepError> {
    let database = |error| SweepError::Call(CallError::Database(error));
    let connected = engine.database().connect().await;
    let mut session = connected.map_err(|error| CallError::Connect(Box::new(error)))?;
    let counting = session.transaction().await.map_err(database)?;
    counting.batch_execute(LIMITS).await.map_err(database)?;
    let params = [(&prepared.sweep.name as _, Type::TEXT), (&MOST as _, Type::INT8)];
    counting.query_typed(&prepared.statements.note_due, &params).await.map_err(database)?;
    counting.commit().await.map_err(database)
}
