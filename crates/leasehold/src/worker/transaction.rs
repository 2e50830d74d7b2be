//! `JobTx`: a transaction that the job's completion is part of.

use super::context::Ctx;
use super::handler::FromAttempt;
use super::outcome::{JobError, JobResult, Outcome};

/// A transaction for a handler. What it writes is committed together with the job's completion, or
/// not at all. Dropped without [`JobTx::complete`] it is rolled back.
///
/// ```no_run
/// # use leasehold::{Job, JobResult, worker::JobTx};
/// # #[derive(Job, serde::Serialize, serde::Deserialize)]
/// # #[job(name = "order.close")]
/// # struct CloseOrder { id: i64 }
/// async fn close_order(job: CloseOrder, tx: JobTx) -> JobResult {
///     tx.execute("update orders set state = 'closed' where id = $1", &[&job.id]).await?;
///     tx.complete().await
/// }
/// ```
pub struct JobTx {
    ctx: Ctx,
    connection: Option<deadpool_postgres::Client>,
}

impl JobTx {
    /// Completes the job and commits. After this returns `Ok`, both are durable.
    pub async fn complete(mut self) -> JobResult {
        // Fails in an aborted transaction, whose COMMIT the server would answer with a silent
        // ROLLBACK.
        self.ctx.complete_on(&*self).await?;
        self.batch_execute("commit").await?;
        // Only now may the pool have it again. Dropped before, by an error or because someone drops
        // this future, the connection is closed: it may be inside the transaction.
        drop(self.connection.take());
        Ok(Outcome::Done)
    }
}

impl std::ops::Deref for JobTx {
    type Target = tokio_postgres::Client;

    fn deref(&self) -> &Self::Target {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("`complete` takes the connection and `self` with it"),
        }
    }
}

impl Drop for JobTx {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            close(connection);
        }
    }
}

/// Closes a connection whose transaction is still open; the server then rolls back. It must not go
/// back to the pool: the next borrower would work inside our transaction.
fn close(connection: deadpool_postgres::Client) {
    drop(deadpool_postgres::Object::take(connection));
}

impl<S: Sync> FromAttempt<S> for JobTx {
    async fn from_attempt(ctx: &Ctx, _: &S) -> Result<Self, JobError> {
        let connection = ctx.engine().pool().get().await?;
        let transaction = Self { ctx: ctx.clone(), connection: Some(connection) };
        transaction.batch_execute("begin").await?;
        Ok(transaction)
    }
}
