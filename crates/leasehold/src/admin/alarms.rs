//! Alarms: acknowledge and silence them, set the thresholds of queues, deliver notifications.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::session::handle;
use super::{By, Toggle, seconds};
use crate::alarm::Rule;
use crate::error::AdminError;

handle! {
    /// Alarms and the thresholds of queues: [`Leasehold::alarms`](crate::Leasehold::alarms).
    Alarms
}

/// The state of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AlarmState {
    /// Its condition persists, and no operator has acknowledged it.
    Open,
    /// Its condition persists, and an operator works on it.
    Acknowledged,
    /// Its condition persists, and no notification of it is sent.
    Silenced,
    /// Its condition has ended.
    Cleared,
}

impl AlarmState {
    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Silenced => "silenced",
            Self::Cleared => "cleared",
        }
    }

    fn read(word: &str) -> Self {
        match word {
            "acknowledged" => Self::Acknowledged,
            "silenced" => Self::Silenced,
            "cleared" => Self::Cleared,
            _ => Self::Open,
        }
    }
}

impl std::fmt::Display for AlarmState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// An alarm.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct AlarmInfo {
    /// The id of the alarm; JSON has it as text.
    #[serde(serialize_with = "as_text")]
    pub id: i64,
    /// The rule that raised it.
    pub rule: Rule,
    /// The queue, sweep or mirror; empty for the whole database.
    pub subject: String,
    /// Its state.
    pub state: AlarmState,
    /// When it was raised.
    pub raised_at: Timestamp,
    /// When it cleared; `None`: its condition persists.
    pub cleared_at: Option<Timestamp>,
    /// When a sample last showed its condition.
    pub seen_at: Timestamp,
    /// The value of that sample.
    pub value: f64,
    /// The threshold that the value passed.
    pub threshold: f64,
    /// One sentence with the value and the threshold.
    pub summary: String,
    /// When an operator acknowledged it.
    pub acknowledged_at: Option<Timestamp>,
    /// Who acknowledged it.
    pub acknowledged_by: Option<String>,
    /// The reason that was given.
    pub acknowledged_why: Option<String>,
    /// Until when no notification of it is sent.
    pub silenced_until: Option<Timestamp>,
    /// Who silenced it.
    pub silenced_by: Option<String>,
    /// The reason that was given.
    pub silenced_why: Option<String>,
    /// When notifications were enqueued; `None`: there was no receiver.
    pub notified_at: Option<Timestamp>,
    /// When the first receiver accepted its notification.
    pub delivered_at: Option<Timestamp>,
    /// The job name of that receiver.
    pub delivered_by: Option<String>,
}

fn as_text<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The result of an acknowledgement or a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the alarm may be unchanged"]
#[non_exhaustive]
pub enum AlarmChange {
    /// Changed.
    Changed,
    /// It has cleared; nothing was changed.
    Cleared,
    /// There is no alarm with this id.
    NotFound,
}

/// The thresholds of a queue.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WatchInfo {
    /// The queue.
    pub queue: String,
    /// True if they were removed; the defaults for dead and lost jobs still apply.
    pub off: bool,
    /// The fewest jobs that complete within `over`; 0: never an alarm.
    pub min_completed: i64,
    /// The window of `min_completed`.
    #[serde(rename = "over_seconds", serialize_with = "seconds::show")]
    pub over: Duration,
    /// The most jobs that wait or run; `None`: never an alarm.
    pub max_length: Option<i64>,
    /// Jobs with these tags do not count; a star at the end matches any text.
    pub bulk_tags: Vec<String>,
    /// The longest wait of a ready job; `None`: never an alarm.
    #[serde(rename = "max_age_seconds", serialize_with = "seconds::show_if_any")]
    pub max_age: Option<Duration>,
    /// From how many jobs that die within 15 minutes on; 0: never an alarm.
    pub max_dead: i64,
    /// From how many jobs that lose their worker within 15 minutes on; 0: never an alarm.
    pub max_lost: i64,
    /// Since when the queue has thresholds.
    pub since: Timestamp,
    /// Who set them last.
    pub changed_by: String,
}

/// New thresholds of a queue. `None` leaves a threshold as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchChange {
    min_completed: Option<i64>,
    over: Option<Duration>,
    max_length: Option<i64>,
    bulk_tags: Option<Vec<String>>,
    max_age: Option<Duration>,
    max_dead: Option<i64>,
    max_lost: Option<i64>,
}

impl WatchChange {
    /// Changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The fewest jobs that complete within the window; 0: never an alarm. Initially: 1.
    pub fn min_completed(mut self, jobs: i64) -> Self {
        self.min_completed = Some(jobs);
        self
    }

    /// The window of the completed jobs, 2 minutes to 23 hours. Initially: 10 minutes.
    pub fn over(mut self, window: Duration) -> Self {
        self.over = Some(window);
        self
    }

    /// The most jobs that wait or run; `None`: never an alarm, as initially.
    pub fn max_length(mut self, jobs: Option<u32>) -> Self {
        self.max_length = Some(jobs.map_or(-1, i64::from));
        self
    }

    /// Jobs with these tags do not count; a star at the end matches any text. Initially: `reindex_*`.
    pub fn bulk_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.bulk_tags = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    /// The longest wait of a ready job; `None`: never an alarm. Initially: 1 hour.
    pub fn max_age(mut self, age: Option<Duration>) -> Self {
        self.max_age = Some(age.unwrap_or_default());
        self
    }

    /// From how many jobs that die within 15 minutes on; 0: never an alarm. Initially: 10.
    pub fn max_dead(mut self, jobs: i64) -> Self {
        self.max_dead = Some(jobs);
        self
    }

    /// From how many jobs that lose their worker within 15 minutes on; 0: never an alarm. Initially: 10.
    pub fn max_lost(mut self, jobs: i64) -> Self {
        self.max_lost = Some(jobs);
        self
    }
}

/// The most alarms or watches of a list.
const MOST: u32 = 10_000;

impl Alarms<'_> {
    /// Returns alarms that have not cleared, with `cleared` also those that have, the latest first. Up to
    /// `most`, which is at most 10,000.
    pub async fn list(&self, cleared: bool, most: u32) -> Result<Vec<AlarmInfo>, AdminError> {
        let sql = "select * from leasehold.alarms where $1 or cleared_at is null \
                   order by raised_at desc, id desc limit $2";
        let most = i64::from(most.clamp(1, MOST));
        let rows = self.session.query(sql, &[(&cleared, Type::BOOL), (&most, Type::INT8)]).await?;
        Ok(rows.iter().map(AlarmInfo::read).collect())
    }

    /// Returns an alarm by its id.
    pub async fn get(&self, id: i64) -> Result<Option<AlarmInfo>, AdminError> {
        let sql = "select * from leasehold.alarms where id = $1";
        let rows = self.session.query(sql, &[(&id, Type::INT8)]).await?;
        Ok(rows.first().map(AlarmInfo::read))
    }

    /// Records that an operator works on an alarm. `by` needs a reason.
    pub async fn acknowledge(&self, id: i64, by: &By) -> Result<AlarmChange, AdminError> {
        let reason = reason(by)?;
        let sql = "select leasehold.acknowledge_alarm($1, $2, $3)";
        let params =
            [(&id as _, Type::INT8), (&by.actor as _, Type::TEXT), (&reason as _, Type::TEXT)];
        if self.session.value(sql, &params).await? {
            return Ok(AlarmChange::Changed);
        }
        let known = self.get(id).await?.is_some();
        Ok(if known { AlarmChange::Cleared } else { AlarmChange::NotFound })
    }

    /// Sends no notification of an alarm for this time, also if it clears and is raised again. Zero ends a
    /// silence. `by` needs a reason.
    pub async fn silence(
        &self,
        id: i64,
        time: Duration,
        by: &By,
    ) -> Result<AlarmChange, AdminError> {
        let reason = reason(by)?;
        let sql = "select leasehold.silence_alarm($1, make_interval(secs => $2), $3, $4)";
        let params = [
            (&id as _, Type::INT8),
            (&time.as_secs_f64() as _, Type::FLOAT8),
            (&by.actor as _, Type::TEXT),
            (&reason as _, Type::TEXT),
        ];
        let done: bool = self.session.value(sql, &params).await?;
        Ok(if done { AlarmChange::Changed } else { AlarmChange::NotFound })
    }

    /// Returns the queues that have or had thresholds of their own, by name, up to 10,000.
    pub async fn watches(&self) -> Result<Vec<WatchInfo>, AdminError> {
        self.read_watches(None).await
    }

    /// Returns the thresholds of a queue. `None`: it never had its own.
    pub async fn watch(&self, queue: &str) -> Result<Option<WatchInfo>, AdminError> {
        Ok(self.read_watches(Some(queue)).await?.into_iter().next())
    }

    async fn read_watches(&self, queue: Option<&str>) -> Result<Vec<WatchInfo>, AdminError> {
        let sql = format!(
            "select w.*, extract(epoch from w.over)::float8 as over_seconds, \
                    extract(epoch from w.max_age)::float8 as max_age_seconds \
               from leasehold_internal.watch w where $1::text is null or w.queue = $1 \
              order by w.queue limit {MOST}"
        );
        let rows = self.session.query(&sql, &[(&queue, Type::TEXT)]).await?;
        Ok(rows.iter().map(WatchInfo::read).collect())
    }

    /// Sets thresholds of a queue. The audit log records actor and reason.
    pub async fn set_watch(
        &self,
        queue: &str,
        change: &WatchChange,
        by: &By,
    ) -> Result<(), AdminError> {
        self.write_watch(queue, change, by, false).await.map(drop)
    }

    /// Sets the thresholds that a program needs for its queue, unless the queue has or had its own: those of an
    /// operator take precedence. Returns true if they were set.
    pub async fn declare_watch(
        &self,
        queue: &str,
        change: &WatchChange,
        program: &str,
    ) -> Result<bool, AdminError> {
        self.write_watch(queue, change, &By::new(program), true).await
    }

    async fn write_watch(
        &self,
        queue: &str,
        change: &WatchChange,
        by: &By,
        by_service: bool,
    ) -> Result<bool, AdminError> {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let sql = "select leasehold_internal.watch_queue($1, $2, $3, $4, make_interval(secs => $5), $6, $7, \
                   make_interval(secs => $8), $9, $10, $11)";
        let params = [
            (&queue as _, Type::TEXT),
            (&by.actor as _, Type::TEXT),
            (&by_service as _, Type::BOOL),
            (&change.min_completed as _, Type::INT8),
            (&seconds(change.over) as _, Type::FLOAT8),
            (&change.max_length as _, Type::INT8),
            (&change.bulk_tags as _, Type::TEXT_ARRAY),
            (&seconds(change.max_age) as _, Type::FLOAT8),
            (&change.max_dead as _, Type::INT8),
            (&change.max_lost as _, Type::INT8),
            (&by.reason as _, Type::TEXT),
        ];
        self.session.value(sql, &params).await
    }

    /// Removes the thresholds of a queue; those for queues without a watch apply again. A program that declares
    /// its thresholds at every start does not set them again. The audit log records actor and reason.
    pub async fn remove_watch(&self, queue: &str, by: &By) -> Result<Toggle, AdminError> {
        let sql = "select leasehold_internal.unwatch_queue($1, $2, $3)";
        let params = [
            (&queue as _, Type::TEXT),
            (&by.actor as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        if self.session.value(sql, &params).await? {
            return Ok(Toggle::Changed);
        }
        let known = self.watch(queue).await?.is_some();
        Ok(if known { Toggle::Already } else { Toggle::NotFound })
    }

    /// Enqueues a test notification for every receiver. Returns their number; 0: no alarm would be delivered.
    pub async fn test(&self, by: &By) -> Result<u32, AdminError> {
        let sql = "select leasehold_internal.test_alarm($1)";
        let receivers: i32 = self.session.value(sql, &[(&by.actor, Type::TEXT)]).await?;
        Ok(receivers.unsigned_abs())
    }

    /// Registers a receiver for seven days: each notification becomes a job of this name in the queue
    /// [`alarm::QUEUE`](crate::alarm::QUEUE). This and the next two calls need the role `leasehold_worker`.
    pub async fn register_receiver(&self, job_name: &str) -> Result<(), AdminError> {
        let sql = "select leasehold_internal.declare_alarm_receiver($1)";
        self.session.query(sql, &[(&job_name, Type::TEXT)]).await.map(drop)
    }

    /// Returns true if an alarm has cleared or was pruned. A receiver then drops the notification that it was
    /// raised: after the one of its end it would read as a new alarm.
    pub async fn is_over(&self, id: i64) -> Result<bool, AdminError> {
        let sql = "select leasehold_internal.alarm_has_cleared($1)";
        self.session.value(sql, &[(&id, Type::INT8)]).await
    }

    /// Records that a receiver, named by its jobs, delivered the notification that an alarm was raised. The first
    /// delivery counts.
    pub async fn note_delivery(&self, id: i64, receiver: &str) -> Result<(), AdminError> {
        let sql = "select leasehold_internal.note_alarm_delivery($1, $2)";
        let params = [(&id as _, Type::INT8), (&receiver as _, Type::TEXT)];
        self.session.query(sql, &params).await.map(drop)
    }
}

fn reason(by: &By) -> Result<&str, AdminError> {
    by.reason().filter(|reason| !reason.trim().is_empty()).ok_or_else(|| {
        AdminError::Refused(
            "the reason is missing; add one: By::new(\"ann\").why(\"restarting the workers\")"
                .to_owned(),
        )
    })
}

impl AlarmInfo {
    fn read(row: &Row) -> Self {
        Self {
            id: row.get("id"),
            rule: Rule::read(row.get("rule")),
            subject: row.get("subject"),
            state: AlarmState::read(row.get("state")),
            raised_at: row.get("raised_at"),
            cleared_at: row.get("cleared_at"),
            seen_at: row.get("seen_at"),
            value: row.get("value"),
            threshold: row.get("threshold"),
            summary: row.get("summary"),
            acknowledged_at: row.get("acknowledged_at"),
            acknowledged_by: row.get("acknowledged_by"),
            acknowledged_why: row.get("acknowledged_why"),
            silenced_until: row.get("silenced_until"),
            silenced_by: row.get("silenced_by"),
            silenced_why: row.get("silenced_why"),
            notified_at: row.get("notified_at"),
            delivered_at: row.get("delivered_at"),
            delivered_by: row.get("delivered_by"),
        }
    }
}

impl WatchInfo {
    fn read(row: &Row) -> Self {
        Self {
            queue: row.get("queue"),
            off: row.get("off"),
            min_completed: row.get("min_completed"),
            over: seconds::read(row.get("over_seconds")),
            max_length: row.get("max_length"),
            bulk_tags: row.get("bulk_tags"),
            max_age: row.get::<_, Option<f64>>("max_age_seconds").map(seconds::read),
            max_dead: row.get("max_dead"),
            max_lost: row.get("max_lost"),
            since: row.get("since"),
            changed_by: row.get("changed_by"),
        }
    }
}
