//! What a handler sees of batches: the one it follows, its results, and its own.

use serde::Serialize;
use tokio_postgres::types::Type;

use super::context::Ctx;
use super::outcome::JobError;
use crate::admin::{BatchInfo, JobResultValue};
use crate::error::{AdminError, FinishError};
use crate::job::JobId;
use crate::queue::batch::{Batch, BatchId};
use crate::queue::check::check_result;

impl Ctx {
    /// Keeps a value of at most 64 KiB of JSON, recorded with the completion of the job: if the attempt ends in
    /// another way, nothing is kept. A second call replaces the value of the first.
    ///
    /// The follow-up reads it by [`Ctx::batch_results`], operators by `leasehold jobs show`.
    pub fn keep_result<T: Serialize>(&self, value: &T) -> Result<(), JobError> {
        let text = serde_json::to_string(value).map_err(JobError::permanent)?;
        check_result(&text).map_err(JobError::permanent)?;
        self.0.keep_result(text);
        Ok(())
    }

    /// Returns the batch whose follow-up this job is, with the counts of its jobs. `None`: it is none.
    pub async fn batch(&self) -> Result<Option<BatchInfo>, AdminError> {
        let sql = "select b.* from leasehold_internal.read_batch(leasehold.followed_batch($1)) b";
        let rows = self.engine().query(sql, &[(&self.id().0, Type::INT8)]).await?;
        Ok(rows.first().map(BatchInfo::read))
    }

    /// Returns results of the jobs that this one follows, in the order of their ids: those after the job
    /// `after`, up to `limit` (1,000 at most). In a chain that is the one of the job before.
    pub async fn batch_results(
        &self,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobResultValue>, AdminError> {
        let after = after.map_or(0, |job| job.0);
        let limit = i32::try_from(limit.clamp(1, 1000)).unwrap_or(1000);
        let sql = "select * from leasehold.batch_results(leasehold.followed_batch($1), $2, $3)";
        let params =
            [(&self.id().0 as _, Type::INT8), (&after as _, Type::INT8), (&limit as _, Type::INT4)];
        let rows = self.engine().query(sql, &params).await?;
        Ok(rows.iter().map(JobResultValue::read).collect())
    }

    /// Lets the rest of this transaction add jobs to the batch of this job, sealed or not, and returns the
    /// batch. It does not close before the transaction ends. [`FinishError::LeaseLost`]: another worker owns
    /// the job, so roll back.
    pub async fn extend_batch(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
    ) -> Result<Batch, FinishError> {
        self.check_lease_in(transaction).await?;
        let rows = transaction
            .query_typed(
                "select leasehold.extend_batch($1, $2)",
                &[(&self.id().0, Type::INT8), (&self.generation().0, Type::INT8)],
            )
            .await
            .map_err(FinishError::Database)?;
        let id = rows.first().map_or(0, |row| row.get(0));
        Ok(Batch::of(BatchId(id)))
    }
}
