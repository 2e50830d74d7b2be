//! Jobs in every state.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::By;
use super::filter::JobFilter;
use super::read::{self, Cursor, Page, Stored};
use super::session::{Session, handle};
use crate::error::AdminError;
use crate::job::{Cause, Generation, JobId, JobState};
use crate::queue::batch::BatchId;
use crate::queue::moment::Moment;

handle! {
    /// Jobs: [`Leasehold::jobs`](crate::Leasehold::jobs).
    Jobs
}

/// A job, as the view `leasehold.jobs` shows it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// Text in JSON: a reader that parses numbers as doubles would change a large one.
    #[serde(serialize_with = "id_as_text")]
    pub id: JobId,
    /// The queue of the job.
    pub queue: String,
    /// The name of the job, which selects its handler.
    pub name: String,
    /// Where the job is in its life.
    pub state: JobState,
    /// Why it died.
    pub cause: Option<Cause>,
    /// `None`: the role of this connection may not read kwargs, error texts, notes and trace contexts.
    pub kwargs: Option<serde_json::Value>,
    /// Lower numbers run first.
    pub priority: i32,
    /// It waits behind all jobs of its queue that are not deferred.
    pub deferred: bool,
    /// Which limit holds it back. `None`: none, or the job is completed or cancelled.
    pub limit_key: Option<String>,
    /// A label for operators; empty without one.
    pub tag: String,
    /// The key under which it was enqueued.
    pub idempotency_key: Option<String>,
    /// The batch that it belongs to; `None` for completed and cancelled jobs too.
    #[serde(serialize_with = "super::batches::as_text_or_null")]
    pub batch_id: Option<BatchId>,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Infinite times of the database are the first or the last that a calendar shows.
    pub scheduled_at: Timestamp,
    /// `None`: the job is completed or cancelled.
    pub expires_at: Option<Timestamp>,
    /// When the running attempt was claimed, or the last one of a finished job.
    pub claimed_at: Option<Timestamp>,
    /// When it was completed or cancelled, or died.
    pub finished_at: Option<Timestamp>,
    /// How many attempts were started and count.
    pub attempts: i32,
    /// `None`: the job is finished and had the queue's.
    pub max_attempts: Option<i32>,
    /// How many workers died in a row while they ran it.
    pub lost_count: Option<i32>,
    /// The worker that runs it, or ran it last.
    pub worker: Option<String>,
    /// 0: never claimed.
    #[serde(serialize_with = "generation_as_text")]
    pub lease_generation: Generation,
    /// When the lease of a running job ends unless it is renewed.
    pub lease_expires_at: Option<Timestamp>,
    /// An operator asked the handler to stop.
    pub cancel_requested: bool,
    /// The error of the last failed attempt.
    pub last_error: Option<String>,
    /// The last ten failures, oldest first.
    pub errors: Vec<PastFailure>,
    /// Why it was cancelled.
    pub note: Option<String>,
    /// The W3C trace context that the producer passed.
    pub trace_context: Option<String>,
}

/// One failed attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PastFailure {
    /// When the attempt failed.
    pub at: Timestamp,
    /// The number of the attempt, from 1.
    pub attempt: i32,
    /// The worker that ran it.
    pub worker: Option<String>,
    /// From the claim to the failure.
    pub ms: Option<f64>,
    /// The error text; `None` if the worker hides error texts.
    pub error: Option<String>,
}

fn id_as_text<S: Serializer>(id: &JobId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

fn generation_as_text<S: Serializer>(id: &Generation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Any `jsonb`. One of more levels than the parser takes (SQL can enqueue it) is its own text.
pub(super) struct AnyJson(pub(super) serde_json::Value);

impl<'a> FromSql<'a> for AnyJson {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        // The first byte is the version of the format.
        let text = raw.get(1..).unwrap_or_default();
        let parsed = serde_json::from_slice(text);
        Ok(Self(parsed.unwrap_or_else(|_| String::from_utf8_lossy(text).into_owned().into())))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

/// Reads a time that may be infinite in the database.
pub(super) fn finite(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<Moment>>(column).map(Moment::to_timestamp)
}

/// The columns that every reader may see.
pub(super) const OPEN: &str = "j.id, j.queue, j.name, j.state, j.cause, j.priority, j.tag, j.idempotency_key, \
    j.enqueued_at, j.scheduled_at, j.expires_at, j.claimed_at, j.finished_at, j.attempts, j.max_attempts, \
    j.lost_count, j.worker, j.lease_generation, j.lease_expires_at, j.cancel_requested, \
    j.deferred, j.limit_key, j.batch_id";
/// The columns that need `leasehold_operator`, and what replaces them for other roles.
pub(super) const HIDDEN: &str = "j.kwargs, j.last_error, j.errors, j.note, j.trace_context";
pub(super) const NOTHING: &str = "null::jsonb as kwargs, null::text as last_error, null::jsonb as errors, \
    null::text as note, null::text as trace_context";

impl JobInfo {
    fn read(row: &Row) -> Self {
        let time = |column| finite(row, column);
        let errors = row.get::<_, Option<AnyJson>>("errors").map(|json| json.0);
        Self {
            id: JobId(row.get("id")),
            queue: row.get("queue"),
            name: row.get("name"),
            // The view has no other words; a newer release may.
            state: row.get::<_, &str>("state").parse().unwrap_or(JobState::Scheduled),
            cause: row.get::<_, Option<&str>>("cause").and_then(|cause| cause.parse().ok()),
            kwargs: row.get::<_, Option<AnyJson>>("kwargs").map(|json| json.0),
            priority: row.get("priority"),
            batch_id: row.get::<_, Option<i64>>("batch_id").map(BatchId),
            deferred: row.get("deferred"),
            limit_key: row.get("limit_key"),
            tag: row.get("tag"),
            idempotency_key: row.get("idempotency_key"),
            enqueued_at: time("enqueued_at").unwrap_or_default(),
            scheduled_at: time("scheduled_at").unwrap_or_default(),
            expires_at: time("expires_at"),
            claimed_at: time("claimed_at"),
            finished_at: time("finished_at"),
            attempts: row.get("attempts"),
            max_attempts: row.get("max_attempts"),
            lost_count: row.get("lost_count"),
            worker: row.get("worker"),
            lease_generation: Generation(row.get("lease_generation")),
            lease_expires_at: time("lease_expires_at"),
            cancel_requested: row.get("cancel_requested"),
            last_error: row.get("last_error"),
            // A list that a plain INSERT spoiled counts as empty.
            errors: errors.and_then(|list| serde_json::from_value(list).ok()).unwrap_or_default(),
            note: row.get("note"),
            trace_context: row.get("trace_context"),
        }
    }
}

/// One page of jobs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobPage {
    /// Newest first: by the time when each was finished, claimed or else enqueued.
    pub jobs: Vec<JobInfo>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<Cursor>,
    /// The database's clock, which decides when jobs are due.
    pub now: Timestamp,
}

/// What a verb did to one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the job may be unchanged"]
#[non_exhaustive]
pub enum Change {
    /// The job was changed.
    Changed,
    /// The job runs, and its handler was asked to stop. Only a cancel returns this.
    Requested,
    /// The job is in this state, which the verb does not change.
    WrongState(JobState),
    /// The job stays dead: its idempotency key belongs to a newer job. Only a redrive returns this.
    KeyTaken,
    /// There is no such job, or its history was pruned.
    NotFound,
}

/// New values of a waiting job. `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobUpdate {
    priority: Option<i32>,
    scheduled_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    tag: Option<String>,
    max_attempts: Option<i32>,
}

impl JobUpdate {
    /// Changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lower runs first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The due time. The expiry moves along unless it is set too.
    pub fn run_at(mut self, due: Timestamp) -> Self {
        self.scheduled_at = Some(due);
        self
    }

    /// A job that has not started by then dies as expired.
    pub fn expires_at(mut self, expiry: Timestamp) -> Self {
        self.expires_at = Some(expiry);
        self
    }

    /// Where the job came from.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// How often the job may start before it is buried.
    pub fn max_attempts(mut self, most: i32) -> Self {
        self.max_attempts = Some(most);
        self
    }
}

impl Jobs<'_> {
    /// Returns why a job does not run, in one sentence; `None`: no job with this id waits or runs.
    pub async fn why_waiting(&self, id: JobId) -> Result<Option<String>, AdminError> {
        let sql = "select leasehold.why_waiting($1)";
        self.session.value(sql, &[(&id.0, Type::INT8)]).await
    }

    /// Returns a job in any state. `None`: there is none, or its history was pruned.
    pub async fn get(&self, id: JobId) -> Result<Option<JobInfo>, AdminError> {
        let (filter, page) = (JobFilter::any().ids([id]), Page::first(1));
        // A finished job is looked up in the history, which costs more: only if it is not elsewhere.
        for stored in [&[Stored::Job, Stored::Dead][..], &[Stored::History]] {
            let found = read::page(&self.session, &filter, stored, &page).await?;
            if let Some(row) = found.rows.first() {
                return Ok(Some(JobInfo::read(row)));
            }
        }
        Ok(None)
    }

    /// Returns matching jobs, newest first.
    pub async fn list(&self, filter: &JobFilter, page: &Page) -> Result<JobPage, AdminError> {
        let found = read::page(&self.session, filter, &Stored::ALL, page).await?;
        let jobs = found.rows.iter().map(JobInfo::read).collect();
        Ok(JobPage { jobs, next: found.next, now: found.now })
    }

    /// Returns the number of matching jobs, up to `most`: a full count may read everything.
    pub async fn count(&self, filter: &JobFilter, most: u32) -> Result<u64, AdminError> {
        read::count(&self.session, filter, most).await
    }

    /// Cancels a waiting job at once; asks the handler of a running one to stop.
    pub async fn cancel(&self, id: JobId, by: &By) -> Result<Change, AdminError> {
        only(self.cancel_many(&[id], by).await?)
    }

    /// Like [`cancel`](Self::cancel), in one statement. Returns the change of each job.
    pub async fn cancel_many(
        &self,
        ids: &[JobId],
        by: &By,
    ) -> Result<Vec<(JobId, Change)>, AdminError> {
        // In the order of the ids: two of these calls cannot deadlock.
        let sql = "select u.id, leasehold.cancel(u.id, $2, $3) \
                     from (select u.id from unnest($1) as u (id) order by u.id) u";
        let rows = self.call(sql, ids, by).await?;
        let mut done = BTreeMap::new();
        for row in &rows {
            match row.get(1) {
                "cancelled" => done.insert(JobId(row.get(0)), Change::Changed),
                "cancel_requested" => done.insert(JobId(row.get(0)), Change::Requested),
                _ => None,
            };
        }
        self.explain(ids, done, Change::WrongState).await
    }

    /// Redrives a dead job: it waits again, with fresh attempts.
    pub async fn redrive(&self, id: JobId, by: &By) -> Result<Change, AdminError> {
        only(self.redrive_many(&[id], by).await?)
    }

    /// Like [`redrive`](Self::redrive), in one statement. Returns the change of each job.
    pub async fn redrive_many(
        &self,
        ids: &[JobId],
        by: &By,
    ) -> Result<Vec<(JobId, Change)>, AdminError> {
        let rows = self.call("select * from leasehold.redrive($1, $2, $3)", ids, by).await?;
        self.explain(ids, changed(&rows), |state| match state {
            JobState::Dead => Change::KeyTaken,
            other => Change::WrongState(other),
        })
        .await
    }

    /// Makes a waiting job due now. A job that is due already is in the wrong state.
    pub async fn promote(&self, id: JobId, by: &By) -> Result<Change, AdminError> {
        only(self.promote_many(&[id], by).await?)
    }

    /// Like [`promote`](Self::promote), in one statement. Returns the change of each job.
    pub async fn promote_many(
        &self,
        ids: &[JobId],
        by: &By,
    ) -> Result<Vec<(JobId, Change)>, AdminError> {
        let rows = self.call("select * from leasehold.promote($1, $2, $3)", ids, by).await?;
        self.explain(ids, changed(&rows), Change::WrongState).await
    }

    /// Deletes a waiting or dead job without running it; the history does not record it. Its idempotency
    /// key stays taken for its own time. A finished job is pruned with its history.
    pub async fn delete(&self, id: JobId, by: &By) -> Result<Change, AdminError> {
        only(self.delete_many(&[id], by).await?)
    }

    /// Like [`delete`](Self::delete), in one statement. Returns the change of each job.
    pub async fn delete_many(
        &self,
        ids: &[JobId],
        by: &By,
    ) -> Result<Vec<(JobId, Change)>, AdminError> {
        let rows = self.call("select * from leasehold.delete_jobs($1, $2, $3)", ids, by).await?;
        self.explain(ids, changed(&rows), Change::WrongState).await
    }

    /// Changes a waiting job.
    pub async fn update(
        &self,
        id: JobId,
        update: &JobUpdate,
        by: &By,
    ) -> Result<Change, AdminError> {
        let sql = "select leasehold.update_job($1, $2, $3, $4, $5, $6, $7, $8)";
        let updated: bool = self
            .session
            .value(
                sql,
                &[
                    (&id.0, Type::INT8),
                    (&by.actor, Type::TEXT),
                    (&by.reason, Type::TEXT),
                    (&update.priority, Type::INT4),
                    (&update.scheduled_at, Type::TIMESTAMPTZ),
                    (&update.expires_at, Type::TIMESTAMPTZ),
                    (&update.tag, Type::TEXT),
                    (&update.max_attempts, Type::INT4),
                ],
            )
            .await?;
        if updated {
            return Ok(Change::Changed);
        }
        only(self.explain(&[id], BTreeMap::new(), Change::WrongState).await?)
    }

    /// Calls a function of the ids, the actor and the reason.
    async fn call(&self, sql: &str, ids: &[JobId], by: &By) -> Result<Vec<Row>, AdminError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let params = [
            (&ids as _, Type::INT8_ARRAY),
            (&by.actor as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        self.session.query(sql, &params).await
    }

    /// Adds the reason for each job that was not changed. It is read after the call: a job that a worker
    /// claims or finishes in between is reported in its new state.
    async fn explain(
        &self,
        ids: &[JobId],
        mut done: BTreeMap<JobId, Change>,
        why: impl Fn(JobState) -> Change,
    ) -> Result<Vec<(JobId, Change)>, AdminError> {
        let unchanged: BTreeSet<JobId> =
            ids.iter().copied().filter(|id| !done.contains_key(id)).collect();
        for (id, state) in states(&self.session, unchanged).await? {
            done.insert(id, why(state));
        }
        Ok(ids.iter().map(|id| (*id, done.get(id).copied().unwrap_or(Change::NotFound))).collect())
    }
}

fn changed(rows: &[Row]) -> BTreeMap<JobId, Change> {
    rows.iter().map(|row| (JobId(row.get(0)), Change::Changed)).collect()
}

fn only(changes: Vec<(JobId, Change)>) -> Result<Change, AdminError> {
    Ok(changes.first().map_or(Change::NotFound, |(_, change)| *change))
}

/// Returns the states of jobs: of those that wait, run or are dead first, of finished ones only if others
/// are missing.
async fn states(
    session: &Session<'_>,
    mut ids: BTreeSet<JobId>,
) -> Result<Vec<(JobId, JobState)>, AdminError> {
    let mut found = Vec::new();
    for (stored, finished) in [
        ("stored_in in ('job', 'dead_job')", ""),
        (
            "stored_in = 'history'",
            "and finished_at = any (array(select leasehold_internal.finished_at(u.id) from unnest($1) as u (id)))",
        ),
    ] {
        if ids.is_empty() {
            break;
        }
        let wanted: Vec<i64> = ids.iter().map(|id| id.0).collect();
        let sql = format!(
            "select id, state from leasehold.jobs where {stored} and id = any ($1) {finished}"
        );
        for row in session.query(&sql, &[(&wanted, Type::INT8_ARRAY)]).await? {
            let id = JobId(row.get(0));
            ids.remove(&id);
            if let Ok(state) = row.get::<_, &str>(1).parse() {
                found.push((id, state));
            }
        }
    }
    Ok(found)
}
