//! Sweeps, as stored in the database.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db::Db;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{nearest, relative, seconds};

#[derive(Serialize)]
pub struct Entry {
    pub name: String,
    pub table: String,
    pub state: String,
    pub cron: Option<String>,
    pub zone: Option<String>,
    pub every_seconds: Option<f64>,
    pub next_run_at: Timestamp,
    pub run_started_at: Option<Timestamp>,
    pub run_ended_at: Option<Timestamp>,
    pub watchdog_ran_at: Option<Timestamp>,
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    pub paused_why: Option<String>,
    pub claimed: i64,
    pub finished: i64,
    pub failed: i64,
    pub lost: i64,
    pub reset: i64,
    /// Rows that failed and are retried.
    pub failing: i64,
    pub dead: i64,
}

/// A dead row.
#[derive(Serialize)]
pub struct DeadRow {
    pub key: String,
    pub attempts: i32,
    pub last_error: String,
    pub failed_at: Timestamp,
    pub dead_at: Timestamp,
}

/// Returns every sweep, by name.
pub async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let rows = db.query(include_str!("../queries/sweeps.sql"), &[]).await?;
    Ok(rows.iter().map(read).collect())
}

fn read(row: &Row) -> Entry {
    Entry {
        name: row.get("name"),
        table: row.get("table_name"),
        state: row.get("state"),
        cron: row.get("cron"),
        zone: row.get("zone"),
        every_seconds: row.get("every_seconds"),
        next_run_at: row.get("next_run_at"),
        run_started_at: row.get("run_started_at"),
        run_ended_at: row.get("run_ended_at"),
        watchdog_ran_at: row.get("watchdog_ran_at"),
        paused_at: row.get("paused_at"),
        paused_by: row.get("paused_by"),
        paused_why: row.get("paused_why"),
        claimed: row.get("rows_claimed"),
        finished: row.get("rows_finished"),
        failed: row.get("rows_failed"),
        lost: row.get("rows_lost"),
        reset: row.get("rows_reset"),
        failing: row.get("failing"),
        dead: row.get("dead"),
    }
}

/// Finds a sweep by name; the error names the nearest known one.
pub async fn find(db: &Db, name: &str) -> Result<Entry, Failure> {
    let mut entries = entries(db).await?;
    if let Some(at) = entries.iter().position(|entry| entry.name == name) {
        return Ok(entries.swap_remove(at));
    }
    let known: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let failure = Failure::not_found(format!("there is no sweep {name:?}"));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure.hint(
            "a sweep is known when a worker that has it has started; see: leasehold sweeps list",
        ),
    })
}

/// The last count of a sweep's watchdog.
pub struct Claims {
    /// `None`: it has not counted yet.
    pub rows: Option<i64>,
    pub oldest_at: Option<Timestamp>,
    pub counted_at: Option<Timestamp>,
}

/// Returns how many rows are claimed, as the watchdog counted them. This does not read the swept table:
/// it belongs to the role that declared the sweep, and its code would run with the operator's rights.
pub async fn claims(db: &Db, name: &str) -> Result<Claims, Failure> {
    let sql = "select claimed_now, oldest_claim_at, claims_counted_at from leasehold.sweep where name = $1";
    let row = db.one(sql, &[(&name, Type::TEXT)]).await?;
    Ok(Claims { rows: row.get(0), oldest_at: row.get(1), counted_at: row.get(2) })
}

pub async fn dead_rows(
    db: &Db,
    name: &str,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<DeadRow>, Failure> {
    let params = [(&name as _, Type::TEXT), (&after as _, Type::TEXT), (&limit as _, Type::INT8)];
    let rows = db.query(include_str!("../queries/sweep_dead.sql"), &params).await?;
    let read = |row: &Row| DeadRow {
        key: row.get("key"),
        attempts: row.get("attempts"),
        last_error: row.get("last_error"),
        failed_at: row.get("failed_at"),
        dead_at: row.get("dead_at"),
    };
    Ok(rows.iter().map(read).collect())
}

impl Entry {
    fn clock(&self) -> String {
        match (&self.cron, &self.zone, self.every_seconds) {
            (Some(cron), Some(zone), _) => format!("{cron} ({zone})"),
            (_, _, Some(pause)) => format!("continuous, {} apart", seconds(pause)),
            _ => String::new(),
        }
    }

    fn state_in_words(&self, now: Timestamp) -> String {
        let since = |at: Option<Timestamp>| at.map(|at| relative(at, now)).unwrap_or_default();
        match self.state.as_str() {
            "paused" => {
                let by = self.paused_by.as_deref().unwrap_or_default();
                let why = self.paused_why.as_deref().map(|why| format!(": {why}"));
                format!("paused {} by {by}{}", since(self.paused_at), why.unwrap_or_default())
            }
            "running" => format!("running since {}", since(self.run_started_at)),
            state => state.to_owned(),
        }
    }
}

pub fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "NAME", "TABLE", "WHEN", "STATE", "NEXT", "FINISHED", "FAILING", "DEAD", "LOST", "RESET",
    ]);
    for entry in entries {
        columns.row([
            entry.name.clone(),
            entry.table.clone(),
            entry.clock(),
            entry.state_in_words(now),
            relative(entry.next_run_at, now),
            entry.finished.to_string(),
            entry.failing.to_string(),
            entry.dead.to_string(),
            entry.lost.to_string(),
            entry.reset.to_string(),
        ]);
    }
    columns
}

pub fn text(entry: &Entry, claims: &Claims, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let claimed = match (claims.rows, claims.counted_at) {
        (Some(rows), Some(counted)) => {
            let oldest = claims.oldest_at.map(|at| format!(", the oldest {}", relative(at, now)));
            format!("{rows}{}, counted {}", oldest.unwrap_or_default(), relative(counted, now))
        }
        _ => "not counted yet".to_owned(),
    };
    fields(&[
        ("sweep", entry.name.clone()),
        ("table", entry.table.clone()),
        ("when", entry.clock()),
        ("state", entry.state_in_words(now)),
        ("next run", when(Some(entry.next_run_at))),
        ("run began", when(entry.run_started_at)),
        ("run ended", when(entry.run_ended_at)),
        ("watchdog", when(entry.watchdog_ran_at)),
        ("claimed now", claimed),
        ("failing", entry.failing.to_string()),
        ("dead", entry.dead.to_string()),
        ("finished", entry.finished.to_string()),
        ("claimed", entry.claimed.to_string()),
        ("failed", entry.failed.to_string()),
        ("lost", entry.lost.to_string()),
        ("reset", entry.reset.to_string()),
    ])
}
