//! `leasehold mirrors`: stores that are kept equal to tables.
//!
//! Only a worker can reach the store: commands that need it enqueue an order in the database, and print
//! its job.

use std::process::ExitCode;

use clap::Subcommand;
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::db::Db;
use super::mirror_entry::{Entry, differences, entries, find, table, text};
use super::prompt::confirm;
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{count, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List mirrors: since when they are equal, what was checked and repaired
    List,
    /// Show one mirror
    Show {
        /// The name of the mirror
        name: String,
    },
    /// List rows that differ, the oldest first
    Differences {
        /// The name of the mirror
        name: String,
        /// The most rows to list
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// Order a worker to compare rows with the store again, and to write those that differ; with --force
    /// all of them
    #[command(
        after_help = "Example:\n  leasehold mirrors reindex annotations.index aB3xYz --force"
    )]
    Reindex {
        /// The name of the mirror
        name: String,
        /// The keys of the rows
        #[arg(value_name = "KEY", required = true)]
        keys: Vec<String>,
        /// Write them even if the store has them
        #[arg(long)]
        force: bool,
        /// Lower runs first; changes of rows have 1
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(0..1_000_000))]
        priority: i32,
    },
    /// Order a worker to compare everything now
    Check {
        /// The name of the mirror
        name: String,
    },
    /// Order a worker to fill a second set of documents, prove it equal and swap it in
    #[command(after_help = REBUILD_HELP)]
    Rebuild {
        /// The name of the mirror
        name: String,
    },
    /// Order a worker to go back to the set from before the rebuild
    Rollback {
        /// The name of the mirror
        name: String,
    },
    /// Order a worker to remove the second set: the former one, or one under construction
    Drop {
        /// The name of the mirror
        name: String,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
}

const REBUILD_HELP: &str = "\
Examples:
  leasehold mirrors rebuild annotations.index
  leasehold mirrors show annotations.index      how far it is
  leasehold mirrors rollback annotations.index  back to the former set
  leasehold mirrors drop annotations.index      when the former set is not needed any more

Saves and searches go on meanwhile. The former set is written on until it is dropped.";

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
        out.note("no mirrors; a mirror is known when it was installed");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entry, now) = (find(&db, name).await?, db.now().await?);
    out.one("mirror", &entry, |entry| text(entry, now))?;
    if entry.differences > 0 && out.is_table() {
        out.note(format!("see which rows differ: leasehold mirrors differences {name}"));
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
        out.note("nothing differs");
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
    let sql = "select leasehold.mirror_reindex($1, $2, 'mirrors reindex', $3, $4)";
    let params = [
        (&name as _, Type::TEXT),
        (&keys as _, Type::TEXT_ARRAY),
        (&priority as _, Type::INT4),
        (&force as _, Type::BOOL),
    ];
    let made: i64 = db.one(sql, &params).await?.get(0);
    let answer = serde_json::json!({ "name": name, "jobs": made });
    out.one("mirror", &answer, |_| {
        format!("{}: the store is asked for them", count(keys.len(), "row"))
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn rebuild(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase == "swapped" {
        return Err(Failure::conflict(format!(
            "mirror {name} still has the set from before its last rebuild"
        ))
        .hint(format!("leasehold mirrors drop {name}")));
    }
    order(name, "rebuild", common).await
}

async fn rollback(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let entry = find(&common.db().await?, name).await?;
    if entry.phase != "swapped" {
        return Err(Failure::conflict(format!("mirror {name} has no former set to go back to")));
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

/// Enqueues an order for a worker that has the store.
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
    out.one("order", &answer, |_| {
        format!("asked for: {what} of mirror {name}, as job {job}; a worker that has it does it")
    })?;
    if !somebody_has_it(&db, &entry).await? {
        out.note(format!("no living worker has this mirror; it waits (leasehold jobs show {job})"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn somebody_has_it(db: &Db, entry: &Entry) -> Result<bool, Failure> {
    let sql = "select exists (select from leasehold.worker_state w \
                where w.state = 'alive' and $1 = any (w.names) and $2 = any (w.queues))";
    let params = [(&entry.job_name as _, Type::TEXT), (&entry.queue as _, Type::TEXT)];
    Ok(db.one(sql, &params).await?.get(0))
}
