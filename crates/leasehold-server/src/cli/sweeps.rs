//! `leasehold sweeps`: list sweeps, pause and run them, redrive their dead rows.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::admin::{SweepInfo, SweepState, Toggle};
use leasehold::sweep::{SweepError, WatchdogRun, run_watchdog};

use super::common::{Common, actor, by};
use super::db::Db;
use super::prompt::{ask_why, confirm};
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{count, nearest, print_duration, relative};

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
    /// Remove a sweep that no worker declares any more; its table stays as it is
    Forget {
        /// Name of the sweep
        name: String,
        /// Record this reason
        #[arg(long)]
        why: Option<String>,
        /// Skip the confirmation
        #[arg(short, long)]
        yes: bool,
    },
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
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
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
        Command::Forget { name, why, yes } => forget(&name, why, yes, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (db.within(db.sweeps().list()).await?, db.now().await?);
    out.list("sweeps", &entries, |entries| table(entries, now))?;
    if entries.is_empty() && out.is_table() {
        out.note("no sweeps; a sweep is listed once a worker that declares it has started");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entry, now) = (find(&db, name).await?, db.now().await?);
    out.one("sweep", &entry, |entry| text(entry, now))?;
    Ok(ExitCode::SUCCESS)
}

async fn pause(name: &str, why: Option<String>, common: &Common) -> Result<ExitCode, Failure> {
    let why = ask_why(why, "--why 'the bucket is down'")?;
    let db = common.db().await?;
    let paused = db.within(db.sweeps().pause(name, &by(Some(why)))).await?;
    report_change(name, paused, "paused", &db, common).await
}

async fn resume(name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let resumed = db.within(db.sweeps().resume(name, &by(None))).await?;
    report_change(name, resumed, "resumed", &db, common).await
}

async fn report_change(
    name: &str,
    changed: Toggle,
    done: &str,
    db: &Db,
    common: &Common,
) -> Result<ExitCode, Failure> {
    if changed != Toggle::Changed {
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
    db.within(db.sweeps().run_now(name, &by(None))).await?;
    let answer = serde_json::json!({ "name": name, "result": "due" });
    out.one("sweep", &answer, |_| format!("sweep {name} is due; its workers run it"))?;
    if entry.paused_at.is_some() {
        out.note(format!("it is paused: leasehold sweeps resume {name}"));
    }
    Ok(ExitCode::SUCCESS)
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
            "forget sweep {name} and the failures of its rows? Table {} stays as it is.",
            entry.table_name
        ))?;
    }
    db.within(db.sweeps().forget(name, &by(why))).await?;
    let answer = serde_json::json!({ "name": name, "result": "forgotten" });
    out.one("sweep", &answer, |_| format!("sweep {name} is forgotten"))?;
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
    let sweeps = db.sweeps();
    let rows = db.within(sweeps.dead(&args.name, args.after.as_deref(), args.limit)).await?;
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
            Some(last) if rows.len() == args.limit as usize => {
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
    let keys = (!args.all).then_some(&args.keys[..]);
    let (by, mut moved) = (by(None), 0);
    loop {
        match db.within(db.sweeps().redrive(&args.name, keys, &by)).await? {
            0 => break,
            some => moved += some.cast_signed(),
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

/// Finds a sweep by name; the error names the nearest known one.
async fn find(db: &Db, name: &str) -> Result<SweepInfo, Failure> {
    if let Some(entry) = db.within(db.sweeps().get(name)).await? {
        return Ok(entry);
    }
    let entries = db.within(db.sweeps().list()).await?;
    let known: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    let failure = Failure::not_found(format!("there is no sweep {name:?}"));
    Err(match nearest(name, &known) {
        Some(near) => failure.hint(format!("did you mean {near:?}?")),
        None => failure.hint(
            "a sweep is listed once a worker that declares it has started: leasehold sweeps list",
        ),
    })
}

/// Describes when a sweep runs.
fn clock(entry: &SweepInfo) -> String {
    match (&entry.cron, &entry.zone, entry.every) {
        (Some(cron), Some(zone), _) => format!("{cron} ({zone})"),
        (_, _, Some(pause)) => format!("continuous, {} apart", print_duration(pause)),
        _ => String::new(),
    }
}

fn state_in_words(entry: &SweepInfo, now: Timestamp) -> String {
    let since = |at: Option<Timestamp>| at.map(|at| relative(at, now)).unwrap_or_default();
    match entry.state {
        SweepState::Paused => {
            let by = entry.paused_by.as_deref().unwrap_or_default();
            let why = entry.paused_why.as_deref().map(|why| format!(": {why}"));
            format!("paused {} by {by}{}", since(entry.paused_at), why.unwrap_or_default())
        }
        SweepState::Running => format!("running since {}", since(entry.run_started_at)),
        state => state.to_string(),
    }
}

fn table(entries: &[SweepInfo], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "NAME", "TABLE", "WHEN", "STATE", "NEXT", "FINISHED", "FAILING", "DEAD", "LOST", "RESET",
    ]);
    for entry in entries {
        columns.row([
            entry.name.clone(),
            entry.table_name.clone(),
            clock(entry),
            state_in_words(entry, now),
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

fn text(entry: &SweepInfo, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let claimed = match (entry.claimed_now, entry.claims_counted_at) {
        (Some(rows), Some(counted)) => {
            let oldest =
                entry.oldest_claim_at.map(|at| format!(", the oldest {}", relative(at, now)));
            format!("{rows}{}, counted {}", oldest.unwrap_or_default(), relative(counted, now))
        }
        _ => "not counted yet".to_owned(),
    };
    fields(&[
        ("sweep", entry.name.clone()),
        ("table", entry.table_name.clone()),
        ("when", clock(entry)),
        ("state", state_in_words(entry, now)),
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
