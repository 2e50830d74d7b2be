//! Enqueue and complete in the caller's transaction, through drivers other than tokio-postgres: pass
//! `&mut *tx`. Each driver is a feature.
//!
//! # Invariants
//! - A driver only binds values and reads rows and errors. Statements, order of the values and meaning
//!   of the errors are the same for all of them, and are here.
//! - Arguments and moments are passed as text, and the statement casts them: the drivers have no common
//!   type for either, and text keeps them exact.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod sqlx;
#[cfg(feature = "sqlx-0_8")]
mod sqlx_0_8;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;

use crate::error::{DriverError, EnqueueError, FinishError, explain};
use crate::queue::enqueue::{Draft, Enqueued, TextValues, enqueued};
use crate::queue::finish::{COMPLETE_IN_TRANSACTION, COMPLETE_IN_TRANSACTION_WITH_RESULT};
use crate::worker::Ctx;

/// A connection of a driver, inside a transaction or not.
trait Driver: Sized + Send {
    type Error: DriverError + Send;

    /// Runs [`ENQUEUE`](crate::queue::enqueue::ENQUEUE) with the values that `bind_values` binds. Returns the id, and
    /// whether it is new.
    fn enqueue_row(
        self,
        values: TextValues<'_>,
    ) -> impl Future<Output = Result<(i64, bool), Self::Error>> + Send;

    /// Runs a statement with an array of bigint, a bigint and a text if there is one, and returns true if it returned a row.
    fn returns_row(
        self,
        sql: &'static str,
        ids: [i64; 1],
        generation: i64,
        result: Option<String>,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

async fn enqueue<D: Driver>(
    on: D,
    draft: Draft,
    other: fn(D::Error) -> EnqueueError,
) -> Result<Enqueued, EnqueueError> {
    match on.enqueue_row(TextValues::of(&draft)).await {
        Ok((id, inserted)) => Ok(enqueued(id, inserted)),
        Err(error) => Err(explain(error, other)),
    }
}

async fn complete<D: Driver>(
    ctx: &Ctx,
    on: D,
    other: fn(D::Error) -> FinishError,
) -> Result<(), FinishError> {
    let (ids, generation, result) = ([ctx.id().0], ctx.generation().0, ctx.0.result());
    let sql = match result {
        Some(_) => COMPLETE_IN_TRANSACTION_WITH_RESULT,
        None => COMPLETE_IN_TRANSACTION,
    };
    let done = on.returns_row(sql, ids, generation, result).await;
    ctx.note_completion(done.map_err(|error| {
        ctx.note_failure();
        other(error)
    })?)
}
