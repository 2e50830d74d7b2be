//! diesel-async 0.9: pass the connection that the closure of `transaction` gets.
//!
//! # Invariants
//! - Diesel passes on the server's message, but not its SQLSTATE. The functions of the engine give
//!   their own codes as the name of a constraint too, and the statements here are fixed: the server
//!   points at a place in them only if the schema lacks what they name.
//!
//! # What can go wrong
//! - Behind a pooler in transaction mode: diesel-async names every statement, its own and these, and
//!   another process may have given the session's statement the same name. Let the pooler track
//!   prepared statements (`max_prepared_statements` of PgBouncer), or connect to the server.

use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{Array, BigInt, Bool, Double, Integer, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use super::Driver;
use crate::error::{DriverError, EnqueueError, FinishError, Reply};
use crate::queue::enqueue::{Draft, ENQUEUE, EnqueueOn, Enqueued, TextValues, bind_values};
use crate::worker::Ctx;

impl EnqueueOn for &mut AsyncPgConnection {
    async fn enqueue_one(self, draft: Draft) -> Result<Enqueued, EnqueueError> {
        super::enqueue(self, draft, EnqueueError::Diesel).await
    }
}

impl Ctx {
    /// Like [`Ctx::complete_in`], for a transaction of diesel-async.
    pub async fn complete_in_diesel(
        &self,
        transaction: &mut AsyncPgConnection,
    ) -> Result<(), FinishError> {
        super::complete(self, transaction, FinishError::Diesel).await
    }
}

#[derive(diesel::QueryableByName)]
struct Stored {
    #[diesel(sql_type = BigInt)]
    job_id: i64,
    #[diesel(sql_type = Bool)]
    inserted: bool,
}

impl Driver for &mut AsyncPgConnection {
    type Error = diesel::result::Error;

    async fn enqueue_row(self, values: TextValues<'_>) -> Result<(i64, bool), Self::Error> {
        let query = bind_values!(diesel, diesel::sql_query(ENQUEUE), values);
        let stored: Stored = query.get_result(self).await?;
        Ok((stored.job_id, stored.inserted))
    }

    async fn returns_row(
        self,
        sql: &'static str,
        ids: [i64; 1],
        generation: i64,
        result: Option<String>,
    ) -> Result<bool, Self::Error> {
        let query = diesel::sql_query(sql);
        let query = query.bind::<Array<BigInt>, _>(&ids[..]).bind::<BigInt, _>(generation);
        Ok(match result {
            Some(result) => query.bind::<Text, _>(result).execute(self).await?,
            None => query.execute(self).await?,
        } > 0)
    }
}

impl DriverError for diesel::result::Error {
    fn reply(&self) -> Option<Reply<'_>> {
        let Self::DatabaseError(kind, said) = self else { return None };
        let code = match kind {
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
                return None;
            }
            DatabaseErrorKind::CheckViolation => "23514",
            _ if said.statement_position().is_some() => "42P01",
            _ => said.constraint_name().filter(|name| name.starts_with("LH")).unwrap_or_default(),
        };
        Some(Reply { code, message: said.message(), hint: said.hint() })
    }
}
