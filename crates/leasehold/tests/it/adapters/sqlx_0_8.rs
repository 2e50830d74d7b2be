//! sqlx 0.8: enqueue and complete in its transactions.

use std::sync::Arc;

use leasehold::{Ctx, JobError, State};
use sqlx08::{PgConnection, PgPool};

use super::drivers::{self, Driver};
use crate::support::Note;

impl Driver for PgPool {
    type Connection = PgConnection;

    async fn open(url: &str) -> Self {
        PgPool::connect(url).await.expect("a pool")
    }

    async fn transaction<R>(
        &mut self,
        commit: bool,
        work: impl AsyncFnOnce(&mut PgConnection) -> R,
    ) -> R {
        let mut tx = self.begin().await.expect("a transaction");
        let result = work(&mut tx).await;
        if commit {
            tx.commit().await.expect("committed");
        }
        result
    }

    async fn execute(connection: &mut PgConnection, sql: &str) -> bool {
        use sqlx08::Executor;
        connection.execute(sql).await.is_ok()
    }
}

#[tokio::test]
async fn transaction_carries_the_job_sqlx_0_8() {
    drivers::transaction_carries_the_job::<PgPool>().await;
}

#[tokio::test]
async fn b11_connections_that_share_a_session_do_not_collide_sqlx_0_8() {
    drivers::connections_that_share_a_session_do_not_collide::<PgPool>().await;
}

#[tokio::test]
async fn moment_is_stored_as_it_was_given_sqlx_0_8() {
    drivers::moment_is_stored_as_it_was_given::<PgPool>().await;
}

#[tokio::test]
async fn errors_are_those_of_every_driver_sqlx_0_8() {
    drivers::errors_are_those_of_every_driver::<PgPool>().await;
}

#[tokio::test]
async fn lost_reply_leaves_the_outcome_unknown_sqlx_0_8() {
    drivers::lost_reply_leaves_the_outcome_unknown::<PgPool>().await;
}

#[tokio::test]
async fn completed_job_ends_with_its_effect_sqlx_0_8() {
    async fn note(job: Note, ctx: Ctx, State(pool): State<Arc<PgPool>>) -> Result<(), JobError> {
        let mut tx = pool.begin().await?;
        let effect = sqlx08::query("insert into effects values ($1)").bind(job.n);
        effect.persistent(false).execute(&mut *tx).await?;
        if ctx.attempt() == 1 {
            return Err(JobError::retry("rolled back")); // with the transaction
        }
        ctx.complete_in_sqlx_0_8(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }
    drivers::completed_job_ends_with_its_effect(|engine, pool: Arc<PgPool>| {
        engine.worker_with(pool).handle(note)
    })
    .await;
}
