//! Batches: groups of jobs with a follow-up, which is enqueued once when all of them have ended.
//!
//! ```no_run
//! # use leasehold::{BatchDraft, Draft, Enqueue, Job, Leasehold};
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "page.render")]
//! # struct Render { page: i64 }
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "book.bind")]
//! # struct Bind { book: i64 }
//! # async fn render(leasehold: &Leasehold) -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = leasehold.pool().get().await?;
//! let tx = client.transaction().await?;
//! let batch = BatchDraft::new().then(Bind { book: 7 }.draft()?).open(&tx).await?;
//! batch.add_many(&tx, (1..=300).map(|page| Render { page })).await?;
//! batch.seal(&tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};

use super::check::{check_json, check_text, kwargs_of};
use super::enqueue::{Draft, EnqueueOn, Enqueued};
use super::follow_up::FollowUps;
use crate::engine::Leasehold;
use crate::error::{AdminError, EnqueueError};
use crate::job::Job;
use crate::link::Param;

/// The number of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub i64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i64> for BatchId {
    fn from(id: i64) -> Self {
        Self(id)
    }
}

/// A text that is not the id of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a batch is a whole number, such as 17; list batches to find it")]
pub struct ParseBatchIdError;

impl FromStr for BatchId {
    type Err = ParseBatchIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| ParseBatchIdError)
    }
}

/// A batch about to be opened. At most one follow-up is enqueued.
#[must_use = "a draft does nothing until it is opened"]
#[derive(Clone, Debug, Default)]
pub struct BatchDraft {
    description: Option<String>,
    follow_ups: FollowUps,
}

impl BatchDraft {
    /// Drafts a batch without a follow-up.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the batch is for, for operators: 1,000 bytes at most.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Enqueues `next` when every job has completed. Another `then` adds a job behind that one.
    pub fn then(mut self, next: Draft) -> Self {
        self.follow_ups.then(next);
        self
    }

    /// Enqueues `next` when all jobs have ended and at least one is dead.
    pub fn on_death(mut self, next: Draft) -> Self {
        self.follow_ups.on_death = Some(Box::new(next));
        self
    }

    /// Enqueues `next` when all jobs have ended, however, unless [`BatchDraft::then`] or
    /// [`BatchDraft::on_death`] has one for that end.
    pub fn on_end(mut self, next: Draft) -> Self {
        self.follow_ups.on_end = Some(Box::new(next));
        self
    }

    /// Opens the batch through a connection, a transaction, or [`Leasehold`] itself. It closes after
    /// [`Batch::seal`].
    pub async fn open(self, on: impl BatchOn) -> Result<Batch, EnqueueError> {
        if let Some(text) = &self.description {
            check_text("description", text, 0..=1000)?;
        }
        self.follow_ups.check()?;
        let [success, end, death] = self.follow_ups.texts();
        let params = [
            (&self.description as _, Type::TEXT),
            (&success as _, Type::TEXT),
            (&end as _, Type::TEXT),
            (&death as _, Type::TEXT),
        ];
        let sql = "select leasehold.open_batch($1, $2::jsonb, $3::jsonb, $4::jsonb)";
        let rows = on.batch_rows(sql, &params).await?;
        let id = rows.first().map(|row| row.get(0)).ok_or_else(no_row)?;
        Ok(Batch { id: BatchId(id) })
    }
}

fn no_row() -> EnqueueError {
    EnqueueError::Refused("the database returned no row; run leasehold doctor".to_owned())
}

/// Jobs per statement.
const CHUNK: usize = 1000;

/// An open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    id: BatchId,
}

impl Batch {
    /// Names a batch that was opened before.
    pub fn of(id: BatchId) -> Self {
        Self { id }
    }

    /// Returns the id of the batch.
    pub fn id(self) -> BatchId {
        self.id
    }

    /// Enqueues a job that belongs to the batch. A duplicate by its key stays where it is.
    pub async fn add(self, on: impl EnqueueOn, draft: Draft) -> Result<Enqueued, EnqueueError> {
        draft.in_batch(self.id).enqueue(on).await
    }

    /// Enqueues many jobs of one name that belong to the batch: at most 1,000 per statement, and one limit key. Returns
    /// how many.
    pub async fn add_many<J: Job>(
        self,
        on: &tokio_postgres::Transaction<'_>,
        jobs: impl IntoIterator<Item = J>,
    ) -> Result<u64, EnqueueError> {
        let policy = J::policy();
        let mut stored = 0;
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            let mut by_key: BTreeMap<Option<String>, Vec<Box<RawValue>>> = BTreeMap::new();
            for job in jobs.by_ref().take(CHUNK) {
                let text = kwargs_of(&job)?;
                check_json(text.get())?;
                by_key.entry(job.limit_key()).or_default().push(text);
            }
            for (limit_key, texts) in by_key {
                let kwargs: Vec<Json<&RawValue>> = texts.iter().map(|text| Json(&**text)).collect();
                let names = vec![J::NAME; kwargs.len()];
                let params: [Param<'_>; 7] = [
                    (&names, Type::TEXT_ARRAY),
                    (&kwargs, Type::JSONB_ARRAY),
                    (&J::QUEUE, Type::TEXT),
                    (&policy.priority, Type::INT4),
                    (&policy.max_attempts, Type::INT4),
                    (&self.id.0, Type::INT8),
                    (&limit_key, Type::TEXT),
                ];
                let sql = "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, queue => $3, \
                           priority => $4, max_attempts => $5, batch => $6, limit_key => $7)";
                let rows = on.query_typed(sql, &params).await?;
                let count: i64 = rows.first().map_or(0, |row| row.get(0));
                stored += u64::try_from(count).unwrap_or(0);
            }
        }
        Ok(stored)
    }

    /// Seals the batch: no more jobs are added, and it closes when all of them have ended. Waits for
    /// transactions that add to it. Returns false if it was sealed before.
    pub async fn seal(self, on: impl BatchOn) -> Result<bool, EnqueueError> {
        let params = [(&self.id.0 as _, Type::INT8)];
        let rows = on.batch_rows("select leasehold.seal_batch($1)", &params).await?;
        rows.first().map(|row| row.get(0)).ok_or_else(no_row)
    }
}

/// Where a batch is opened and sealed: tokio-postgres, deadpool-postgres, or the handle. Other drivers call
/// `leasehold.open_batch` and `leasehold.seal_batch`; jobs are added through every driver.
pub trait BatchOn: Sized {
    /// Runs one statement.
    #[doc(hidden)]
    fn batch_rows(
        self,
        sql: &str,
        params: &[Param<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, EnqueueError>> + Send;
}

macro_rules! batch_on {
    ($($of:ty),*) => {$(
        impl BatchOn for $of {
            async fn batch_rows(
                self,
                sql: &str,
                params: &[Param<'_>],
            ) -> Result<Vec<Row>, EnqueueError> {
                Ok(self.query_typed(sql, params).await?)
            }
        }
    )*};
}
batch_on!(
    &tokio_postgres::Client,
    &tokio_postgres::Transaction<'_>,
    &deadpool_postgres::Client,
    &deadpool_postgres::Transaction<'_>
);

impl BatchOn for &Leasehold {
    async fn batch_rows(self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, EnqueueError> {
        self.query(sql, params).await.map_err(|error| match error {
            AdminError::Database(error) => EnqueueError::Database(error),
            AdminError::NoConnection(text) => EnqueueError::NoConnection(text),
            AdminError::NoSchema(text) => EnqueueError::NoSchema(text),
            AdminError::TimedOut(limit) => EnqueueError::TimedOut(limit),
            other => EnqueueError::Refused(other.to_string()),
        })
    }
}
