//! `leasehold sweeps`: list sweeps, pause and run them, redrive their dead rows.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::sweep::{SweepError, WatchdogRun, run_watchdog};
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::db::Db;
use super::prompt::{ask_why, confirm};
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{count, nearest, relative, seconds};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List sweeps with their state and counts
    List,
    /// Show one sweep with its claimed rows
    Show {
        /// Name of the sweep
        name: String,
    },
    /// Pause a sweep: workers finish claimed batches and start no others
    #[command(
        after_help = "Example:\n  leasehold sweeps pause pastes.expiry --why 'the bucket is down'"
    )]
    Pause {
        /// Name of the sweep
        name: String,
        /// Record this reason; it is shown with the paused sweep
        #[arg(long)]
        why: Option<String>,
    },
    /// Resume a paused sweep
    Resume {
        /// Name of the sweep
        name: String,
    },
    /// Make a sweep due now; its workers run it
    Run {
        /// Name of the sweep
        name: String,
    },
    /// Run the watchdog of a sweep once; it resets rows of dead workers
    #[command(after_help = WATCHDOG_HELP)]
    Watchdog {
        /// Name of the sweep
        name: String,
    },
    /// List dead rows
    Dead(DeadArgs),
    /// Redrive dead rows
    #[command(after_help = REDRIVE_HELP)]
    Redrive(RedriveArgs),
}

const WATCHDOG_HELP: &str = "\
If another role declared the sweep, the command asks its workers instead, which run the watchdog with
their own rights within a second.";

const REDRIVE_HELP: &str = "\
Examples:
  leasehold sweeps redrive pastes.expiry aB3xYz
  leasehold sweeps redrive pastes.expiry --all --dry-run

A running worker redrives the rows within a second.";

#[derive(Args, Debug)]
pub struct DeadArgs {
    /// Name of the sweep
    name: String,
    /// Continue after this key
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    /// List at most this many rows
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

#[derive(Args, Debug)]
pub struct RedriveArgs {
    /// Name of the sweep
    name: String,
    /// Keys of the rows
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// Select every dead row
    #[arg(long, conflicts_with = "keys")]
    all: bool,
    /// Show how many rows would change, and change nothing
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
        Command::Watchdog { name } => watchdog(&name, common).await,
        Command::Dead(args) => dead(args, common).await,
        Command::Redrive(args) => redrive(args, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (entries(&db).await?, db.now().await?);
    out.list("sweeps", &entries, |entries| table(entries, now))?;
    if entries.is_empty() && out.is_table() {
        out.note("no sweeps; a sweep is listed once a worker that declares it has started");
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
    report_change(name, changed, "paused", &db, common).await
}

async fn resume(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let sql = "select leasehold.resume_sweep($1, $2)";
    let params = [(&name as _, Type::TEXT), (&actor() as _, Type::TEXT)];
    let changed = db.one(sql, &params).await?.get(0);
    report_change(name, changed, "resumed", &db, common).await
}

async fn report_change(
    name: &str,
    changed: bool,
    done: &str,
    db: &Db,
    common: &Common,
) -> Result<ExitCode, Failure> {
    if !changed {
        find(db, name).await?;
        let already = if done == "paused" { "already paused" } else { "not paused" };
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

async fn watchdog(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let engine = common.engine().await?;
    let ran = run_watchdog(&engine, name, &actor()).await.map_err(|error| match error {
        SweepError::Connect(error) => Failure::from(error),
        error @ (SweepError::Declaration(_) | SweepError::Table(_)) => Failure::conflict(
            error.to_string(),
        )
        .hint("the table has changed since a worker declared the sweep; start that worker again"),
        error => Failure::failed(error),
    })?;
    let report = match ran {
        Some(WatchdogRun::Ran(report)) => report,
        Some(WatchdogRun::Asked) => {
            let answer = serde_json::json!({ "name": name, "asked": true });
            out.one("watchdog", &answer, |_| {
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
    out.one("watchdog", &answer, |_| {
        format!(
            "{} rows of dead workers and {} failed rows are waiting again",
            report.reset, report.retried
        )
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
        return Err(Failure::refused("no rows are selected to redrive")
            .hint("give keys, or --all to redrive every dead row"));
    }
    let (out, db) = (common.out(), common.db().await?);
    let entry = find(&db, &args.name).await?;
    let amount = |rows: i64| count(usize::try_from(rows).unwrap_or(0), "row");
    let wanted = if args.all { entry.dead } else { args.keys.len() as i64 };
    if args.dry_run {
        out.note(format!("would redrive {}; nothing was changed", amount(wanted)));
        return Ok(ExitCode::SUCCESS);
    }
    if wanted > ASK_ABOVE && !args.yes {
        confirm(&format!("redrive {}?", amount(wanted)))?;
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
            .hint(format!("list dead rows: leasehold sweeps dead {}", args.name)));
    }
    let answer = serde_json::json!({ "name": args.name, "redriven": moved });
    out.one("sweep", &answer, |_| format!("{} redriven", amount(moved)))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Entry {
    name: String,
    table_name: String,
    state: String,
    cron: Option<String>,
    zone: Option<String>,
    every_seconds: Option<f64>,
    next_run_at: Timestamp,
    run_started_at: Option<Timestamp>,
    run_ended_at: Option<Timestamp>,
    watchdog_ran_at: Option<Timestamp>,
    paused_at: Option<Timestamp>,
    paused_by: Option<String>,
    paused_why: Option<String>,
    rows_claimed: i64,
    rows_finished: i64,
    rows_failed: i64,
    rows_lost: i64,
    rows_reset: i64,
    /// Rows that failed and are retried.
    failing: i64,
    dead: i64,
}

/// A dead row.
#[derive(Serialize)]
struct DeadRow {
    key: String,
    attempts: i32,
    last_error: String,
    failed_at: Timestamp,
    dead_at: Timestamp,
}

/// Returns every sweep, by name.
async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let rows = db.query(include_str!("../../queries/sweeps.sql"), &[]).await?;
    Ok(rows.iter().map(read).collect())
}

fn read(row: &Row) -> Entry {
    Entry {
        name: row.get("name"),
        table_name: row.get("table_name"),
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
        rows_claimed: row.get("rows_claimed"),
        rows_finished: row.get("rows_finished"),
        rows_failed: row.get("rows_failed"),
        rows_lost: row.get("rows_lost"),
        rows_reset: row.get("rows_reset"),
        failing: row.get("failing"),
        dead: row.get("dead"),
    }
}

/// Finds a sweep by name; the error names the nearest known one.
async fn find(db: &Db, name: &str) -> Result<Entry, Failure> {
    let mut entries = entries(db).await?;
    if let Some(at) = entries.iter().position(|entry| entry.name == name) {
        return Ok(entries.swap_remove(at));
    }
    let known: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let failure = Failure::not_found(format!("there is no sweep {name:?}"));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure.hint(
            "a sweep is listed once a worker that declares it has started: leasehold sweeps list",
        ),
    })
}

/// The last count of a sweep's watchdog.
struct Claims {
    /// `None`: it has not counted yet.
    rows: Option<i64>,
    oldest_at: Option<Timestamp>,
    counted_at: Option<Timestamp>,
}

/// Returns how many rows are claimed, as the watchdog counted them. This does not read the swept table:
/// it belongs to the role that declared the sweep, and its code would run with the operator's rights.
async fn claims(db: &Db, name: &str) -> Result<Claims, Failure> {
    let sql = "select claimed_now, oldest_claim_at, claims_counted_at from leasehold_internal.sweep where name = $1";
    let row = db.one(sql, &[(&name, Type::TEXT)]).await?;
    Ok(Claims { rows: row.get(0), oldest_at: row.get(1), counted_at: row.get(2) })
}

async fn dead_rows(
    db: &Db,
    name: &str,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<DeadRow>, Failure> {
    let params = [(&name as _, Type::TEXT), (&after as _, Type::TEXT), (&limit as _, Type::INT8)];
    let rows = db.query(include_str!("../../queries/sweep_dead.sql"), &params).await?;
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

fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "NAME", "TABLE", "WHEN", "STATE", "NEXT", "FINISHED", "FAILING", "DEAD", "LOST", "RESET",
    ]);
    for entry in entries {
        columns.row([
            entry.name.clone(),
            entry.table_name.clone(),
            entry.clock(),
            entry.state_in_words(now),
            relative(entry.next_run_at, now),
            entry.rows_finished.to_string(),
            entry.failing.to_string(),
            entry.dead.to_string(),
            entry.rows_lost.to_string(),
            entry.rows_reset.to_string(),
        ]);
    }
    columns
}

fn text(entry: &Entry, claims: &Claims, now: Timestamp) -> String {
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
        ("table", entry.table_name.clone()),
        ("when", entry.clock()),
        ("state", entry.state_in_words(now)),
        ("next run", when(Some(entry.next_run_at))),
        ("run began", when(entry.run_started_at)),
        ("run ended", when(entry.run_ended_at)),
        ("watchdog", when(entry.watchdog_ran_at)),
        ("claimed now", claimed),
        ("failing", entry.failing.to_string()),
        ("dead", entry.dead.to_string()),
        ("finished", entry.rows_finished.to_string()),
        ("claimed", entry.rows_claimed.to_string()),
        ("failed", entry.rows_failed.to_string()),
        ("lost", entry.rows_lost.to_string()),
        ("reset", entry.rows_reset.to_string()),
    ])
}
