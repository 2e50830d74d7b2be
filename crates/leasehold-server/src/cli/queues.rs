//! `leasehold queues`: list queues, pause and resume them, change their settings.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::admin::{QueueChange, QueueInfo, Toggle};

use super::common::{Common, by};
use super::databases::{Databases, Row, cells, header};
use super::db::Db;
use super::known::{check_existing, check_queue};
use super::prompt::ask_why;
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{parse_duration, print_duration, relative, whole};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List queues with their jobs and workers
    List {
        #[command(flatten)]
        databases: Databases,
    },
    /// Pause a queue: workers claim none of its jobs; running jobs continue
    #[command(after_help = "Example:\n  leasehold queues pause mail --why 'the provider is down'")]
    Pause {
        /// Name of the queue
        queue: String,
        /// Record this reason; it is shown with the paused queue
        #[arg(long)]
        why: Option<String>,
        /// Allow a queue that does not exist yet
        #[arg(long)]
        new_queue: bool,
    },
    /// Resume a paused queue
    Resume {
        /// Name of the queue
        queue: String,
    },
    /// Change settings of a queue
    #[command(after_help = SET_HELP, override_usage = "leasehold queues set <QUEUE> <SETTING>...")]
    Set(SetArgs),
}

const SET_HELP: &str = "\
Examples:
  leasehold queues set mail --max-attempts 8 --backoff 5s..1h
  leasehold queues set video --lease 2m --run-limit 6h

Running jobs keep the lease they were claimed with. Workers apply a new claim size after a restart.";

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true)
    .args(["lease", "max_attempts", "max_lost", "claim_size", "run_limit", "backoff", "history",
           "display_name", "owner"]))]
pub struct SetArgs {
    /// Name of the queue
    queue: String,
    /// Let a claim last this long without renewal. Longer: slower recovery after a crash
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    lease: Option<Duration>,
    /// Bury a job after this many attempts
    #[arg(long, value_parser = whole::<i32>(1, i32::MAX.into()))]
    max_attempts: Option<i32>,
    /// Bury a job after this many workers died while they ran it
    #[arg(long, value_parser = whole::<i32>(1, i32::MAX.into()))]
    max_lost: Option<i32>,
    /// Claim at most this many jobs at once
    #[arg(long, value_parser = whole::<i32>(1, i32::MAX.into()))]
    claim_size: Option<i32>,
    /// Stop a handler that still runs after this time, and fail its attempt
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    run_limit: Option<Duration>,
    /// Wait after a failed attempt, doubling from BASE up to CAP: 1s..1h
    #[arg(long, value_parser = parse_backoff, value_name = "BASE..CAP")]
    backoff: Option<(Duration, Duration)>,
    /// Keep finished jobs in history
    #[arg(long, value_parser = ["on", "off"])]
    history: Option<String>,
    /// Show this name to operators; '' removes it
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Record this owner; '' removes it
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
}

fn parse_backoff(text: &str) -> Result<(Duration, Duration), String> {
    let (base, cap) = text.split_once("..").ok_or("write the base and the cap: 1s..1h")?;
    let (base, cap) = (parse_duration(base)?, parse_duration(cap)?);
    if base > cap {
        return Err("the base is longer than the cap; write 1s..1h".to_owned());
    }
    Ok((base, cap))
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List { databases } => list(&databases, common).await,
        Command::Pause { queue, why, new_queue } => pause(&queue, why, new_queue, common).await,
        Command::Resume { queue } => resume(&queue, common).await,
        Command::Set(args) => set(args, common).await,
    }
}

/// The most queues to name below a list.
const MOST_NOTES: usize = 10;

async fn list(databases: &Databases, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let ask = async |db: &Db| Ok((db.within(db.queues().list()).await?, db.now().await?));
    let found = databases.ask(common, ask).await?;
    let rows: Vec<_> = found
        .of
        .iter()
        .flat_map(|(name, (queues, _))| {
            queues.iter().map(|row| Row { database: name.as_deref(), row })
        })
        .collect();
    let is_fleet = found.is_fleet();
    // Ages by the clock of each server would differ by less than a reader notices.
    let now = found.of.first().map(|(_, (_, now))| *now).unwrap_or_default();
    out.list("queues", &rows, |rows| table(rows, is_fleet, now))?;
    if out.is_table() {
        if rows.is_empty() {
            out.note("no queues yet; the first job creates one");
        }
        let is_idle =
            |queue: &QueueInfo| queue.ready > 0 && queue.workers == 0 && queue.paused_at.is_none();
        let idle: Vec<_> = rows.iter().filter(|row| is_idle(row.row)).collect();
        for Row { database, row } in idle.iter().take(MOST_NOTES) {
            let of = database.map(|name| format!(" of {name}")).unwrap_or_default();
            out.note(format!("queue {}{of} has ready jobs and no live worker", row.queue));
        }
        if let more @ 1.. = idle.len().saturating_sub(MOST_NOTES) {
            out.note(format!("and {} like this", crate::text::count(more, "more queue")));
        }
    }
    Ok(found.conclude(out))
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
    let by = by(Some(why));
    if db.within(db.queues().pause(queue, &by)).await? != Toggle::Done {
        return Err(Failure::conflict(format!("queue {queue} is already paused"))
            .hint("see who paused it and why: leasehold queues list"));
    }
    let answer = serde_json::json!({
        "queue": queue, "paused": true, "paused_by": by.actor(), "paused_why": by.reason(),
    });
    out.one("queue", &answer, |_| format!("queue {queue} is paused; running jobs continue"))?;
    Ok(ExitCode::SUCCESS)
}

async fn resume(queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    check_existing(&db, queue).await?;
    if db.within(db.queues().resume(queue, &by(None))).await? != Toggle::Done {
        return Err(Failure::conflict(format!("queue {queue} is not paused")));
    }
    let answer = serde_json::json!({ "queue": queue, "paused": false });
    out.one("queue", &answer, |_| format!("queue {queue} is resumed"))?;
    Ok(ExitCode::SUCCESS)
}

async fn set(args: SetArgs, common: &Common) -> Result<ExitCode, Failure> {
    if args.lease.is_some_and(|lease| lease < Duration::from_secs(1)) {
        return Err(Failure::usage("--lease is shorter than 1s; give at least 1s"));
    }
    let (out, db) = (common.out(), common.db().await?);
    if !args.new_queue {
        check_queue(&db, &args.queue).await?;
    }
    let mut change = QueueChange::new();
    if let Some(lease) = args.lease {
        change = change.lease(lease);
    }
    if let Some(most) = args.max_attempts {
        change = change.max_attempts(most);
    }
    if let Some(most) = args.max_lost {
        change = change.max_lost(most);
    }
    if let Some(most) = args.claim_size {
        change = change.claim_size(most);
    }
    if let Some(limit) = args.run_limit {
        change = change.run_limit(limit);
    }
    if let Some((base, cap)) = args.backoff {
        change = change.backoff(base, cap);
    }
    if let Some(word) = &args.history {
        change = change.keep_history(word == "on");
    }
    if let Some(name) = &args.display_name {
        change = change.display_name(name);
    }
    if let Some(owner) = &args.owner {
        change = change.owner(owner);
    }
    let settings = db.within(db.queues().set(&args.queue, &change, &by(None))).await?;
    let mut answer = serde_json::to_value(&settings).map_err(Failure::failed)?;
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("queue".to_owned(), args.queue.clone().into());
    }
    out.one("queue", &answer, |_| {
        let backoff = format!(
            "{}..{}",
            print_duration(settings.backoff_base),
            print_duration(settings.backoff_cap)
        );
        crate::output::fields(&[
            ("queue", args.queue.clone()),
            ("lease", print_duration(settings.lease)),
            ("max attempts", settings.max_attempts.to_string()),
            ("max lost", settings.max_lost.to_string()),
            ("claim size", settings.claim_size.to_string()),
            ("run limit", print_duration(settings.run_limit)),
            ("backoff", backoff),
            ("history", if settings.keep_history { "on" } else { "off" }.to_owned()),
            ("display name", settings.display_name.clone().unwrap_or_default()),
            ("owner", settings.owner.clone().unwrap_or_default()),
        ])
    })?;
    Ok(ExitCode::SUCCESS)
}

const HEADER: [&str; 12] = [
    "QUEUE",
    "READY",
    "OLDEST",
    "RUNNING",
    "SCHEDULED",
    "RETRYING",
    "DEAD",
    "DEAD EXPIRED",
    "WORKERS",
    "LEASE",
    "ATTEMPTS",
    "PAUSED",
];

fn table(queues: &[Row<'_, QueueInfo>], is_fleet: bool, now: Timestamp) -> Columns {
    let mut columns = Columns::new(&header(is_fleet, &HEADER));
    for Row { database, row: queue } in queues {
        let paused = queue.paused_at.map(|at| {
            let by = queue.paused_by.as_deref().unwrap_or_default();
            let why = queue.paused_why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{} by {by}{why}", relative(at, now))
        });
        let row = [
            queue.queue.clone(),
            queue.ready.to_string(),
            queue.oldest_ready_at.map(|at| relative(at, now)).unwrap_or_default(),
            queue.running.to_string(),
            queue.scheduled.to_string(),
            queue.retrying.to_string(),
            queue.dead.to_string(),
            queue.dead_expired.to_string(),
            queue.workers.to_string(),
            queue.settings.as_ref().map(|set| print_duration(set.lease)).unwrap_or_default(),
            queue.settings.as_ref().map(|set| set.max_attempts.to_string()).unwrap_or_default(),
            paused.unwrap_or_default(),
        ];
        columns.row(cells(*database, row));
    }
    columns
}
