//! `leasehold sweeps`: list sweeps, pause and run them, redrive their dead rows.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use leasehold::sweep::{SweepError, Watched, watch_by_name};
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::prompt::{ask_why, confirm};
use super::sweep_entry::{claims, dead_rows, entries, find, table, text};
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{count, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List sweeps with their state and counts
    List,
    /// Show one sweep with its claimed rows
    Show {
        /// The name of the sweep
        name: String,
    },
    /// Pause a sweep: workers finish the batches that they have claimed
    #[command(
        after_help = "Example:\n  leasehold sweeps pause pastes.expiry --why 'the bucket is down'"
    )]
    Pause {
        /// The name of the sweep
        name: String,
        /// The reason, shown with the paused sweep
        #[arg(long)]
        why: Option<String>,
    },
    /// Resume a paused sweep
    Resume {
        /// The name of the sweep
        name: String,
    },
    /// Make a sweep due now; workers that have it run it
    Run {
        /// The name of the sweep
        name: String,
    },
    /// Run the watchdog of a sweep once: it resets rows of workers that are gone
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// The name of the sweep
        name: String,
    },
    /// List dead rows
    Dead(DeadArgs),
    /// Redrive dead rows
    #[command(after_help = REDRIVE_HELP)]
    Redrive(RedriveArgs),
}

const WATCH_HELP: &str = "\
A sweep that another role declared is not touched with your rights: its workers are asked, and run its
watchdog within a second.";

const REDRIVE_HELP: &str = "\
Examples:
  leasehold sweeps redrive pastes.expiry aB3xYz
  leasehold sweeps redrive pastes.expiry --all --dry-run

The watchdog brings the rows back, which it does within a second where a worker runs.";

#[derive(Args, Debug)]
pub struct DeadArgs {
    /// The name of the sweep
    name: String,
    /// Only keys after this one: the next page
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    /// The most rows to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

#[derive(Args, Debug)]
pub struct RedriveArgs {
    /// The name of the sweep
    name: String,
    /// The keys of the rows
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// Every dead row
    #[arg(long, conflicts_with = "keys")]
    all: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    yes: bool,
}

/// More rows than this need a confirmation.
const ASK_ABOVE: i64 = 100;
/// Rows changed per statement.
const STEP: i32 = 1000;

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List => list(common).await,
        Command::Show { name } => show(&name, common).await,
        Command::Pause { name, why } => pause(&name, why, common).await,
        Command::Resume { name } => resume(&name, common).await,
        Command::Run { name } => run_now(&name, common).await,
        Command::Watch { name } => watch(&name, common).await,
        Command::Dead(args) => dead(args, common).await,
        Command::Redrive(args) => redrive(args, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (entries(&db).await?, db.now().await?);
    out.list("sweeps", &entries, |entries| table(entries, now))?;
    if entries.is_empty() && out.is_table() {
        out.note("no sweeps; a sweep is known when a worker that has it has started");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entry, now) = (find(&db, name).await?, db.now().await?);
    let claims = claims(&db, name).await?;
    let mut answer = serde_json::to_value(&entry).map_err(Failure::failed)?;
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("claimed_now".to_owned(), serde_json::json!(claims.rows));
        fields.insert("oldest_claim_at".to_owned(), serde_json::json!(claims.oldest_at));
        fields.insert("claims_counted_at".to_owned(), serde_json::json!(claims.counted_at));
    }
    out.one("sweep", &answer, |_| text(&entry, &claims, now))?;
    Ok(ExitCode::SUCCESS)
}

async fn pause(name: &str, why: Option<String>, common: &Common) -> Result<ExitCode, Failure> {
    let why = ask_why(why, "--why 'the bucket is down'")?;
    let db = common.db().await?;
    let sql = "select leasehold.pause_sweep($1, $2, $3)";
    let params = [(&name as _, Type::TEXT), (&actor() as _, Type::TEXT), (&why as _, Type::TEXT)];
    let changed = db.one(sql, &params).await?.get(0);
    told(name, changed, "paused", &db, common).await
}

async fn resume(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let sql = "select leasehold.resume_sweep($1, $2)";
    let params = [(&name as _, Type::TEXT), (&actor() as _, Type::TEXT)];
    let changed = db.one(sql, &params).await?.get(0);
    told(name, changed, "resumed", &db, common).await
}

async fn told(
    name: &str,
    changed: bool,
    done: &str,
    db: &super::Db,
    common: &Common,
) -> Result<ExitCode, Failure> {
    if !changed {
        find(db, name).await?;
        let already = if done == "paused" { "paused already" } else { "not paused" };
        return Err(Failure::conflict(format!("sweep {name} is {already}")));
    }
    let answer = serde_json::json!({ "name": name, "result": done });
    common.out().one("sweep", &answer, |_| format!("sweep {name} is {done}"))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_now(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let entry = find(&db, name).await?;
    let sql = "select leasehold.run_sweep($1, $2)";
    db.one(sql, &[(&name, Type::TEXT), (&actor(), Type::TEXT)]).await?;
    let answer = serde_json::json!({ "name": name, "result": "due" });
    out.one("sweep", &answer, |_| format!("sweep {name} is due; its workers run it"))?;
    if entry.paused_at.is_some() {
        out.note(format!("it is paused: leasehold sweeps resume {name}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn watch(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let engine = common.engine().await?;
    let watched = watch_by_name(&engine, name, &actor()).await.map_err(|error| match error {
        SweepError::Connect(error) => Failure::from(error),
        error @ (SweepError::Declaration(_) | SweepError::Table(_)) => {
            Failure::conflict(error.to_string())
                .hint("the table has changed since a worker declared the sweep; start one")
        }
        error => Failure::failed(error),
    })?;
    let report = match watched {
        Some(Watched::Ran(report)) => report,
        Some(Watched::Asked) => {
            let answer = serde_json::json!({ "name": name, "asked": true });
            out.one("watch", &answer, |_| {
                format!("the workers of sweep {name} run its watchdog within a second")
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        None => {
            find(&common.db().await?, name).await?;
            return Err(Failure::not_found(format!("there is no sweep {name:?}")));
        }
    };
    let answer = serde_json::json!({
        "name": name, "reset": report.reset, "retried": report.retried, "more": report.more,
    });
    out.one("watch", &answer, |_| {
        format!("{} of dead workers and {} that failed wait again", report.reset, report.retried)
    })?;
    if report.more {
        out.note("the run stopped at its limit; there may be more");
    }
    Ok(ExitCode::SUCCESS)
}

async fn dead(args: DeadArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    find(&db, &args.name).await?;
    let rows = dead_rows(&db, &args.name, args.after.as_deref(), args.limit).await?;
    let now = db.now().await?;
    out.list("rows", &rows, |rows| {
        let mut columns = Columns::new(&["KEY", "ATTEMPTS", "DIED", "ERROR"]);
        for row in rows {
            columns.row([
                row.key.clone(),
                row.attempts.to_string(),
                relative(row.dead_at, now),
                row.last_error.clone(),
            ]);
        }
        columns
    })?;
    if out.is_table() {
        match rows.last() {
            None => out.note("no dead rows"),
            Some(last) if rows.len() as i64 == args.limit => {
                out.note(format!("more may follow: --after {:?}", last.key));
            }
            Some(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn redrive(args: RedriveArgs, common: &Common) -> Result<ExitCode, Failure> {
    if args.keys.is_empty() && !args.all {
        return Err(Failure::refused("say which rows to redrive")
            .hint("give keys, or --all to redrive every one"));
    }
    let (out, db) = (common.out(), common.db().await?);
    let entry = find(&db, &args.name).await?;
    let said = |rows: i64| count(usize::try_from(rows).unwrap_or(0), "row");
    let wanted = if args.all { entry.dead } else { args.keys.len() as i64 };
    if args.dry_run {
        out.note(format!("would redrive {}; nothing was changed", said(wanted)));
        return Ok(ExitCode::SUCCESS);
    }
    if wanted > ASK_ABOVE && !args.yes {
        confirm(&format!("redrive {}?", said(wanted)))?;
    }
    let keys = (!args.all).then_some(&args.keys);
    let (actor, mut moved) = (actor(), 0);
    loop {
        let rows = db
            .query(
                "select leasehold.redrive_sweep($1, $2, $3, $4)",
                &[
                    (&args.name, Type::TEXT),
                    (&keys, Type::TEXT_ARRAY),
                    (&actor, Type::TEXT),
                    (&STEP, Type::INT4),
                ],
            )
            .await?;
        moved += rows.len() as i64;
        if rows.is_empty() {
            break;
        }
    }
    if moved == 0 && !args.all {
        return Err(Failure::not_found("none of these rows is dead")
            .hint(format!("see which are: leasehold sweeps dead {}", args.name)));
    }
    let answer = serde_json::json!({ "name": args.name, "redriven": moved });
    out.one("sweep", &answer, |_| format!("{}: redriven", said(moved)))?;
    Ok(ExitCode::SUCCESS)
}
