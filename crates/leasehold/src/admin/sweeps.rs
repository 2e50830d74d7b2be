//! Sweeps: counts, dead rows, pause and resume.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::jobs::finite;
use super::session::handle;
use super::words::words;
use super::{By, Toggle, seconds};
use crate::error::AdminError;

handle! {
    /// Sweeps: [`Leasehold::sweeps`](crate::Leasehold::sweeps).
    Sweeps
}

words! {
    /// The state of a sweep.
    pub enum SweepState or Idle {
        /// An operator paused it.
        Paused = "paused",
        /// A run has begun and not ended.
        Running = "running",
        /// A worker may begin a run.
        Due = "due",
        /// It waits for its next run.
        Idle = "idle",
    }
}

/// A sweep with its counts.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SweepInfo {
    /// The name of the sweep.
    pub name: String,
    /// The table, with its schema.
    pub table_name: String,
    /// Its state.
    pub state: SweepState,
    /// The cron pattern of its runs; `None`: it is continuous.
    pub cron: Option<String>,
    /// The time zone of the pattern.
    pub zone: Option<String>,
    /// The pause between two runs of a continuous sweep.
    #[serde(rename = "every_seconds", serialize_with = "seconds::show_if_any")]
    pub every: Option<Duration>,
    /// When it runs next.
    pub next_run_at: Timestamp,
    /// When the last run began.
    pub run_started_at: Option<Timestamp>,
    /// When the last run ended; `None`: it has not ended.
    pub run_ended_at: Option<Timestamp>,
    /// When the watchdog ran last.
    pub watchdog_ran_at: Option<Timestamp>,
    /// When it was paused; `None`: it is not.
    pub paused_at: Option<Timestamp>,
    /// Who paused it.
    pub paused_by: Option<String>,
    /// Why it was paused.
    pub paused_why: Option<String>,
    /// How many rows were claimed.
    pub rows_claimed: i64,
    /// How many rows were finished.
    pub rows_finished: i64,
    /// How many times a row failed.
    pub rows_failed: i64,
    /// How many rows were claimed by another worker before their finish.
    pub rows_lost: i64,
    /// How many rows the watchdog reset.
    pub rows_reset: i64,
    /// Rows that failed and are retried, up to 10,000.
    pub failing: i64,
    /// Dead rows, up to 10,000.
    pub dead: i64,
    /// How many rows are claimed, as a worker counted them last; `None`: not counted yet.
    pub claimed_now: Option<i64>,
    /// When the oldest of those was claimed.
    pub oldest_claim_at: Option<Timestamp>,
    /// When they were counted.
    pub claims_counted_at: Option<Timestamp>,
}

/// A sweep without the counts of its failures, for pages that are read often.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SweepSummary {
    /// The name of the sweep.
    pub name: String,
    /// The table, with its schema.
    pub table_name: String,
    /// Its state.
    pub state: SweepState,
    /// When it runs next.
    pub next_run_at: Timestamp,
    /// How many rows were finished.
    pub rows_finished: i64,
    /// How many rows the watchdog reset.
    pub rows_reset: i64,
}

/// A dead row of a sweep.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeadRow {
    /// Its key.
    pub key: String,
    /// How often it failed.
    pub attempts: i32,
    /// Its last error.
    pub last_error: String,
    /// When it failed last.
    pub failed_at: Timestamp,
    /// When it died.
    pub dead_at: Timestamp,
}

/// The most sweeps of a list.
const MOST: u32 = 1000;
/// The most dead rows of a list.
const MOST_ROWS: u32 = 100_000;
/// Rows per redrive. A statement holds its locks until it ends.
const STEP: i32 = 1000;

impl Sweeps<'_> {
    /// Returns sweeps by name, up to 1,000. It counts failures, up to 10,000 per sweep.
    pub async fn list(&self) -> Result<Vec<SweepInfo>, AdminError> {
        self.read(None).await
    }

    /// Returns a sweep.
    pub async fn get(&self, name: &str) -> Result<Option<SweepInfo>, AdminError> {
        Ok(self.read(Some(name)).await?.into_iter().next())
    }

    async fn read(&self, name: Option<&str>) -> Result<Vec<SweepInfo>, AdminError> {
        let sql = include_str!("../../queries/sweeps.sql");
        let params = [(&name as _, Type::TEXT), (&i64::from(MOST) as _, Type::INT8)];
        Ok(self.session.query(sql, &params).await?.iter().map(SweepInfo::read).collect())
    }

    /// Returns sweeps by name, up to 1,000, and counts nothing.
    pub async fn summaries(&self) -> Result<Vec<SweepSummary>, AdminError> {
        let sql = format!(
            "select name, table_name, state, next_run_at, rows_finished, rows_reset \
               from leasehold.sweeps order by name limit {MOST}"
        );
        let rows = self.session.query(&sql, &[]).await?;
        Ok(rows
            .iter()
            .map(|row| SweepSummary {
                name: row.get("name"),
                table_name: row.get("table_name"),
                state: SweepState::read(row.get("state")),
                next_run_at: finite(row, "next_run_at").unwrap_or_default(),
                rows_finished: row.get("rows_finished"),
                rows_reset: row.get("rows_reset"),
            })
            .collect())
    }

    /// Returns dead rows of a sweep by key, after `after`, up to `most`, which is at most 100,000. It reads error
    /// texts, so it needs the role `leasehold_operator`.
    pub async fn dead(
        &self,
        name: &str,
        after: Option<&str>,
        most: u32,
    ) -> Result<Vec<DeadRow>, AdminError> {
        let most = i64::from(most.clamp(1, MOST_ROWS));
        let params =
            [(&name as _, Type::TEXT), (&after as _, Type::TEXT), (&most as _, Type::INT8)];
        let rows =
            self.session.query(include_str!("../../queries/sweep_dead.sql"), &params).await?;
        Ok(rows
            .iter()
            .map(|row| DeadRow {
                key: row.get("key"),
                attempts: row.get("attempts"),
                last_error: row.get("last_error"),
                failed_at: row.get("failed_at"),
                dead_at: row.get("dead_at"),
            })
            .collect())
    }

    /// Pauses a sweep: its workers finish claimed batches and start no others.
    pub async fn pause(&self, name: &str, by: &By) -> Result<Toggle, AdminError> {
        let sql = "select leasehold.pause_sweep($1, $2, $3)";
        let params =
            [(&name as _, Type::TEXT), (&by.actor as _, Type::TEXT), (&by.reason as _, Type::TEXT)];
        let done = self.session.value(sql, &params).await?;
        self.toggled(name, done).await
    }

    /// Resumes a paused sweep. The audit log records actor and reason.
    pub async fn resume(&self, name: &str, by: &By) -> Result<Toggle, AdminError> {
        let done = self.call("select leasehold.resume_sweep($1, $2, $3)", name, by).await?;
        self.toggled(name, done).await
    }

    async fn toggled(&self, name: &str, done: bool) -> Result<Toggle, AdminError> {
        if done {
            return Ok(Toggle::Changed);
        }
        let known = "select exists (select from leasehold_internal.sweep where name = $1)";
        let known: bool = self.session.value(known, &[(&name, Type::TEXT)]).await?;
        Ok(if known { Toggle::Already } else { Toggle::NotFound })
    }

    /// Makes a sweep due; its workers run it, once it is not paused. Returns false if there is no such sweep. The
    /// audit log records actor and reason.
    pub async fn run_now(&self, name: &str, by: &By) -> Result<bool, AdminError> {
        self.call("select leasehold.run_sweep($1, $2, $3)", name, by).await
    }

    /// Makes the workers of a sweep run its watchdog within a second. Returns false if there is no such sweep. The
    /// audit log records actor and reason.
    pub async fn run_watchdog(&self, name: &str, by: &By) -> Result<bool, AdminError> {
        self.call("select leasehold_internal.run_watchdog($1, $2, $3)", name, by).await
    }

    /// Removes a sweep that no worker declares any more, with the failures of its rows; its table stays as it is.
    /// Returns false if there is no such sweep. The audit log records actor and reason.
    pub async fn forget(&self, name: &str, by: &By) -> Result<bool, AdminError> {
        self.call("select leasehold_internal.forget_sweep($1, $2, $3)", name, by).await
    }

    /// Redrives dead rows with these keys, `None`: all of them, up to 1,000 per call. Returns how many; call it
    /// again until it returns 0. The audit log records actor and reason.
    pub async fn redrive(
        &self,
        name: &str,
        keys: Option<&[String]>,
        by: &By,
    ) -> Result<u64, AdminError> {
        let sql = "select leasehold_internal.redrive_sweep($1, $2, $3, $4, $5)";
        let params = [
            (&name as _, Type::TEXT),
            (&keys as _, Type::TEXT_ARRAY),
            (&by.actor as _, Type::TEXT),
            (&STEP as _, Type::INT4),
            (&by.reason as _, Type::TEXT),
        ];
        Ok(self.session.query(sql, &params).await?.len() as u64)
    }

    async fn call(&self, sql: &str, name: &str, by: &By) -> Result<bool, AdminError> {
        let params =
            [(&name as _, Type::TEXT), (&by.actor as _, Type::TEXT), (&by.reason as _, Type::TEXT)];
        self.session.value(sql, &params).await
    }
}

impl SweepInfo {
    fn read(row: &Row) -> Self {
        Self {
            name: row.get("name"),
            table_name: row.get("table_name"),
            state: SweepState::read(row.get("state")),
            cron: row.get("cron"),
            zone: row.get("zone"),
            every: row.get::<_, Option<f64>>("every_seconds").map(seconds::read),
            next_run_at: finite(row, "next_run_at").unwrap_or_default(),
            run_started_at: row.get("run_started_at"),
            run_ended_at: row.get("run_ended_at"),
            watchdog_ran_at: row.get("watchdog_ran_at"),
            paused_at: row.get("paused_at"),
            paused_by: row.get("paused_by"),
            paused_why: row.get("paused_why"),
            rows_claimed: row.get("rows_claimed"),
            rows_finished: row.get("rows_finished"),
            rows_failed: row.get("rows_failed"),
            rows_lost: row.get("rows_lost"),
            rows_reset: row.get("rows_reset"),
            failing: row.get("failing"),
            dead: row.get("dead"),
            claimed_now: row.get("claimed_now"),
            oldest_claim_at: finite(row, "oldest_claim_at"),
            claims_counted_at: row.get("claims_counted_at"),
        }
    }
}
