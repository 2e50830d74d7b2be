//! `leasehold mirrors`: stores that are kept equal to tables.
//!
//! Only a worker can reach the store: commands that need it enqueue a job, and print its id.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::db::Db;
use super::prompt::confirm;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{count, nearest, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List mirrors with their last check, repairs and differences
    List,
    /// Show one mirror
    Show {
        /// Name of the mirror
        name: String,
    },
    /// List rows that differ, the oldest first
    Differences {
        /// Name of the mirror
        name: String,
        /// List at most this many rows
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// Order a worker to compare rows with the store, and to write those that differ
    #[command(
        after_help = "Example:\n  leasehold mirrors reindex annotations.index aB3xYz --force"
    )]
    Reindex {
        /// Name of the mirror
        name: String,
        /// Keys of the rows
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
        /// Write all of the rows, even if they do not differ
        #[arg(long)]
        force: bool,
        /// Set the priority; lower numbers run first, and changes of rows have 1
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(0..1_000_000))]
        priority: i32,
    },
    /// Order a worker to compare everything now
    Check {
        /// Name of the mirror
        name: String,
    },
    /// Order a worker to fill, compare and swap in a second set
    #[command(after_help = REBUILD_HELP)]
    Rebuild {
        /// Name of the mirror
        name: String,
    },
    /// Order a worker to swap the former set back in
    Rollback {
        /// Name of the mirror
        name: String,
    },
    /// Order a worker to remove the second set
    Drop {
        /// Name of the mirror
        name: String,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

const REBUILD_HELP: &str = "\
Examples:
  leasehold mirrors rebuild annotations.index
  leasehold mirrors show annotations.index      show the progress
  leasehold mirrors rollback annotations.index  return to the former set
  leasehold mirrors drop annotations.index      remove the former set

Saves and searches continue meanwhile. Workers write to the former set until it is dropped.";

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List => list(common).await,
        Command::Show { name } => show(&name, common).await,
        Command::Differences { name, limit } => differing(&name, limit, common).await,
        Command::Reindex { name, keys, force, priority } => {
            reindex(&name, &keys, force, priority, common).await
        }
        Command::Check { name } => order(&name, "check", common).await,
        Command::Rebuild { name } => rebuild(&name, common).await,
        Command::Rollback { name } => rollback(&name, common).await,
        Command::Drop { name, yes } => drop_second(&name, yes, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (entries(&db).await?, db.now().await?);
    out.list("mirrors", &entries, |entries| table(entries, now))?;
    if entries.is_empty() && out.is_table() {
        out.note("no mirrors; a mirror is listed once it is installed");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entry, now) = (find(&db, name).await?, db.now().await?);
    out.one("mirror", &entry, |entry| text(entry, now))?;
    if entry.differences > 0 && out.is_table() {
        out.note(format!("list rows that differ: leasehold mirrors differences {name}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn differing(name: &str, limit: i64, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    find(&db, name).await?;
    let (rows, now) = (differences(&db, name, limit).await?, db.now().await?);
    out.list("differences", &rows, |rows| {
        let mut columns = Columns::new(&["KEY", "KIND", "TABLE", "STORE", "SINCE", "REPAIRS"]);
        let version = |version: Option<i64>| version.map(|v| v.to_string()).unwrap_or_default();
        for row in rows {
            columns.row([
                row.key.clone(),
                row.kind.clone(),
                version(row.source_version),
                version(row.held_version),
                relative(row.first_seen, now),
                row.repairs.to_string(),
            ]);
        }
        columns
    })?;
    if rows.is_empty() && out.is_table() {
        out.note("no rows differ");
    }
    Ok(ExitCode::SUCCESS)
}

async fn reindex(
    name: &str,
    keys: &[String],
    force: bool,
    priority: i32,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    find(&db, name).await?;
    let sql = "select leasehold.reindex_mirror($1, $2, 'mirrors reindex', $3, $4)";
    let params = [
        (&name as _, Type::TEXT),
        (&keys as _, Type::TEXT_ARRAY),
        (&priority as _, Type::INT4),
        (&force as _, Type::BOOL),
    ];
    let made: i64 = db.one(sql, &params).await?.get(0);
    let answer = serde_json::json!({ "name": name, "jobs": made });
    out.one("mirror", &answer, |_| {
        format!("{} will be compared with the store", count(keys.len(), "row"))
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn rebuild(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase == "swapped" {
        return Err(Failure::conflict(format!(
            "mirror {name} still has the set from before its last rebuild"
        ))
        .hint(format!("remove that set first: leasehold mirrors drop {name}")));
    }
    order(name, "rebuild", common).await
}

async fn rollback(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase != "swapped" {
        return Err(Failure::conflict(format!("mirror {name} has no former set to return to")));
    }
    order(name, "rollback", common).await
}

async fn drop_second(name: &str, yes: bool, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    let Some(second) = &entry.second else {
        return Err(Failure::conflict(format!("mirror {name} has no second set")));
    };
    if !yes {
        confirm(&format!("remove the set {second} of mirror {name}?"))?;
    }
    order(name, "drop", common).await
}

/// Enqueues a job for a worker that has the store.
async fn order(name: &str, what: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let entry = find(&db, name).await?;
    let sql = "select leasehold.order_mirror($1, $2, $3)";
    let params = [(&name as _, Type::TEXT), (&what as _, Type::TEXT), (&actor() as _, Type::TEXT)];
    let job: Option<i64> = db.one(sql, &params).await?.get(0);
    let Some(job) = job else {
        return Err(Failure::not_found(format!("there is no mirror {name:?}")));
    };
    let answer = serde_json::json!({ "name": name, "order": what, "job": job });
    out.one("order", &answer, |_| format!("{what} of mirror {name} is enqueued as job {job}"))?;
    if !has_worker(&db, &entry).await? {
        out.warn(format!("no live worker declares mirror {name}: start one; the job waits"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether a live worker handles the jobs of the mirror.
async fn has_worker(db: &Db, entry: &Entry) -> Result<bool, Failure> {
    let sql = "select exists (select from leasehold.workers w \
                where w.state = 'alive' and $1 = any (w.names) and $2 = any (w.queues))";
    let params = [(&entry.job_name as _, Type::TEXT), (&entry.queue as _, Type::TEXT)];
    Ok(db.one(sql, &params).await?.get(0))
}

#[derive(Serialize)]
struct Entry {
    name: String,
    table_name: String,
    queue: String,
    job_name: String,
    phase: String,
    serving: Option<String>,
    second: Option<String>,
    rebuild_rows: i64,
    rebuild_started_at: Option<Timestamp>,
    rebuild_ended_at: Option<Timestamp>,
    round_started_at: Option<Timestamp>,
    round_rows: i64,
    compared_at: Option<Timestamp>,
    rows_compared: i64,
    repaired: i64,
    repaired_total: i64,
    rounds: i64,
    /// The store has every change that was committed before this.
    equal_as_of: Option<Timestamp>,
    differences: i64,
    oldest_difference: Option<Timestamp>,
    tombstones: i64,
}

/// A row that differs.
#[derive(Serialize)]
struct Difference {
    key: String,
    kind: String,
    source_version: Option<i64>,
    held_version: Option<i64>,
    first_seen: Timestamp,
    repairs: i32,
}

/// Returns every mirror, by name.
async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let rows = db.query(include_str!("../../queries/mirrors.sql"), &[]).await?;
    Ok(rows.iter().map(read).collect())
}

fn read(row: &Row) -> Entry {
    Entry {
        name: row.get("name"),
        table_name: row.get("table_name"),
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

/// Finds a mirror by name; the error names the nearest known one.
async fn find(db: &Db, name: &str) -> Result<Entry, Failure> {
    let mut entries = entries(db).await?;
    if let Some(at) = entries.iter().position(|entry| entry.name == name) {
        return Ok(entries.swap_remove(at));
    }
    let known: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let failure = Failure::not_found(format!("there is no mirror {name:?}"));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure.hint(
            "a mirror is listed once it is installed, or a worker that declares it has started: \
             leasehold mirrors list",
        ),
    })
}

/// Returns the rows that differ, the oldest first.
async fn differences(db: &Db, name: &str, limit: i64) -> Result<Vec<Difference>, Failure> {
    let sql = "select key, kind, source_version, held_version, first_seen, repairs \
                 from leasehold_internal.mirror_difference where mirror = $1 order by first_seen, key limit $2";
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
            "swapped" => format!("rebuilt; {second} is kept for a rollback"),
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

fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "NAME",
        "TABLE",
        "EQUAL AS OF",
        "COMPARED",
        "REPAIRED",
        "DIFFERENT",
        "SERVING",
        "REBUILD",
    ]);
    for entry in entries {
        columns.row([
            entry.name.clone(),
            entry.table_name.clone(),
            entry.equal_in_words(now),
            entry.rows_compared.to_string(),
            entry.repaired_total.to_string(),
            entry.differences.to_string(),
            entry.serving.clone().unwrap_or_default(),
            entry.phase_in_words(),
        ]);
    }
    columns
}

fn text(entry: &Entry, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let equal = entry.equal_as_of.map_or_else(|| "not yet".to_owned(), |at| when(Some(at)));
    let last = format!("{} rows, {} repaired", entry.rows_compared, entry.repaired);
    let round = match entry.round_rows {
        0 => String::new(),
        rows => format!("{rows} rows so far"),
    };
    fields(&[
        ("mirror", entry.name.clone()),
        ("table", entry.table_name.clone()),
        ("queue", entry.queue.clone()),
        ("jobs", entry.job_name.clone()),
        ("equal as of", equal),
        ("compared", when(entry.compared_at)),
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
