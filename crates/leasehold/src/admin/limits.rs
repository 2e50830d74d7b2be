//! Limits: how many jobs of one limit key run, and which keys wait.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::session::handle;
use super::{By, Toggle};
use crate::error::AdminError;
use crate::limit::Limit;

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
    /// A limit key, or the text before the first `:` of many.
    pub key: String,
    /// The most jobs of one key that run at the same time. `None`: any number.
    pub max_running: Option<i32>,
    /// How many jobs a key gets for one job of a key with weight 1.
    pub weight: i32,
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

/// What holds the jobs of a limit key back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitState {
    /// Nothing: its next job starts when a worker is free and the key's turn comes.
    Open,
    /// As many jobs run as may.
    Full,
    /// An operator paused it.
    Paused,
}

impl LimitState {
    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Full => "full",
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
    /// What holds its jobs back.
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

impl LimitInfo {
    fn read(row: &Row) -> Self {
        Self {
            queue: row.get("queue"),
            key: row.get("key"),
            max_running: row.get("max_running"),
            weight: row.get("weight"),
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
        let sql = "select * from leasehold.limits l where $1::text is null or l.queue = $1 \
                   order by l.queue, l.key limit 1000";
        let rows = self.session.query(sql, &[(&queue, Type::TEXT)]).await?;
        Ok(rows.iter().map(LimitInfo::read).collect())
    }

    /// Returns the limit that is set for this very key or prefix.
    pub async fn get(&self, queue: &str, key: &str) -> Result<Option<LimitInfo>, AdminError> {
        let sql = "select * from leasehold.limits l where l.queue = $1 and l.key = $2";
        let rows = self.session.query(sql, &[(&queue, Type::TEXT), (&key, Type::TEXT)]).await?;
        Ok(rows.first().map(LimitInfo::read))
    }

    /// Sets a limit as a whole. It comes before the one that a worker's code declares. Jobs that run beyond
    /// a lower limit continue.
    pub async fn set(&self, queue: &str, limit: &Limit, by: &By) -> Result<(), AdminError> {
        limit.check()?;
        let sql = "select leasehold.set_limit($1, $2, $3, $4, $5, $6)";
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
                ],
            )
            .await?;
        Ok(())
    }

    /// Removes a limit that an operator set: the declared one applies again.
    /// [`Toggle::NotFound`]: no operator set one.
    pub async fn remove(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let removed = self.call("select leasehold.remove_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if removed.await? { Toggle::Done } else { Toggle::NotFound })
    }

    /// Removes a limit that code declared and no longer does. A worker that still declares it stores it
    /// again when it starts. [`Toggle::NotFound`]: none was declared.
    pub async fn retire(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let removed = self.call("select leasehold.retire_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if removed.await? { Toggle::Done } else { Toggle::NotFound })
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
        Ok(if paused.await? { Toggle::Done } else { Toggle::Already })
    }

    /// Resumes a paused limit key. [`Toggle::Already`]: it was not paused.
    pub async fn resume(&self, queue: &str, key: &str, by: &By) -> Result<Toggle, AdminError> {
        let resumed = self.call("select leasehold.resume_limit($1, $2, $3, $4)", queue, key, by);
        Ok(if resumed.await? { Toggle::Done } else { Toggle::Already })
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
