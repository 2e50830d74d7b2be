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

use std::time::Duration;

use crate::error::{DriverError, EnqueueError, FinishError, explain};
use crate::queue::enqueue::{Draft, Enqueued, enqueued};
use crate::queue::finish::{COMPLETE_IN_TRANSACTION, COMPLETE_IN_TRANSACTION_WITH_RESULT};
use crate::worker::Ctx;

/// A connection of a driver, inside a transaction or not.
trait Driver: Sized + Send {
    type Error: DriverError + Send;

    /// Runs [`ENQUEUE`](crate::queue::enqueue::ENQUEUE) and returns the id and whether it is new.
    fn enqueue_row(
        self,
        values: Values<'_>,
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

/// The values of a draft in the order of the statement's parameters, in types that every driver binds.
struct Values<'a> {
    name: &'a str,
    kwargs: &'a str,
    queue: &'a str,
    priority: i32,
    run_after: Option<f64>,
    run_at: Option<String>,
    expire_after: Option<f64>,
    tag: &'a str,
    max_attempts: Option<i32>,
    key: Option<&'a str>,
    key_ttl: f64,
    trace_context: Option<&'a str>,
    limit_key: Option<&'a str>,
    batch: Option<i64>,
    follow_ups: [Option<String>; 3],
}

impl<'a> Values<'a> {
    fn of(draft: &'a Draft) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        Self {
            name: &draft.name,
            kwargs: draft.kwargs.get(),
            queue: &draft.queue,
            priority: draft.priority,
            run_after: seconds(draft.run_after),
            run_at: draft.run_at.map(|at| at.to_string()),
            expire_after: seconds(draft.expire_after),
            tag: &draft.tag,
            max_attempts: draft.max_attempts,
            key: draft.key.as_deref(),
            key_ttl: draft.key_ttl.as_secs_f64(),
            trace_context: draft.trace_context.as_deref(),
            limit_key: draft.limit_key.as_deref(),
            batch: draft.batch,
            follow_ups: draft.follow_ups.texts(),
        }
    }
}

async fn enqueue<D: Driver>(
    on: D,
    draft: Draft,
    other: fn(D::Error) -> EnqueueError,
) -> Result<Enqueued, EnqueueError> {
    match on.enqueue_row(Values::of(&draft)).await {
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
