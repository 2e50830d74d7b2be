//! diesel-async: enqueue and complete in its transactions.

use std::sync::Arc;

use diesel::sql_types::BigInt;
use diesel_async::{
    AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection, TransactionManager,
};
use leasehold::{Ctx, JobError, State};
use tokio::sync::Mutex;

use super::drivers::{self, Driver};
use crate::support::Note;

type Shared = Mutex<AsyncPgConnection>;

impl Driver for Shared {
    type Connection = AsyncPgConnection;

    async fn open(url: &str) -> Self {
        Mutex::new(AsyncPgConnection::establish(url).await.expect("a connection"))
    }

    async fn transaction<R>(
        &mut self,
        commit: bool,
        work: impl AsyncFnOnce(&mut AsyncPgConnection) -> R,
    ) -> R {
        type Manager = <AsyncPgConnection as AsyncConnection>::TransactionManager;
        let connection = self.get_mut();
        Manager::begin_transaction(connection).await.expect("a transaction");
        let result = work(connection).await;
        if commit {
            Manager::commit_transaction(connection).await.expect("committed");
        } else {
            // Fails if the session is gone, and so is the transaction.
            let _ = Manager::rollback_transaction(connection).await;
        }
        result
    }

    async fn execute(connection: &mut AsyncPgConnection, sql: &str) -> bool {
        connection.batch_execute(sql).await.is_ok()
    }
}

#[tokio::test]
async fn transaction_carries_the_job_diesel_async() {
    drivers::transaction_carries_the_job::<Shared>().await;
}

#[tokio::test]
async fn b11_connections_that_share_a_session_do_not_collide_diesel_async() {
    drivers::connections_that_share_a_session_do_not_collide::<Shared>().await;
}

#[tokio::test]
async fn moment_is_stored_as_it_was_given_diesel_async() {
    drivers::moment_is_stored_as_it_was_given::<Shared>().await;
}

#[tokio::test]
async fn errors_are_those_of_every_driver_diesel_async() {
    drivers::errors_are_those_of_every_driver::<Shared>().await;
}

#[tokio::test]
async fn lost_reply_leaves_the_outcome_unknown_diesel_async() {
    drivers::lost_reply_leaves_the_outcome_unknown::<Shared>().await;
}

#[tokio::test]
async fn completed_job_ends_with_its_effect_diesel_async() {
    async fn note(job: Note, ctx: Ctx, State(shared): State<Arc<Shared>>) -> Result<(), JobError> {
        let mut connection = shared.lock().await;
        let done = connection.transaction(async |tx| -> anyhow::Result<()> {
            let effect = diesel::sql_query("insert into effects values ($1)");
            effect.bind::<BigInt, _>(job.n).execute(tx).await?;
            anyhow::ensure!(ctx.attempt() > 1, "rolled back");
            Ok(ctx.complete_in_diesel(tx).await?)
        });
        Ok(done.await?)
    }
    drivers::completed_job_ends_with_its_effect(|engine, shared: Arc<Shared>| {
        engine.worker_with(shared).handle(note)
    })
    .await;
}
