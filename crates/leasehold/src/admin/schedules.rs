//! Schedules: jobs that the clock enqueues.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use tokio_postgres::types::{Json, Type};

use super::jobs::{AnyJson, finite};
use super::session::handle;
use super::{By, Toggle};
use crate::error::AdminError;
use crate::job::JobId;
use crate::schedule::{CronSchedule, Missed, Schedule};

handle! {
    /// Schedules: [`Leasehold::schedules`](crate::Leasehold::schedules).
    Schedules
}

/// A schedule, as stored.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// The name of the schedule.
    pub name: String,
    /// The cron pattern.
    pub cron: String,
    /// The time zone of the pattern.
    pub zone: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The name of its jobs.
    pub job_name: String,
    /// The kwargs of its jobs.
    pub kwargs: serde_json::Value,
    /// The priority of its jobs.
    pub priority: i32,
    /// What happens to slots that passed while no worker ran.
    pub missed: Missed,
    /// When it fires next.
    pub next_slot: Timestamp,
    /// The slot for which it fired last.
    pub last_slot: Option<Timestamp>,
    /// The job that it enqueued last.
    #[serde(serialize_with = "id_as_text")]
    pub last_job_id: Option<JobId>,
    /// How many slots passed without a job.
    pub missed_slots: i64,
    /// When it was paused; `None`: it is not.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why it was paused.
    pub paused_why: Option<String>,
    /// The worker whose code declares it; `None`: an operator added it.
    pub declared_by: Option<String>,
    /// When a worker declared it last.
    pub last_declared_at: Option<Timestamp>,
    /// Code declared it, and no running worker has declared it for a day.
    pub undeclared: bool,
}

fn id_as_text<S: Serializer>(id: &Option<JobId>, serializer: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => serializer.collect_str(id),
        None => serializer.serialize_none(),
    }
}

impl Schedules<'_> {
    /// Returns schedules by name, up to 1,000.
    pub async fn list(&self) -> Result<Vec<ScheduleInfo>, AdminError> {
        self.read(None).await
    }

    /// Returns a schedule.
    pub async fn get(&self, name: &str) -> Result<Option<ScheduleInfo>, AdminError> {
        Ok(self.read(Some(name)).await?.into_iter().next())
    }

    async fn read(&self, name: Option<&str>) -> Result<Vec<ScheduleInfo>, AdminError> {
        let sql = "select s.*, \
                   exists (select from leasehold_internal.undeclared_schedules() u where u.name = s.name) as undeclared \
                   from leasehold_internal.schedule s where $1::text is null or s.name = $1 order by s.name limit 1000";
        let rows = self.session.query(sql, &[(&name, Type::TEXT)]).await?;
        Ok(rows
            .iter()
            .map(|row| ScheduleInfo {
                name: row.get("name"),
                cron: row.get("cron"),
                zone: row.get("zone"),
                queue: row.get("queue"),
                job_name: row.get("job_name"),
                kwargs: row.get::<_, AnyJson>("kwargs").0,
                priority: row.get("priority"),
                missed: row.get::<_, &str>("missed").parse().unwrap_or_default(),
                next_slot: finite(row, "next_slot").unwrap_or_default(),
                last_slot: finite(row, "last_slot"),
                last_job_id: row.get::<_, Option<i64>>("last_job_id").map(JobId),
                missed_slots: row.get("missed_slots"),
                paused_at: row.get("paused_at"),
                paused_by: row.get("paused_by"),
                paused_why: row.get("paused_why"),
                declared_by: row.get("declared_by"),
                last_declared_at: row.get("last_declared_at"),
                undeclared: row.get("undeclared"),
            })
            .collect())
    }

    /// Adds a schedule, or replaces one of the same name if `replace` is true. Returns its next slot, or
    /// `None` if there is one already.
    pub async fn add(
        &self,
        schedule: &Schedule,
        replace: bool,
        by: &By,
    ) -> Result<Option<Timestamp>, AdminError> {
        schedule.check()?;
        // From the database's clock, which also decides when a slot is due.
        let now: Timestamp = self.session.value("select statement_timestamp()", &[]).await?;
        let next = CronSchedule::parse(&schedule.cron, &schedule.zone)?.next_after(now)?;
        let sql =
            "select leasehold.add_schedule($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let added: bool = self
            .session
            .value(
                sql,
                &[
                    (&schedule.name, Type::TEXT),
                    (&schedule.cron, Type::TEXT),
                    (&schedule.zone, Type::TEXT),
                    (&schedule.queue, Type::TEXT),
                    (&schedule.job_name, Type::TEXT),
                    (&Json(&schedule.kwargs), Type::JSONB),
                    (&schedule.priority, Type::INT4),
                    (&schedule.missed.as_str(), Type::TEXT),
                    (&next, Type::TIMESTAMPTZ),
                    (&by.actor, Type::TEXT),
                    (&by.reason, Type::TEXT),
                    (&replace, Type::BOOL),
                ],
            )
            .await?;
        Ok(added.then_some(next))
    }

    /// Removes a schedule; its jobs stay. A schedule that a worker declares is stored again when that worker
    /// starts.
    pub async fn remove(&self, name: &str, by: &By) -> Result<Toggle, AdminError> {
        self.toggle("select leasehold.remove_schedule($1, $2, $3)", name, by).await
    }

    /// Pauses a schedule. Slots that pass meanwhile are missed.
    pub async fn pause(&self, name: &str, by: &By) -> Result<Toggle, AdminError> {
        self.toggle("select leasehold.pause_schedule($1, $2, $3)", name, by).await
    }

    /// Resumes a paused schedule.
    pub async fn resume(&self, name: &str, by: &By) -> Result<Toggle, AdminError> {
        self.toggle("select leasehold.resume_schedule($1, $2, $3)", name, by).await
    }

    /// Enqueues the job of a schedule now, paused or not; its slots stay as they are. Returns the job, or
    /// `None` if there is no such schedule.
    pub async fn run_now(&self, name: &str, by: &By) -> Result<Option<JobId>, AdminError> {
        let made: Option<i64> =
            self.call("select leasehold.run_schedule($1, $2, $3)", name, by).await?;
        Ok(made.map(JobId))
    }

    async fn toggle(&self, sql: &str, name: &str, by: &By) -> Result<Toggle, AdminError> {
        if self.call(sql, name, by).await? {
            return Ok(Toggle::Changed);
        }
        let known = "select exists (select from leasehold_internal.schedule where name = $1)";
        let known: bool = self.session.value(known, &[(&name, Type::TEXT)]).await?;
        Ok(if known { Toggle::Already } else { Toggle::NotFound })
    }

    async fn call<T: tokio_postgres::types::FromSqlOwned + Default>(
        &self,
        sql: &str,
        name: &str,
        by: &By,
    ) -> Result<T, AdminError> {
        let params =
            [(&name as _, Type::TEXT), (&by.actor as _, Type::TEXT), (&by.reason as _, Type::TEXT)];
        self.session.value(sql, &params).await
    }
}
