//! Queues: counts, settings, pause and resume.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::jobs::finite;
use super::session::handle;
use super::{By, Toggle, seconds};
use crate::error::AdminError;

handle! {
    /// Queues: [`Leasehold::queues`](crate::Leasehold::queues).
    Queues
}

/// A queue with its counts.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// The name of the queue.
    pub queue: String,
    /// Jobs that are not due yet and never failed.
    pub scheduled: i64,
    /// Jobs that are due.
    pub ready: i64,
    /// Jobs that a worker holds.
    pub running: i64,
    /// Jobs that failed and are due later.
    pub retrying: i64,
    /// Dead for another cause than `expired`.
    pub dead: i64,
    /// Dead because they had not started before `expires_at`.
    pub dead_expired: i64,
    /// Live workers that work this queue.
    pub workers: i64,
    /// The due time of the first ready job.
    pub oldest_ready_at: Option<Timestamp>,
    /// When it was paused; `None`: it is not.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why it was paused.
    pub paused_why: Option<String>,
    /// `None`: no worker has claimed from it yet, and the defaults apply.
    #[serde(flatten)]
    pub settings: Option<QueueSettings>,
}

/// The settings of a queue.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct QueueSettings {
    /// How long a claim lasts without renewal.
    #[serde(rename = "lease_seconds", serialize_with = "seconds::show")]
    pub lease: Duration,
    /// How often a job may start before it is dead, unless the job sets it.
    pub max_attempts: i32,
    /// How many workers may die in a row under a job before it is dead.
    pub max_lost: i32,
    /// The most jobs that one claim takes.
    pub claim_size: i32,
    /// An attempt that runs longer fails.
    #[serde(rename = "run_limit_seconds", serialize_with = "seconds::show")]
    pub run_limit: Duration,
    /// The wait after the first failure; it doubles with each.
    #[serde(rename = "backoff_base_seconds", serialize_with = "seconds::show")]
    pub backoff_base: Duration,
    /// The longest wait between attempts.
    #[serde(rename = "backoff_cap_seconds", serialize_with = "seconds::show")]
    pub backoff_cap: Duration,
    /// Whether finished jobs are kept in history.
    pub keep_history: bool,
    /// The name that operators see.
    pub display_name: Option<String>,
    /// The team or person that owns the queue.
    pub owner: Option<String>,
}

impl QueueSettings {
    fn read(row: &Row) -> Self {
        let time = |column| seconds::read(row.get(column));
        Self {
            lease: time("lease_seconds"),
            max_attempts: row.get("max_attempts"),
            max_lost: row.get("max_lost"),
            claim_size: row.get("claim_size"),
            run_limit: time("run_limit_seconds"),
            backoff_base: time("backoff_base_seconds"),
            backoff_cap: time("backoff_cap_seconds"),
            keep_history: row.get("keep_history"),
            display_name: row.get("display_name"),
            owner: row.get("owner"),
        }
    }
}

/// New settings of a queue. `None` leaves a setting as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    lease: Option<Duration>,
    max_attempts: Option<i32>,
    max_lost: Option<i32>,
    claim_size: Option<i32>,
    run_limit: Option<Duration>,
    backoff: Option<(Duration, Duration)>,
    keep_history: Option<bool>,
    display_name: Option<String>,
    owner: Option<String>,
}

impl QueueChange {
    /// Changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a claim lasts without renewal, 1 s at least. Running jobs keep the lease they have.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How often a job may start before it is dead, unless the job sets it.
    pub fn max_attempts(mut self, most: i32) -> Self {
        self.max_attempts = Some(most);
        self
    }

    /// How many workers may die in a row under a job before it is dead.
    pub fn max_lost(mut self, most: i32) -> Self {
        self.max_lost = Some(most);
        self
    }

    /// The most jobs that one claim takes. Workers apply it after a restart.
    pub fn claim_size(mut self, most: i32) -> Self {
        self.claim_size = Some(most);
        self
    }

    /// An attempt that runs longer fails.
    pub fn run_limit(mut self, limit: Duration) -> Self {
        self.run_limit = Some(limit);
        self
    }

    /// The wait after a failure, doubling from `base` up to `cap`.
    pub fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = Some((base, cap));
        self
    }

    /// Whether finished jobs are kept in history.
    pub fn keep_history(mut self, keep: bool) -> Self {
        self.keep_history = Some(keep);
        self
    }

    /// The name that operators see; an empty text removes it.
    pub fn display_name(mut self, name: impl Into<String>) -> Self {
        self.display_name = Some(name.into());
        self
    }

    /// The owner; an empty text removes it.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }
}

const SETTINGS: &str = "extract(epoch from q.lease)::float8 as lease_seconds, q.max_attempts, q.max_lost, \
    q.claim_size, extract(epoch from q.run_limit)::float8 as run_limit_seconds, \
    extract(epoch from q.backoff_base)::float8 as backoff_base_seconds, \
    extract(epoch from q.backoff_cap)::float8 as backoff_cap_seconds, q.keep_history, \
    q.display_name, q.owner";

/// The most queues of a list.
const MOST: usize = 1000;

impl Queues<'_> {
    /// Returns queues with their counts, by name, up to 1,000. It counts every waiting job.
    pub async fn list(&self) -> Result<Vec<QueueInfo>, AdminError> {
        self.read(None).await
    }

    /// Returns a queue. `None`: it has no settings, no job and no dead job.
    pub async fn get(&self, queue: &str) -> Result<Option<QueueInfo>, AdminError> {
        Ok(self.read(Some(queue)).await?.into_iter().next())
    }

    async fn read(&self, queue: Option<&str>) -> Result<Vec<QueueInfo>, AdminError> {
        let only = if queue.is_some() { "s.queue = $1" } else { "$1::text is null" };
        let sql = format!(
            "select s.*, q.name is not null as has_settings, {SETTINGS} \
               from leasehold.queues s left join leasehold_internal.queue q on q.name = s.queue \
              where {only} order by s.queue limit {MOST}"
        );
        let rows = self.session.query(&sql, &[(&queue, Type::TEXT)]).await?;
        Ok(rows
            .iter()
            .map(|row| QueueInfo {
                queue: row.get("queue"),
                scheduled: row.get("scheduled"),
                ready: row.get("ready"),
                running: row.get("running"),
                retrying: row.get("retrying"),
                dead: row.get("dead"),
                dead_expired: row.get("dead_expired"),
                workers: row.get("workers"),
                oldest_ready_at: finite(row, "oldest_ready_at"),
                paused_at: row.get("paused_at"),
                paused_by: row.get("paused_by"),
                paused_why: row.get("paused_why"),
                settings: row.get::<_, bool>("has_settings").then(|| QueueSettings::read(row)),
            })
            .collect())
    }

    /// Returns every known name: the queue has settings, a job, a dead job, a live worker or a schedule.
    pub async fn names(&self) -> Result<Vec<String>, AdminError> {
        let rows =
            self.session.query("select * from leasehold_internal.queue_names()", &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Returns true if a live worker works the queue. A worker is alive if it was seen within 30 s.
    ///
    /// A process that enqueues through [`Leasehold`](crate::Leasehold) checks this itself, and whether one of the
    /// workers has a handler for the name: ten seconds after the first enqueue of a name into a queue and at most
    /// once per hour. It logs a warning if the result is false.
    pub async fn is_worked(&self, queue: &str) -> Result<bool, AdminError> {
        Ok(self.is_handled(queue, "").await?.0)
    }

    /// Returns whether a live worker works the queue, and whether one of them has a handler for the name.
    pub(crate) async fn is_handled(
        &self,
        queue: &str,
        name: &str,
    ) -> Result<(bool, bool), AdminError> {
        let params = [(&queue as _, Type::TEXT), (&name as _, Type::TEXT)];
        let rows = self.session.query(include_str!("../../queries/is_worked.sql"), &params).await?;
        Ok(rows.first().map_or((false, false), |row| (row.get("worked"), row.get("handled"))))
    }

    /// Pauses a queue: workers claim no more of its jobs, running jobs continue. A queue without settings
    /// gets the defaults.
    pub async fn pause(&self, queue: &str, by: &By) -> Result<Toggle, AdminError> {
        let done: bool = self.call("select leasehold.pause($1, $2, $3)", queue, by).await?;
        Ok(if done { Toggle::Changed } else { Toggle::Already })
    }

    /// Resumes a paused queue.
    pub async fn resume(&self, queue: &str, by: &By) -> Result<Toggle, AdminError> {
        let done: bool = self.call("select leasehold.resume($1, $2, $3)", queue, by).await?;
        if done {
            return Ok(Toggle::Changed);
        }
        let known = "select exists (select from leasehold_internal.queue where name = $1)";
        let known: bool = self.session.value(known, &[(&queue, Type::TEXT)]).await?;
        Ok(if known { Toggle::Already } else { Toggle::NotFound })
    }

    /// Changes settings; a queue without settings gets the defaults first. Returns the settings.
    pub async fn set(
        &self,
        queue: &str,
        change: &QueueChange,
        by: &By,
    ) -> Result<QueueSettings, AdminError> {
        let time = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let backoff = (change.backoff.map(|times| times.0), change.backoff.map(|times| times.1));
        let sql = "select leasehold.set_queue($1, $2, $3, make_interval(secs => $4), $5, $6, $7, \
             make_interval(secs => $8), make_interval(secs => $9), make_interval(secs => $10), $11, $12, $13)";
        self.session
            .query(
                sql,
                &[
                    (&queue, Type::TEXT),
                    (&by.actor, Type::TEXT),
                    (&by.reason, Type::TEXT),
                    (&time(change.lease), Type::FLOAT8),
                    (&change.max_attempts, Type::INT4),
                    (&change.max_lost, Type::INT4),
                    (&change.claim_size, Type::INT4),
                    (&time(change.run_limit), Type::FLOAT8),
                    (&time(backoff.0), Type::FLOAT8),
                    (&time(backoff.1), Type::FLOAT8),
                    (&change.keep_history, Type::BOOL),
                    (&change.display_name, Type::TEXT),
                    (&change.owner, Type::TEXT),
                ],
            )
            .await?;
        let sql = format!("select {SETTINGS} from leasehold_internal.queue q where q.name = $1");
        let rows = self.session.query(&sql, &[(&queue, Type::TEXT)]).await?;
        match rows.first() {
            Some(row) => Ok(QueueSettings::read(row)),
            None => Err(AdminError::Refused(format!("queue {queue:?} has no settings"))),
        }
    }

    async fn call(&self, sql: &str, queue: &str, by: &By) -> Result<bool, AdminError> {
        let params = [
            (&queue as _, Type::TEXT),
            (&by.actor as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        self.session.value(sql, &params).await
    }
}
