//! Limits, and the limit keys that wait.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::session::handle;
use super::{By, Toggle, seconds};
use crate::error::AdminError;
use crate::limit::{Limit, OnDeath, OnFailure};

handle! {
    /// Limits: [`Leasehold::limits`](crate::Leasehold::limits).
    Limits
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitSource {
    /// A worker's code declares it.
    Code,
    /// An operator set it; it comes before what code declares.
    Operator,
}

/// The limit in force for a key, or for all keys of a prefix.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The queue of the jobs.
    pub queue: String,
    /// A limit key, or the text before the first `:` of many. Empty: the whole queue.
    pub key: String,
    /// The key is a name of jobs: those without a limit key get it.
    pub by_name: bool,
    /// The most jobs of one key that run at the same time. `None`: any number.
    pub max_running: Option<i32>,
    /// How many jobs a key gets for one job of a key with weight 1.
    pub weight: i32,
    /// How many jobs of one key start per [`per`](Self::per). `None`: any number.
    pub rate: Option<i32>,
    /// The time of the rate.
    #[serde(rename = "per_seconds", serialize_with = "seconds::show_if_any")]
    pub per: Option<Duration>,
    /// How many jobs start at once before the rate holds them back.
    pub burst: Option<i32>,
    /// One job of one key at a time, in order.
    pub ordered: bool,
    /// Whether a job that waits for its next attempt blocks those behind it.
    pub on_failure: OnFailure,
    /// Whether a dead job stops its key.
    pub on_death: OnDeath,
    /// The most jobs of one key that wait. `None`: any number.
    pub max_waiting: Option<i32>,
    /// A job is due after this time without another enqueue of its key.
    #[serde(rename = "debounce_seconds", serialize_with = "seconds::show_if_any")]
    pub debounce: Option<Duration>,
    /// A debounced job is due at the latest this long after its first enqueue.
    #[serde(rename = "debounce_max_seconds", serialize_with = "seconds::show_if_any")]
    pub debounce_max: Option<Duration>,
    /// An enqueue this soon after another one of its key stores nothing.
    #[serde(rename = "throttle_seconds", serialize_with = "seconds::show_if_any")]
    pub throttle: Option<Duration>,
    /// Where it comes from.
    pub source: LimitSource,
    /// The worker that declared it, or the operator that set it.
    pub set_by: String,
    /// When it was set or declared with these values.
    pub set_at: Timestamp,
    /// What code declares instead, if an operator set this limit.
    pub declared_max_running: Option<i32>,
    /// What code declares instead; `None` as well if no code declares a limit of this key.
    pub declared_weight: Option<i32>,
}

/// Why the jobs of a limit key wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitState {
    /// Nothing: its next job starts when a worker is free and the key's turn comes.
    Open,
    /// As many jobs run as may.
    Full,
    /// As many jobs have started as the rate allows.
    Rate,
    /// The first job of an ordered key waits for its next attempt.
    Blocked,
    /// A dead job stops the ordered key.
    Stopped,
    /// An operator paused it.
    Paused,
}

impl LimitState {
    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Full => "full",
            Self::Rate => "rate",
            Self::Blocked => "blocked",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        }
    }
}

/// A limit key with jobs, or a paused one.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LimitKeyInfo {
    /// The key.
    pub key: String,
    /// Why its jobs wait.
    pub state: LimitState,
    /// Jobs that run, counted up to 10,000.
    pub running: i32,
    /// Jobs that wait, due or not, counted up to 10,000.
    pub waiting: i32,
    /// The most jobs that run at the same time. `None`: any number.
    pub max_running: Option<i32>,
    /// How many jobs it gets for one job of a key with weight 1.
    pub weight: i32,
    /// When it was paused; `None`: it is not.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why it was paused.
    pub paused_why: Option<String>,
}

const COLUMNS: &str = "l.*, extract(epoch from l.per)::float8 as per_seconds, \
    extract(epoch from l.debounce)::float8 as debounce_seconds, \
    extract(epoch from l.debounce_max)::float8 as debounce_max_seconds, \
    extract(epoch from l.throttle)::float8 as throttle_seconds";

impl LimitInfo {
    fn read(row: &Row) -> Self {
        let time = |column| row.get::<_, Option<f64>>(column).map(seconds::read);
        Self {
            queue: row.get("queue"),
            key: row.get("key"),
            by_name: row.get("by_name"),
            max_running: row.get("max_running"),
            weight: row.get("weight"),
            rate: row.get("rate"),
            per: time("per_seconds"),
            burst: row.get("burst"),
            ordered: row.get("ordered"),
            on_failure: match row.get("on_failure") {
                "pass" => OnFailure::Pass,
                _ => OnFailure::Block,
            },
            on_death: match row.get("on_death") {
                "stop" => OnDeath::Stop,
                _ => OnDeath::Continue,
            },
            max_waiting: row.get("max_waiting"),
            debounce: time("debounce_seconds"),
            debounce_max: time("debounce_max_seconds"),
            throttle: time("throttle_seconds"),
            source: match row.get("source") {
                "operator" => LimitSource::Operator,
                _ => LimitSource::Code,
            },
            set_by: row.get("set_by"),
            set_at: row.get("set_at"),
            declared_max_running: row.get("declared_max_running"),
            declared_weight: row.get("declared_weight"),
        }
    }
}

impl Limits<'_> {
    /// Returns limits by queue and key, up to 1,000. `queue`: of this one.
    pub async fn list(&self, queue: Option<&str>) -> Result<Vec<LimitInfo>, AdminError> {
        let sql = format!(
            "select {COLUMNS} from leasehold.limits l where $1::text is null or l.queue = $1 \
             order by l.queue, l.key limit 1000"
        );
        let rows = self.session.query(&sql, &[(&queue, Type::TEXT)]).await?;
        Ok(rows.iter().map(LimitInfo::read).collect())
    }

    /// Returns the limit that is set for this very key or prefix; with an empty key, for the queue.
    pub async fn get(&self, queue: &str, key: &str) -> Result<Option<LimitInfo>, AdminError> {
        let sql =
            format!("select {COLUMNS} from leasehold.limits l where l.queue = $1 and l.key = $2");
        let rows = self.session.query(&sql, &[(&queue, Type::TEXT), (&key, Type::TEXT)]).await?;
        Ok(rows.first().map(LimitInfo::read))
    }

    /// Sets a limit as a whole. It comes before the one that a worker's code declares. Jobs that run beyond
    /// a lower limit continue.
    pub async fn set(&self, queue: &str, limit: &Limit, by: &By) -> Result<(), AdminError> {
        limit.check()?;
        let sql = "select leasehold.set_limit($1, nullif($2, ''), $3, $4, $5, $6, \
            rate => $7, per => make_interval(secs => $8), burst => $9, ordered => $10, on_failure => $11, \
            on_death => $12, max_waiting => $13, debounce => make_interval(secs => $14), \
            debounce_max => make_interval(secs => $15), throttle => make_interval(secs => $16), by_name => $17)";
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let (rate, per) = (limit.rate.map(|rate| rate.0), seconds(limit.rate.map(|rate| rate.1)));
        let (on_failure, on_death) = (limit.on_failure.as_str(), limit.on_death.as_str());
        let (debounce, most) = (seconds(limit.debounce), seconds(limit.debounce_max));
        let throttle = seconds(limit.throttle);
        self.session
            .query(
                sql,
                &[
                    (&queue, Type::TEXT),
                    (&limit.key, Type::TEXT),
                    (&by.actor, Type::TEXT),
                    (&limit.max_running, Type::INT4),
                    (&limit.weight, Type::INT4),
                    (&by.reason, Type::TEXT),
                    (&rate, Type::INT4),
                    (&per, Type::FLOAT8),
                    (&limit.burst, Type::INT4),
                    (&limit.ordered, Type::BOOL),
                    (&on_failure, Type::TEXT),
                    (&on_death, Type::TEXT),
                    (&limit.max_waiting, Type::INT4),
                    (&debounce, Type::FLOAT8),
                    (&most, Type::FLOAT8),
                    (&throttle, Type::FLOAT8),
                    (&limit.by_name, Type::BOOL),
                ],
            )
            .await?;
        Ok(())
    }

    /// Removes a limit that an operator set: the declared one applies again.
    /// [`Toggle::NotFound`]: no operator set one.
    pub async fn remove(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let removed = self.call("select leasehold.remove_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if removed.await? { Toggle::Changed } else { Toggle::NotFound })
    }

    /// Removes a limit that code declared and no longer does. A worker that still declares it stores it
    /// again when it starts. [`Toggle::NotFound`]: none was declared.
    pub async fn retire(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let removed = self.call("select leasehold.retire_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if removed.await? { Toggle::Changed } else { Toggle::NotFound })
    }

    /// Returns keys that have jobs or are paused, in order, up to `up_to` of those after `after` (empty: from
    /// the first).
    pub async fn keys(
        &self,
        queue: &str,
        after: &str,
        up_to: i32,
    ) -> Result<Vec<LimitKeyInfo>, AdminError> {
        let sql = "select * from leasehold_internal.limit_keys($1, $2, $3)";
        let params =
            [(&queue as _, Type::TEXT), (&after as _, Type::TEXT), (&up_to as _, Type::INT4)];
        let rows = self.session.query(sql, &params).await?;
        let read = |row: &Row| LimitKeyInfo {
            key: row.get("key"),
            state: match row.get("state") {
                "paused" => LimitState::Paused,
                "full" => LimitState::Full,
                "rate" => LimitState::Rate,
                "blocked" => LimitState::Blocked,
                "stopped" => LimitState::Stopped,
                _ => LimitState::Open,
            },
            running: row.get("running"),
            waiting: row.get("waiting"),
            max_running: row.get("max_running"),
            weight: row.get("weight"),
            paused_at: row.get("paused_at"),
            paused_by: row.get("paused_by"),
            paused_why: row.get("paused_why"),
        };
        Ok(rows.iter().map(read).collect())
    }

    /// Pauses one limit key: its jobs wait, running ones continue.
    pub async fn pause(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let paused = self.call("select leasehold.pause_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if paused.await? { Toggle::Changed } else { Toggle::Already })
    }

    /// Resumes a paused limit key. [`Toggle::Already`]: it was not paused.
    pub async fn resume(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let resumed = self.call("select leasehold.resume_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if resumed.await? { Toggle::Changed } else { Toggle::Already })
    }

    async fn call(&self, sql: &str, queue: &str, key: &str, by: &By) -> Result<bool, AdminError> {
        let params = [
            (&queue as _, Type::TEXT),
            (&key as _, Type::TEXT),
            (&by.actor as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        self.session.value(sql, &params).await
    }
}
