//! `leasehold mirrors`: stores that are kept equal to tables.
//!
//! Only a worker can reach the store: commands that need it enqueue a job, and print its id.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use leasehold::admin::{MirrorInfo, MirrorOrder, MirrorPhase, Reindex};

use super::common::{Common, by};
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
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
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
    /// Remove a mirror that no worker declares any more; its table and its store stay as they are
    Forget {
        /// Name of the mirror
        name: String,
        /// Record this reason
        #[arg(long)]
        why: Option<String>,
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
        Command::Check { name } => order(&name, MirrorOrder::Check, common).await,
        Command::Rebuild { name } => rebuild(&name, common).await,
        Command::Rollback { name } => rollback(&name, common).await,
        Command::Drop { name, yes } => drop_second(&name, yes, common).await,
        Command::Forget { name, why, yes } => forget(&name, why, yes, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (db.within(db.mirrors().list()).await?, db.now().await?);
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

async fn differing(name: &str, limit: u32, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    find(&db, name).await?;
    let rows = db.within(db.mirrors().differences(name, limit)).await?;
    let now = db.now().await?;
    out.list("differences", &rows, |rows| {
        let mut columns = Columns::new(&["KEY", "KIND", "TABLE", "STORE", "SINCE", "REPAIRS"]);
        let version = |version: Option<i64>| version.map(|v| v.to_string()).unwrap_or_default();
        for row in rows {
            columns.row([
                row.key.clone(),
                row.kind.to_string(),
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
    let how = Reindex::new().tag("mirrors reindex").priority(priority).force(force);
    let made = db.within(db.mirrors().reindex(name, keys, &how)).await?;
    let answer = serde_json::json!({ "name": name, "jobs": made });
    out.one("mirror", &answer, |_| {
        format!("{} will be compared with the store", count(keys.len(), "row"))
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn rebuild(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase == MirrorPhase::Swapped {
        return Err(Failure::conflict(format!(
            "mirror {name} still has the set from before its last rebuild"
        ))
        .hint(format!("remove that set first: leasehold mirrors drop {name}")));
    }
    order(name, MirrorOrder::Rebuild, common).await
}

async fn rollback(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase != MirrorPhase::Swapped {
        return Err(Failure::conflict(format!("mirror {name} has no former set to return to")));
    }
    order(name, MirrorOrder::Rollback, common).await
}

async fn drop_second(name: &str, yes: bool, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    let Some(second) = &entry.second else {
        return Err(Failure::conflict(format!("mirror {name} has no second set")));
    };
    if !yes {
        confirm(&format!("remove the set {second} of mirror {name}?"))?;
    }
    order(name, MirrorOrder::Drop, common).await
}

async fn forget(
    name: &str,
    why: Option<String>,
    yes: bool,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let entry = find(&db, name).await?;
    if !yes {
        confirm(&format!(
            "forget mirror {name} of {}? A worker that declares it compares every row again.",
            entry.table_name
        ))?;
    }
    db.within(db.mirrors().forget(name, &by(why))).await?;
    let answer = serde_json::json!({ "name": name, "result": "forgotten" });
    out.one("mirror", &answer, |_| format!("mirror {name} is forgotten"))?;
    Ok(ExitCode::SUCCESS)
}

/// Enqueues a job for a worker that has the store.
async fn order(name: &str, order: MirrorOrder, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    find(&db, name).await?;
    let Some(job) = db.within(db.mirrors().order(name, order, &by(None))).await? else {
        return Err(Failure::not_found(format!("there is no mirror {name:?}")));
    };
    let answer =
        serde_json::json!({ "name": name, "order": order.as_str(), "job": job.to_string() });
    out.one("order", &answer, |_| format!("{order} of mirror {name} is enqueued as job {job}"))?;
    if !db.within(db.mirrors().is_worked(name)).await? {
        out.warn(format!("no live worker declares mirror {name}: start one; the job waits"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds a mirror by name; the error names the nearest known one.
async fn find(db: &Db, name: &str) -> Result<MirrorInfo, Failure> {
    if let Some(entry) = db.within(db.mirrors().get(name)).await? {
        return Ok(entry);
    }
    let entries = db.within(db.mirrors().list()).await?;
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

/// Describes the second set: under construction, or kept for a rollback.
fn phase_in_words(entry: &MirrorInfo) -> String {
    let second = entry.second.as_deref().unwrap_or_default();
    match entry.phase {
        MirrorPhase::Building => format!("building {second}, {} rows so far", entry.rebuild_rows),
        MirrorPhase::Verifying => format!("comparing {second} before the swap"),
        MirrorPhase::Swapped => format!("rebuilt; {second} is kept for a rollback"),
        _ => String::new(),
    }
}

fn equal_in_words(entry: &MirrorInfo, now: Timestamp) -> String {
    match entry.equal_as_of {
        Some(at) => relative(at, now),
        None => "not yet".to_owned(),
    }
}

fn table(entries: &[MirrorInfo], now: Timestamp) -> Columns {
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
            equal_in_words(entry, now),
            entry.rows_compared.to_string(),
            entry.repaired_total.to_string(),
            entry.differences.to_string(),
            entry.serving.clone().unwrap_or_default(),
            phase_in_words(entry),
        ]);
    }
    columns
}

fn text(entry: &MirrorInfo, now: Timestamp) -> String {
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
        ("rebuild", phase_in_words(entry)),
        ("rebuild began", when(entry.rebuild_started_at)),
        ("rebuild ended", when(entry.rebuild_ended_at)),
    ])
}
