//! `leasehold queues`: list queues, pause and resume them, change their settings.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::known::check_queue;
use super::prompt::ask_why;
use super::queue_entry::{Queue, read, table};
use crate::exit::Failure;
use crate::text::{parse_duration, seconds};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List queues with their jobs and workers
    List,
    /// Pause a queue: workers claim no more of its jobs, running jobs continue
    #[command(after_help = "Example:\n  leasehold queues pause mail --why 'the provider is down'")]
    Pause {
        /// The name of the queue
        queue: String,
        /// The reason, shown with the paused queue
        #[arg(long)]
        why: Option<String>,
        /// Allow a queue that does not exist yet
        #[arg(long)]
        new_queue: bool,
    },
    /// Resume a paused queue
    Resume {
        /// The name of the queue
        queue: String,
    },
    /// Change the settings of a queue
    #[command(after_help = SET_HELP, override_usage = "leasehold queues set <QUEUE> <SETTING>...")]
    Set(SetArgs),
}

const SET_HELP: &str = "\
Examples:
  leasehold queues set mail --max-attempts 8 --backoff 5s..1h
  leasehold queues set video --lease 2m --run-limit 6h

Running jobs keep the lease they were claimed with. Workers apply a new batch size after a restart.";

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["lease", "max_attempts", "max_lost", "batch", "run_limit", "backoff", "history",
           "display_name", "owner"]))]
pub struct SetArgs {
    /// The name of the queue
    queue: String,
    /// How long a claim lasts without renewal. Longer: slower recovery after a crash
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    lease: Option<Duration>,
    /// How often a job may start before it is buried
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    max_attempts: Option<i32>,
    /// How many workers may die under a job before it is buried
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    max_lost: Option<i32>,
    /// The most jobs that one claim takes
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..))]
    batch: Option<i32>,
    /// A handler that is still running after this is given up
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    run_limit: Option<Duration>,
    /// The wait after a failed attempt, doubling from the first to the longest: 1s..1h
    #[arg(long, value_parser = parse_backoff, value_name = "FIRST..LONGEST")]
    backoff: Option<(Duration, Duration)>,
    /// Whether finished jobs are kept in history
    #[arg(long, value_parser = ["on", "off"])]
    history: Option<String>,
    /// The name that operators see; '' removes it
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// The owner; '' removes it
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
}

fn parse_backoff(text: &str) -> Result<(Duration, Duration), String> {
    let (first, longest) =
        text.split_once("..").ok_or("write the first and the longest wait: 1s..1h")?;
    let (first, longest) = (parse_duration(first)?, parse_duration(longest)?);
    if first > longest {
        return Err("the first wait is longer than the longest".to_owned());
    }
    Ok((first, longest))
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List => list(common).await,
        Command::Pause { queue, why, new_queue } => pause(&queue, why, new_queue, common).await,
        Command::Resume { queue } => resume(&queue, common).await,
        Command::Set(args) => set(args, common).await,
    }
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let rows = db.query(include_str!("../queries/queues.sql"), &[]).await?;
    let queues: Vec<Queue> = rows.iter().map(read).collect();
    let now = db.now().await?;
    out.list("queues", &queues, |queues| table(queues, now))?;
    if out.is_table() {
        if queues.is_empty() {
            out.note("no queues yet; the first job makes one");
        }
        for queue in queues
            .iter()
            .filter(|queue| queue.ready > 0 && queue.workers == 0 && queue.paused_at.is_none())
        {
            out.note(format!("queue {} has work and no live worker", queue.queue));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn pause(
    queue: &str,
    why: Option<String>,
    new_queue: bool,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    if !new_queue {
        check_queue(&db, queue).await?;
    }
    let why = ask_why(why, "--why TEXT")?;
    let actor = actor();
    let sql = "select leasehold.pause($1, $2, $3)";
    let row =
        db.one(sql, &[(&queue, Type::TEXT), (&actor, Type::TEXT), (&why, Type::TEXT)]).await?;
    if !row.get::<_, bool>(0) {
        return Err(Failure::conflict(format!("queue {queue} is paused already"))
            .hint("see by whom and why: leasehold queues list"));
    }
    let answer = serde_json::json!({ "queue": queue, "paused": true, "paused_by": actor, "paused_why": why });
    out.one("queue", &answer, |_| format!("queue {queue} is paused; running jobs go on"))?;
    Ok(ExitCode::SUCCESS)
}

async fn resume(queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    check_queue(&db, queue).await?;
    let sql = "select leasehold.resume($1, $2)";
    let row = db.one(sql, &[(&queue, Type::TEXT), (&actor(), Type::TEXT)]).await?;
    if !row.get::<_, bool>(0) {
        return Err(Failure::conflict(format!("queue {queue} is not paused")));
    }
    let answer = serde_json::json!({ "queue": queue, "paused": false });
    out.one("queue", &answer, |_| format!("queue {queue} goes on"))?;
    Ok(ExitCode::SUCCESS)
}

async fn set(args: SetArgs, common: &Common) -> Result<ExitCode, Failure> {
    if args.lease.is_some_and(|lease| lease < Duration::from_secs(1)) {
        return Err(Failure::usage("a lease is at least 1s"));
    }
    let (out, db) = (common.out(), common.db().await?);
    if !args.new_queue {
        check_queue(&db, &args.queue).await?;
    }
    let time = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let (first, longest) =
        args.backoff.map_or((None, None), |(first, longest)| (Some(first), Some(longest)));
    let history = args.history.map(|word| word == "on");
    let row = db
        .one(
            include_str!("../queries/set_queue.sql"),
            &[
                (&args.queue, Type::TEXT),
                (&actor(), Type::TEXT),
                (&time(args.lease), Type::FLOAT8),
                (&args.max_attempts, Type::INT4),
                (&args.max_lost, Type::INT4),
                (&args.batch, Type::INT4),
                (&time(args.run_limit), Type::FLOAT8),
                (&time(first), Type::FLOAT8),
                (&time(longest), Type::FLOAT8),
                (&history, Type::BOOL),
                (&args.display_name, Type::TEXT),
                (&args.owner, Type::TEXT),
            ],
        )
        .await?;
    let settings: serde_json::Value = row.get(0);
    out.one("queue", &settings, |settings| {
        let time = |name: &str| seconds(settings[name].as_f64().unwrap_or(0.0));
        let backoff =
            format!("{}..{}", time("backoff_first_seconds"), time("backoff_longest_seconds"));
        crate::output::fields(&[
            ("queue", args.queue.clone()),
            ("lease", time("lease_seconds")),
            ("max attempts", settings["max_attempts"].to_string()),
            ("max lost", settings["max_lost"].to_string()),
            ("batch", settings["batch"].to_string()),
            ("run limit", time("run_limit_seconds")),
            ("backoff", backoff),
            ("history", if settings["keep_history"] == true { "on" } else { "off" }.to_owned()),
            ("called", settings["display_name"].as_str().unwrap_or_default().to_owned()),
            ("owner", settings["owner"].as_str().unwrap_or_default().to_owned()),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}
