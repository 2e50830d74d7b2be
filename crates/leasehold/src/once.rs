//! Once-markers: durable marks that a step was done, so that a repeated attempt does not repeat its
//! effect.
//!
//! # Invariants
//! - A mark belongs to the job (or to a business key) and a step, never to an attempt.
//! - `started` is committed before the effect, `finished` with its result after it. A handler that gets
//!   `Unfinished` knows that an earlier attempt may have done it, and can ask the outside system before
//!   it repeats the effect.
//! - With [`Ctx::mark_in`] the mark is part of a transaction together with the effect: exactly once.

use serde::{Serialize, de::DeserializeOwned};
use tokio_postgres::types::{Json, Type};

use crate::error::describe;
use crate::worker::{Ctx, JobError};

/// What is known about a step.
// Not `non_exhaustive`: a handler must decide in each of the three states.
#[derive(Debug)]
pub enum Step<T> {
    /// No attempt began it before: do it, then call [`Started::finish`].
    First(Started),
    /// An earlier attempt began it and did not finish: find out from the outside system whether it took effect, then finish or
    /// forget it.
    Unfinished(Started),
    /// Done before, with this result.
    Finished(T),
}

/// A step that is under way.
#[derive(Debug)]
#[must_use = "an unfinished step is found by the next attempt"]
pub struct Started {
    scope: String,
    step: String,
}

/// Why a step has no result. The attempt fails with it through `?`, in every kind of handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The effect failed. Through `?` in a handler that returns [`crate::JobResult`], the error keeps what it
    /// decided, such as [`JobError::permanent`].
    #[error("{0}")]
    Effect(JobError),
    /// No connection was free in time.
    #[error(
        "no connection for the once-marker: {0}; fail the attempt, the next one reads the marker"
    )]
    NoConnection(#[from] deadpool_postgres::PoolError),
    /// The once-marker was not read or written.
    #[error(
        "the once-marker could not be read or written: {}; fail the attempt, the next one reads the marker",
        describe(.0)
    )]
    Database(#[from] tokio_postgres::Error),
    /// The result of the step is no JSON, or does not fit the type.
    #[error("the result of the step cannot be kept as JSON: {0}")]
    Result(#[from] serde_json::Error),
}

impl Ctx {
    /// Begins a step of this job.
    pub async fn once<T: DeserializeOwned>(&self, step: &str) -> Result<Step<T>, OnceError> {
        self.once_for(&format!("job:{}", self.id()), step).await
    }

    /// Begins a step of something that several jobs may share, such as `order:9182`.
    pub async fn once_for<T: DeserializeOwned>(
        &self,
        scope: &str,
        step: &str,
    ) -> Result<Step<T>, OnceError> {
        let client = self.engine().pool().get().await?;
        let rows = client
            .query_typed(
                "select state, result from leasehold.once_start($1, $2, $3, $4)",
                &[
                    (&scope, Type::TEXT),
                    (&step, Type::TEXT),
                    (&self.id().0, Type::INT8),
                    (&self.generation().0, Type::INT8),
                ],
            )
            .await?;
        let started = Started { scope: scope.to_owned(), step: step.to_owned() };
        let Some(row) = rows.first() else { return Ok(Step::Unfinished(started)) };
        Ok(match row.get(0) {
            "started" => Step::First(started),
            "finished" => {
                let Json(result): Json<T> = row.try_get(1)?;
                Step::Finished(result)
            }
            _ => Step::Unfinished(started),
        })
    }

    /// Runs `effect` unless an earlier attempt finished it; returns its result either way. If an
    /// earlier attempt began and did not finish, the effect runs again: pass [`Ctx::outside_key`] to
    /// systems that can recognize a repeat.
    pub async fn once_do<T, F, Fut>(&self, step: &str, effect: F) -> Result<T, OnceError>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, JobError>>,
    {
        match self.once::<T>(step).await? {
            Step::Finished(result) => Ok(result),
            Step::First(started) | Step::Unfinished(started) => {
                let result = effect().await.map_err(OnceError::Effect)?;
                started.finish(self, &result).await?;
                Ok(result)
            }
        }
    }

    /// Marks a step of this job in the caller's transaction. `false`: it is marked already, so skip the
    /// effect. Mark and effect commit together or not at all.
    pub async fn mark_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        step: &str,
    ) -> Result<bool, OnceError> {
        let scope = format!("job:{}", self.id());
        let rows = transaction
            .query_typed(
                "select state from leasehold.once_start($1, $2, $3, $4)",
                &[
                    (&scope, Type::TEXT),
                    (&step, Type::TEXT),
                    (&self.id().0, Type::INT8),
                    (&self.generation().0, Type::INT8),
                ],
            )
            .await?;
        let first = rows.first().is_some_and(|row| row.get::<_, &str>(0) == "started");
        if first {
            transaction
                .query_typed(
                    "select leasehold.once_finish($1, $2, 'null')",
                    &[(&scope, Type::TEXT), (&step, Type::TEXT)],
                )
                .await?;
        }
        Ok(first)
    }
}

impl Started {
    /// Stores the result. Later attempts get it instead of repeating the step.
    pub async fn finish<T: Serialize>(self, ctx: &Ctx, result: &T) -> Result<(), OnceError> {
        let result = Json(serde_json::to_value(result)?);
        let client = ctx.engine().pool().get().await?;
        client
            .query_typed(
                "select leasehold.once_finish($1, $2, $3)",
                &[(&self.scope, Type::TEXT), (&self.step, Type::TEXT), (&result, Type::JSONB)],
            )
            .await?;
        Ok(())
    }

    /// Removes the mark of an effect that is known not to have happened: the next attempt begins anew.
    pub async fn forget(self, ctx: &Ctx) -> Result<(), OnceError> {
        let client = ctx.engine().pool().get().await?;
        client
            .query_typed(
                "select leasehold.once_forget($1, $2)",
                &[(&self.scope, Type::TEXT), (&self.step, Type::TEXT)],
            )
            .await?;
        Ok(())
    }
}
