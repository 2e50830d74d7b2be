//! How many rows are due, once in a turn of the watchdog: for the sample, which must not run a predicate
//! that is not its own.

use tokio_postgres::types::Type;

use super::prepare::{Prepared, SweepError};
use crate::engine::Leasehold;
use crate::error::CallError;

/// So many are counted and no more.
const MOST: i64 = 10_000;
/// A count is worth a moment, and no plan that reads the whole table.
const LIMITS: &str = "set local lock_timeout = '1s'; set local statement_timeout = '2s'; \
     set local enable_seqscan = off; set local enable_bitmapscan = off";

/// Counts and writes it down.
pub(super) async fn note(prepared: &Prepared, engine: &Leasehold) {
    if let Err(error) = count(prepared, engine).await {
        let sweep = prepared.sweep.name();
        tracing::debug!(sweep, %error, "due rows were not counted; the next turn tries again");
    }
}

async fn count(prepared: &Prepared, engine: &Leasehold) -> Result<(), SweepError> {
    let database = |error| SweepError::Call(CallError::Database(error));
    let client = engine.pool().get().await;
    let mut client = client.map_err(|_| CallError::TimedOut(crate::database::CONNECT_LIMIT))?;
    let counting = client.transaction().await.map_err(database)?;
    counting.batch_execute(LIMITS).await.map_err(database)?;
    let params = [(&prepared.sweep.name as _, Type::TEXT), (&MOST as _, Type::INT8)];
    counting.query_typed(&prepared.statements.note_due, &params).await.map_err(database)?;
    counting.commit().await.map_err(database)
}
