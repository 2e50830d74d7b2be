//! Batches: lists with progress, cancel, results.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::By;
use super::jobs::AnyJson;
use super::session::handle;
use crate::error::AdminError;
use crate::job::{JobId, UnknownWord};
use crate::queue::batch::BatchId;

handle! {
    /// Batches: [`Leasehold::batches`](crate::Leasehold::batches).
    Batches
}

/// The state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BatchState {
    /// Jobs may be added.
    Open,
    /// No more jobs are added; some have not ended.
    Sealed,
    /// All jobs have ended.
    Closed,
    /// Cancelled; running jobs may not have stopped yet.
    Cancelled,
}

impl BatchState {
    /// Every state, in the order in which a batch has them.
    pub const ALL: &'static [Self] = &[Self::Open, Self::Sealed, Self::Closed, Self::Cancelled];

    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Closed => "closed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for BatchState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for BatchState {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = || Self::ALL.iter().map(|state| state.as_str());
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| UnknownWord::new(word, "state of a batch", known()))
    }
}

pub(super) fn as_text<S: Serializer>(
    id: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

pub(super) fn as_text_or_null<S: Serializer>(
    id: &Option<impl std::fmt::Display>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

/// A batch with its progress.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BatchInfo {
    /// Text in JSON, like every id.
    #[serde(serialize_with = "as_text")]
    pub id: BatchId,
    /// What it is for.
    pub description: Option<String>,
    /// Where it is in its life.
    pub state: BatchState,
    /// Its jobs, ended or not.
    pub total: i64,
    /// Jobs that wait.
    pub waiting: i64,
    /// Jobs that a worker holds.
    pub running: i64,
    /// Jobs that completed.
    pub completed: i64,
    /// Jobs that were cancelled.
    pub cancelled: i64,
    /// Jobs that are dead.
    pub dead: i64,
    /// Jobs that were deleted.
    pub deleted: i64,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it was sealed.
    pub sealed_at: Option<Timestamp>,
    /// When its last job had ended.
    pub closed_at: Option<Timestamp>,
    /// When it was cancelled.
    pub cancelled_at: Option<Timestamp>,
    /// Who cancelled it.
    pub cancelled_by: Option<String>,
    /// Why it was cancelled.
    pub cancelled_why: Option<String>,
    /// The name of the follow-up if every job completes.
    pub on_success: Option<String>,
    /// The name of the follow-up in every other case.
    pub on_end: Option<String>,
    /// The name of the follow-up if a job is dead.
    pub on_death: Option<String>,
    /// The follow-up that was enqueued.
    #[serde(serialize_with = "as_text_or_null")]
    pub follow_up_job_id: Option<JobId>,
}

impl BatchInfo {
    pub(crate) fn read(row: &Row) -> Self {
        Self {
            id: BatchId(row.get("id")),
            description: row.get("description"),
            // The view has no other words; a newer release may.
            state: row.get::<_, &str>("state").parse().unwrap_or(BatchState::Open),
            total: row.get("total"),
            waiting: row.get("waiting"),
            running: row.get("running"),
            completed: row.get("completed"),
            cancelled: row.get("cancelled"),
            dead: row.get("dead"),
            deleted: row.get("deleted"),
            created_at: row.get("created_at"),
            sealed_at: row.get("sealed_at"),
            closed_at: row.get("closed_at"),
            cancelled_at: row.get("cancelled_at"),
            cancelled_by: row.get("cancelled_by"),
            cancelled_why: row.get("cancelled_why"),
            on_success: row.get("on_success"),
            on_end: row.get("on_end"),
            on_death: row.get("on_death"),
            follow_up_job_id: row.get::<_, Option<i64>>("follow_up_job_id").map(JobId),
        }
    }

    /// Returns how many of its jobs have ended.
    pub fn ended(&self) -> i64 {
        self.completed + self.cancelled + self.dead + self.deleted
    }
}

/// A part of a list of batches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchPage {
    /// The batches, newest first.
    pub batches: Vec<BatchInfo>,
    /// Where the next page continues. `None`: this is the last one.
    pub next: Option<BatchId>,
}

/// What a job kept.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JobResultValue {
    /// The job.
    #[serde(serialize_with = "as_text")]
    pub job_id: JobId,
    /// What its handler kept.
    pub result: serde_json::Value,
    /// When it completed.
    pub kept_at: Timestamp,
}

impl JobResultValue {
    pub(crate) fn read(row: &Row) -> Self {
        Self {
            job_id: JobId(row.get("job_id")),
            result: row.get::<_, AnyJson>("result").0,
            kept_at: row.get("kept_at"),
        }
    }
}

/// What a cancel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CancelledBatch {
    /// Waiting jobs that it cancelled.
    pub cancelled: i64,
    /// Running jobs that it asked to stop.
    pub requested: i64,
    /// Jobs that are left to housekeeping, because their rows are locked.
    pub more: bool,
}

/// Steps of one cancel, 1,000 jobs each. Housekeeping does the rest.
const STEPS: usize = 1000;

impl Batches<'_> {
    /// Returns a batch, or `None`.
    pub async fn get(&self, id: BatchId) -> Result<Option<BatchInfo>, AdminError> {
        let sql = "select b.* from leasehold.batches b where b.id = $1";
        let rows = self.session.query(sql, &[(&id.0, Type::INT8)]).await?;
        Ok(rows.first().map(BatchInfo::read))
    }

    /// Returns up to `limit` batches (1,000 at most), newest first: those in `state`, and older than
    /// `after`, the `next` of the page before.
    pub async fn list(
        &self,
        state: Option<BatchState>,
        after: Option<BatchId>,
        limit: u32,
    ) -> Result<BatchPage, AdminError> {
        let limit = limit.clamp(1, 1000);
        let sql = "select b.* from leasehold.batches b \
                    where ($1::text is null or b.state = $1) and b.id < $2 order by b.id desc limit $3";
        let (state, after) =
            (state.map(BatchState::as_str), after.map_or(i64::MAX, |after| after.0));
        let params = [
            (&state as _, Type::TEXT),
            (&after as _, Type::INT8),
            (&i64::from(limit) as _, Type::INT8),
        ];
        let rows = self.session.query(sql, &params).await?;
        let batches: Vec<BatchInfo> = rows.iter().map(BatchInfo::read).collect();
        let full = batches.len() == limit as usize;
        let next = batches.last().filter(|_| full).map(|last| last.id);
        Ok(BatchPage { batches, next })
    }

    /// Cancels a batch: waiting jobs at once, running ones are asked to stop. A call that fails in between
    /// may be repeated; housekeeping continues it too. A closed batch stays as it is.
    pub async fn cancel(&self, id: BatchId, by: &By) -> Result<CancelledBatch, AdminError> {
        let mut done = CancelledBatch::default();
        for _ in 0..STEPS {
            let rows = self
                .session
                .query(
                    "select cancelled, requested, more from leasehold.cancel_batch($1, $2, $3)",
                    &[(&id.0, Type::INT8), (&by.actor, Type::TEXT), (&by.reason, Type::TEXT)],
                )
                .await?;
            let Some(row) = rows.first() else { break };
            let (cancelled, requested): (i32, i32) = (row.get(0), row.get(1));
            done.cancelled += i64::from(cancelled);
            done.requested += i64::from(requested);
            done.more = row.get(2);
            if !done.more || cancelled + requested == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Returns results that jobs of a batch kept, in the order of their ids: those after the job `after`,
    /// up to `limit` (1,000 at most).
    pub async fn results(
        &self,
        id: BatchId,
        after: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<JobResultValue>, AdminError> {
        let after = after.map_or(0, |job| job.0);
        let limit = i32::try_from(limit.clamp(1, 1000)).unwrap_or(1000);
        let sql = "select * from leasehold.batch_results($1, $2, $3)";
        let params =
            [(&id.0 as _, Type::INT8), (&after as _, Type::INT8), (&limit as _, Type::INT4)];
        let rows = self.session.query(sql, &params).await?;
        Ok(rows.iter().map(JobResultValue::read).collect())
    }

    /// Returns the result that a completed job kept.
    pub async fn result(&self, job: JobId) -> Result<Option<serde_json::Value>, AdminError> {
        let rows =
            self.session.query("select leasehold.result($1)", &[(&job.0, Type::INT8)]).await?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<AnyJson>>(0)).map(|json| json.0))
    }
}
