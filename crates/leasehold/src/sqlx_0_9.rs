//! Enqueue and complete in a transaction of sqlx 0.9: pass `&mut *tx`.
//!
//! # What is true
//! - Statements have no name. sqlx names those it keeps, whatever the size of its cache, and behind
//!   a pooler in transaction mode the next client of the session finds the name taken.
//!
//! # What can go wrong
//! - Outside a transaction, behind such a pooler: sqlx sends a statement in two parts, and they may
//!   reach two sessions. Begin a transaction.

use sqlx::Row;

use crate::error::{EnqueueError, FinishError, refusal};
use crate::queue::enqueue::{Draft, ENQUEUE, EnqueueOn, Enqueued, answer};
use crate::worker::Ctx;

impl EnqueueOn for &mut sqlx::PgConnection {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        let at = draft.at.map(|at| at.to_string());
        // The text of a timestamp crosses drivers that know no common type for it.
        let sql = ENQUEUE.replace("$6", "$6::timestamptz");
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(&draft.name)
            .bind(sqlx::types::Json(&draft.kwargs))
            .bind(&draft.queue)
            .bind(draft.priority)
            .bind(draft.delay.map(|delay| delay.as_secs_f64()))
            .bind(at)
            .bind(draft.expires_in.map(|time| time.as_secs_f64()))
            .bind(&draft.tag)
            .bind(draft.max_attempts)
            .bind(&draft.key)
            .bind(draft.key_for.as_secs_f64())
            .bind(&draft.trace_context)
            .persistent(false)
            .fetch_one(self)
            .await
            .map_err(explain)?;
        Ok(answer(row.try_get(0).map_err(explain)?, row.try_get(1).map_err(explain)?))
    }
}

impl Ctx {
    /// [`Ctx::complete_in`] for a transaction of sqlx.
    pub async fn complete_in_sqlx(
        &self,
        transaction: &mut sqlx::PgConnection,
    ) -> Result<(), FinishError> {
        let ids = [self.id().0];
        let done = sqlx::query("select * from leasehold.complete_many($1, $2, false)")
            .bind(&ids[..])
            .bind(self.generation().0)
            .persistent(false)
            .fetch_optional(transaction)
            .await
            .map_err(|error| {
                self.note_failure();
                FinishError::Sqlx(error)
            })?;
        self.note_completion(done.is_some())
    }
}

fn explain(error: sqlx::Error) -> EnqueueError {
    let refused = error.as_database_error().and_then(|db| {
        let hint = db
            .try_downcast_ref::<sqlx::postgres::PgDatabaseError>()
            .and_then(|postgres| postgres.hint());
        db.code().and_then(|code| refusal(&code, db.message(), hint))
    });
    refused.unwrap_or(EnqueueError::Sqlx(error))
}
