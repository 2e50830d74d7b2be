//! Mirrors, as stored in the database.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db::Db;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{nearest, relative};

#[derive(Serialize)]
pub struct Entry {
    pub name: String,
    pub table: String,
    pub queue: String,
    pub job_name: String,
    pub phase: String,
    pub serving: Option<String>,
    pub second: Option<String>,
    pub rebuild_rows: i64,
    pub rebuild_started_at: Option<Timestamp>,
    pub rebuild_ended_at: Option<Timestamp>,
    pub round_started_at: Option<Timestamp>,
    pub round_rows: i64,
    pub checked_at: Option<Timestamp>,
    pub rows_checked: i64,
    pub repaired: i64,
    pub repaired_total: i64,
    pub rounds: i64,
    /// The store has every change that was committed before this.
    pub equal_as_of: Option<Timestamp>,
    pub differences: i64,
    pub oldest_difference: Option<Timestamp>,
    pub tombstones: i64,
}

/// A row that differs.
#[derive(Serialize)]
pub struct Difference {
    pub key: String,
    pub kind: String,
    pub source_version: Option<i64>,
    pub held_version: Option<i64>,
    pub first_seen: Timestamp,
    pub repairs: i32,
}

/// Returns every mirror, by name.
pub async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let rows = db.query(include_str!("../queries/mirrors.sql"), &[]).await?;
    Ok(rows.iter().map(read).collect())
}

fn read(row: &Row) -> Entry {
    Entry {
        name: row.get("name"),
        table: row.get("table_name"),
        queue: row.get("queue"),
        job_name: row.get("job_name"),
        phase: row.get("phase"),
        serving: row.get("serving"),
        second: row.get("second"),
        rebuild_rows: row.get("rebuild_rows"),
        rebuild_started_at: row.get("rebuild_started_at"),
        rebuild_ended_at: row.get("rebuild_ended_at"),
        round_started_at: row.get("round_started_at"),
        round_rows: row.get("round_rows"),
        checked_at: row.get("checked_at"),
        rows_checked: row.get("rows_checked"),
        repaired: row.get("repaired"),
        repaired_total: row.get("repaired_total"),
        rounds: row.get("rounds"),
        equal_as_of: row.get("equal_as_of"),
        differences: row.get("differences"),
        oldest_difference: row.get("oldest_difference"),
        tombstones: row.get("tombstones"),
    }
}

/// Finds a mirror by name; the error names the nearest known one.
pub async fn find(db: &Db, name: &str) -> Result<Entry, Failure> {
    let mut entries = entries(db).await?;
    if let Some(at) = entries.iter().position(|entry| entry.name == name) {
        return Ok(entries.swap_remove(at));
    }
    let known: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let failure = Failure::not_found(format!("there is no mirror {name:?}"));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure.hint(
            "a mirror is known when it was installed, or a worker that has it has started; see: \
             leasehold mirrors list",
        ),
    })
}

/// Returns the rows that differ, the oldest first.
pub async fn differences(db: &Db, name: &str, limit: i64) -> Result<Vec<Difference>, Failure> {
    let sql = "select key, kind, source_version, held_version, first_seen, repairs \
                 from leasehold.mirror_difference where mirror = $1 order by first_seen, key limit $2";
    let rows = db.query(sql, &[(&name, Type::TEXT), (&limit, Type::INT8)]).await?;
    let read = |row: &Row| Difference {
        key: row.get("key"),
        kind: row.get("kind"),
        source_version: row.get("source_version"),
        held_version: row.get("held_version"),
        first_seen: row.get("first_seen"),
        repairs: row.get("repairs"),
    };
    Ok(rows.iter().map(read).collect())
}

impl Entry {
    /// Describes the second set: under construction, or kept for a rollback.
    fn phase_in_words(&self) -> String {
        let second = self.second.as_deref().unwrap_or_default();
        match self.phase.as_str() {
            "building" => format!("building {second}, {} rows so far", self.rebuild_rows),
            "verifying" => format!("comparing {second} before the swap"),
            "swapped" => format!("rebuilt; {second} is kept to go back to"),
            _ => String::new(),
        }
    }

    fn equal_in_words(&self, now: Timestamp) -> String {
        match self.equal_as_of {
            Some(at) => relative(at, now),
            None => "not yet".to_owned(),
        }
    }
}

pub fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "NAME",
        "TABLE",
        "EQUAL AS OF",
        "CHECKED",
        "REPAIRED",
        "DIFFERENT",
        "SERVING",
        "REBUILD",
    ]);
    for entry in entries {
        columns.row([
            entry.name.clone(),
            entry.table.clone(),
            entry.equal_in_words(now),
            entry.rows_checked.to_string(),
            entry.repaired_total.to_string(),
            entry.differences.to_string(),
            entry.serving.clone().unwrap_or_default(),
            entry.phase_in_words(),
        ]);
    }
    columns
}

pub fn text(entry: &Entry, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let equal = entry.equal_as_of.map_or_else(|| "not yet".to_owned(), |at| when(Some(at)));
    let last = format!("{} rows, {} repaired", entry.rows_checked, entry.repaired);
    let round = match entry.round_rows {
        0 => String::new(),
        rows => format!("{rows} rows so far"),
    };
    fields(&[
        ("mirror", entry.name.clone()),
        ("table", entry.table.clone()),
        ("queue", entry.queue.clone()),
        ("jobs", entry.job_name.clone()),
        ("equal as of", equal),
        ("checked", when(entry.checked_at)),
        ("last round", last),
        ("this round", round),
        ("rounds", entry.rounds.to_string()),
        ("repaired", entry.repaired_total.to_string()),
        ("different", entry.differences.to_string()),
        ("oldest difference", when(entry.oldest_difference)),
        ("deletions kept", entry.tombstones.to_string()),
        ("serving", entry.serving.clone().unwrap_or_default()),
        ("rebuild", entry.phase_in_words()),
        ("rebuild began", when(entry.rebuild_started_at)),
        ("rebuild ended", when(entry.rebuild_ended_at)),
    ])
}
