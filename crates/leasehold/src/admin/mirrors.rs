//! Mirrors: what the last check found, and orders to their workers.
//!
//! Only a worker can reach the store of a mirror: what needs it is a job.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::By;
use super::session::handle;
use super::words::words;
use crate::error::AdminError;
use crate::job::JobId;

handle! {
    /// Mirrors: [`Leasehold::mirrors`](crate::Leasehold::mirrors).
    Mirrors
}

words! {
    /// How far a rebuild is.
    pub enum MirrorPhase or None {
        /// The store has one set.
        None = "none",
        /// The second set is being filled.
        Building = "building",
        /// The second set is compared with the table.
        Verifying = "verifying",
        /// The second set is the one from before the rebuild, kept for a rollback.
        Swapped = "swapped",
    }
}

words! {
    /// How a row differs from the store.
    pub enum DifferenceKind or Stale {
        /// In the table, not in the store.
        Missing = "missing",
        /// In both, in two versions.
        Stale = "stale",
        /// In the store, not in the table.
        Ghost = "ghost",
    }
}

/// A mirror with the results of its check and the progress of a rebuild.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MirrorInfo {
    /// The name of the mirror.
    pub name: String,
    /// The table, with its schema.
    pub table_name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The name of its jobs.
    pub job_name: String,
    /// How far a rebuild is.
    pub phase: MirrorPhase,
    /// The set that is searched; `None`: the store has only one.
    pub serving: Option<String>,
    /// The second set: under construction, or from before the last rebuild.
    pub second: Option<String>,
    /// How many rows the rebuild has written.
    pub rebuild_rows: i64,
    /// When the last rebuild began.
    pub rebuild_started_at: Option<Timestamp>,
    /// When the last rebuild ended.
    pub rebuild_ended_at: Option<Timestamp>,
    /// When the current round of the check began.
    pub round_started_at: Option<Timestamp>,
    /// How many rows that round has compared.
    pub round_rows: i64,
    /// When a round ended last.
    pub compared_at: Option<Timestamp>,
    /// How many rows that round compared.
    pub rows_compared: i64,
    /// How many rows that round found different.
    pub repaired: i64,
    /// How many rows were found different in all rounds.
    pub repaired_total: i64,
    /// How many rounds have ended.
    pub rounds: i64,
    /// The store has every change that was committed before this.
    pub equal_as_of: Option<Timestamp>,
    /// How many rows differ.
    pub differences: i64,
    /// Since when the oldest of them differs.
    pub oldest_difference: Option<Timestamp>,
    /// How many deletions are remembered.
    pub tombstones: i64,
}

/// A mirror in few figures, for pages that are read often.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MirrorSummary {
    /// The name of the mirror.
    pub name: String,
    /// How far a rebuild is.
    pub phase: MirrorPhase,
    /// How many rows the last round of the check compared.
    pub rows_compared: i64,
    /// How many rows were found different in all rounds.
    pub repaired_total: i64,
    /// How many rows differ, up to 10,000.
    pub differences: i64,
    /// For how many seconds the oldest of them has differed.
    pub oldest_difference_age_seconds: Option<f64>,
    /// The store has every change that was committed before this.
    pub equal_as_of: Option<Timestamp>,
}

/// A row that differs from the store.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MirrorDifference {
    /// Its key.
    pub key: String,
    /// How it differs.
    pub kind: DifferenceKind,
    /// Its version in the table.
    pub source_version: Option<i64>,
    /// Its version in the store.
    pub held_version: Option<i64>,
    /// Since when it differs.
    pub first_seen: Timestamp,
    /// How often a repair was enqueued.
    pub repairs: i32,
}

/// What a worker with the store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MirrorOrder {
    /// Compare everything now.
    Check,
    /// Fill a second set of documents, prove it equal and swap it in.
    Rebuild,
    /// Swap the set from before the rebuild back in.
    Rollback,
    /// Remove the second set.
    Drop,
}

impl MirrorOrder {
    /// Returns the word of the order.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Rebuild => "rebuild",
            Self::Rollback => "rollback",
            Self::Drop => "drop",
        }
    }
}

impl std::fmt::Display for MirrorOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How rows are compared again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reindex {
    tag: String,
    priority: i32,
    force: bool,
}

impl Default for Reindex {
    fn default() -> Self {
        Self { tag: "reindex".to_owned(), priority: 100, force: false }
    }
}

impl Reindex {
    /// Writes rows that differ, with the tag `reindex`, after changes of rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tag of the jobs.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// The priority of the jobs; lower runs first, and changes of rows have 1. Default: 100.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Writes all of the rows, also those that do not differ.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }
}

/// The most mirrors of a list.
const MOST: i64 = 1000;
/// The most differences of a list.
const MOST_ROWS: u32 = 100_000;

impl Mirrors<'_> {
    /// Returns mirrors by name, up to 1,000. It counts differences and deletions.
    pub async fn list(&self) -> Result<Vec<MirrorInfo>, AdminError> {
        self.read(None).await
    }

    /// Returns a mirror.
    pub async fn get(&self, name: &str) -> Result<Option<MirrorInfo>, AdminError> {
        Ok(self.read(Some(name)).await?.into_iter().next())
    }

    async fn read(&self, name: Option<&str>) -> Result<Vec<MirrorInfo>, AdminError> {
        let sql = include_str!("../../queries/mirrors.sql");
        let rows = self.session.query(sql, &[(&name, Type::TEXT), (&MOST, Type::INT8)]).await?;
        Ok(rows.iter().map(MirrorInfo::read).collect())
    }

    /// Returns mirrors by name, up to 500, with counts of at most 10,000.
    pub async fn summaries(&self) -> Result<Vec<MirrorSummary>, AdminError> {
        let rows =
            self.session.query("select * from leasehold_internal.mirror_numbers()", &[]).await?;
        Ok(rows
            .iter()
            .map(|row| MirrorSummary {
                name: row.get("name"),
                phase: MirrorPhase::read(row.get("phase")),
                rows_compared: row.get("rows_compared"),
                repaired_total: row.get("repaired"),
                differences: row.get("differences"),
                oldest_difference_age_seconds: row.get("oldest_difference_age"),
                equal_as_of: row.get("equal_as_of"),
            })
            .collect())
    }

    /// Returns rows that differ, the oldest first, up to `most`, which is at most 100,000.
    pub async fn differences(
        &self,
        name: &str,
        most: u32,
    ) -> Result<Vec<MirrorDifference>, AdminError> {
        let sql = "select key, kind, source_version, held_version, first_seen, repairs \
                     from leasehold_internal.mirror_difference where mirror = $1 \
                    order by first_seen, key limit $2";
        let most = i64::from(most.clamp(1, MOST_ROWS));
        let rows = self.session.query(sql, &[(&name, Type::TEXT), (&most, Type::INT8)]).await?;
        Ok(rows
            .iter()
            .map(|row| MirrorDifference {
                key: row.get("key"),
                kind: DifferenceKind::read(row.get("kind")),
                source_version: row.get("source_version"),
                held_version: row.get("held_version"),
                first_seen: row.get("first_seen"),
                repairs: row.get("repairs"),
            })
            .collect())
    }

    /// Returns true if a live worker handles the jobs of the mirror.
    pub async fn is_worked(&self, name: &str) -> Result<bool, AdminError> {
        let sql = "select exists (select from leasehold_internal.mirror m \
                     join leasehold.workers w on m.job_name = any (w.names) and m.queue = any (w.queues) \
                    where m.name = $1 and w.state = 'alive')";
        self.session.value(sql, &[(&name, Type::TEXT)]).await
    }

    /// Enqueues one job per key: a worker compares the row with the store, and writes it if it differs. Returns how
    /// many jobs were enqueued. The role `leasehold_producer` suffices.
    pub async fn reindex(
        &self,
        name: &str,
        keys: &[String],
        how: &Reindex,
    ) -> Result<u64, AdminError> {
        let sql = "select leasehold_internal.reindex_mirror($1, $2, $3, $4, $5)";
        let params = [
            (&name as _, Type::TEXT),
            (&keys as _, Type::TEXT_ARRAY),
            (&how.tag as _, Type::TEXT),
            (&how.priority as _, Type::INT4),
            (&how.force as _, Type::BOOL),
        ];
        Ok(self.session.value::<i64>(sql, &params).await?.unsigned_abs())
    }

    /// Enqueues an order for a worker with the store. An order that waits already is not enqueued again. Returns
    /// its job, or `None` if there is no such mirror. The audit log records actor and reason.
    pub async fn order(
        &self,
        name: &str,
        order: MirrorOrder,
        by: &By,
    ) -> Result<Option<JobId>, AdminError> {
        let sql = "select leasehold_internal.order_mirror($1, $2, $3, $4)";
        let params = [
            (&name as _, Type::TEXT),
            (&order.as_str() as _, Type::TEXT),
            (&by.actor as _, Type::TEXT),
            (&by.reason as _, Type::TEXT),
        ];
        Ok(self.session.value::<Option<i64>>(sql, &params).await?.map(JobId))
    }

    /// Removes a mirror that no worker declares any more, with its differences and deletions; its table and its
    /// store stay as they are. Returns false if there is no such mirror. The audit log records actor and reason.
    pub async fn forget(&self, name: &str, by: &By) -> Result<bool, AdminError> {
        self.change("select leasehold_internal.forget_mirror($1, $2, $3)", name, by).await
    }

    /// Forgets since when the store is equal to its table: call it when the store was replaced, or restored from a
    /// backup. It counts as equal again after the next whole round of the check. Returns false if there is no
    /// such mirror. The audit log records actor and reason.
    pub async fn reset_equality(&self, name: &str, by: &By) -> Result<bool, AdminError> {
        self.change("select leasehold_internal.reset_mirror_equality($1, $2, $3)", name, by).await
    }

    async fn change(&self, sql: &str, name: &str, by: &By) -> Result<bool, AdminError> {
        let params =
            [(&name as _, Type::TEXT), (&by.actor as _, Type::TEXT), (&by.reason as _, Type::TEXT)];
        self.session.value(sql, &params).await
    }
}

impl MirrorInfo {
    fn read(row: &Row) -> Self {
        Self {
            name: row.get("name"),
            table_name: row.get("table_name"),
            queue: row.get("queue"),
            job_name: row.get("job_name"),
            phase: MirrorPhase::read(row.get("phase")),
            serving: row.get("serving"),
            second: row.get("second"),
            rebuild_rows: row.get("rebuild_rows"),
            rebuild_started_at: row.get("rebuild_started_at"),
            rebuild_ended_at: row.get("rebuild_ended_at"),
            round_started_at: row.get("round_started_at"),
            round_rows: row.get("round_rows"),
            compared_at: row.get("compared_at"),
            rows_compared: row.get("rows_compared"),
            repaired: row.get("repaired"),
            repaired_total: row.get("repaired_total"),
            rounds: row.get("rounds"),
            equal_as_of: row.get("equal_as_of"),
            differences: row.get("differences"),
            oldest_difference: row.get("oldest_difference"),
            tombstones: row.get("tombstones"),
        }
    }
}
