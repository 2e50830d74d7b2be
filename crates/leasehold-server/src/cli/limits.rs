//! `leasehold limits`: how many jobs of one limit key run.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use leasehold::Limit;
use leasehold::admin::{LimitInfo, LimitKeyInfo, LimitSource, LimitState, Toggle};

use super::common::{Common, by};
use super::known::{DEFAULT, check_queue};
use crate::exit::Failure;
use crate::output::Columns;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List limits and where they come from
    List {
        /// Only of this queue
        #[arg(long)]
        queue: Option<String>,
    },
    /// Show a limit
    Show(Key),
    /// Set a limit of a key, or of all keys with this text before their first ':'
    #[command(after_help = SET_HELP)]
    Set(SetArgs),
    /// Remove a limit that an operator set; the one that code declares applies again
    Remove {
        #[command(flatten)]
        key: Key,
        /// Remove the limit that code declared and no longer does
        #[arg(long)]
        declared: bool,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// List limit keys that have jobs, or are paused
    Keys {
        #[arg(long, default_value = DEFAULT, help = "Queue of the keys")]
        queue: String,
        /// Only keys that cannot start a job: full or paused
        #[arg(long)]
        blocked: bool,
        /// Continue after this key
        #[arg(long, default_value = "", value_name = "KEY")]
        after: String,
        /// Show this many keys
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=10_000))]
        count: i32,
    },
    /// Pause a limit key: its jobs wait, running ones continue
    Pause {
        #[command(flatten)]
        key: Key,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Resume a paused limit key
    Resume {
        #[command(flatten)]
        key: Key,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
}

const SET_HELP: &str = "\
Examples:
  leasehold limits set tenant --max-running 3 --queue sync
  leasehold limits set tenant:7 --max-running 10 --why 'large customer'

A limit of this very key comes before one of the text before its first ':'. What an operator sets comes \
before what code declares.";

#[derive(Args, Debug)]
pub struct Key {
    /// Limit key, such as tenant:7
    key: String,
    #[arg(long, default_value = DEFAULT, help = "Queue of the jobs")]
    queue: String,
}

#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    key: Key,
    /// Run at most this many jobs of one key at the same time. Default: any number
    #[arg(long, value_name = "JOBS")]
    max_running: Option<i32>,
    /// Give a key this many jobs for one job of a key with weight 1
    #[arg(long, default_value_t = 1)]
    weight: i32,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
    /// Record this reason in the audit log
    #[arg(long)]
    why: Option<String>,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List { queue } => list(queue.as_deref(), common).await,
        Command::Show(key) => show(&key, common).await,
        Command::Set(args) => set(args, common).await,
        Command::Remove { key, declared, why } => remove(&key, declared, why, common).await,
        Command::Keys { queue, blocked, after, count } => {
            keys(&queue, blocked, &after, count, common).await
        }
        Command::Pause { key, why } => toggle(&key, why, true, common).await,
        Command::Resume { key, why } => toggle(&key, why, false, common).await,
    }
}

fn most(max_running: Option<i32>) -> String {
    max_running.map_or("any number".to_owned(), |most| most.to_string())
}

fn source(limit: &LimitInfo) -> String {
    let declared = match limit.declared_weight {
        Some(_) => format!(", code declares {}", most(limit.declared_max_running)),
        None => String::new(),
    };
    match limit.source {
        LimitSource::Operator => format!("operator {}{declared}", limit.set_by),
        _ => format!("code of {}", limit.set_by),
    }
}

async fn list(queue: Option<&str>, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let limits = db.within(db.limits().list(queue)).await?;
    out.list("limits", &limits, |limits| {
        let mut columns = Columns::new(&["QUEUE", "KEY", "MAX RUNNING", "WEIGHT", "SET BY"]);
        for limit in limits {
            columns.row([
                limit.queue.clone(),
                limit.key.clone(),
                most(limit.max_running),
                limit.weight.to_string(),
                source(limit),
            ]);
        }
        columns
    })?;
    if limits.is_empty() && out.is_table() {
        out.note("no limits");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(key: &Key, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let Some(limit) = db.within(db.limits().get(&key.queue, &key.key)).await? else {
        return Err(missing(key));
    };
    out.one("limit", &limit, |limit| {
        format!(
            "limit {} of queue {}: max running {}, weight {}; {}",
            limit.key,
            limit.queue,
            most(limit.max_running),
            limit.weight,
            source(limit)
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

fn missing(key: &Key) -> Failure {
    Failure::not_found(format!("queue {} has no limit {:?}", key.queue, key.key))
        .hint("list them: leasehold limits list")
}

async fn set(args: SetArgs, common: &Common) -> Result<ExitCode, Failure> {
    let mut limit = Limit::new(&args.key.key).weight(args.weight);
    limit.max_running = args.max_running;
    limit.check().map_err(|error| {
        Failure::usage(error).hint("to let none of its jobs start: leasehold limits pause KEY")
    })?;
    let (out, db) = (common.out(), common.db().await?);
    if !args.new_queue {
        check_queue(&db, &args.key.queue).await?;
    }
    db.within(db.limits().set(&args.key.queue, &limit, &by(args.why))).await?;
    let answer = serde_json::json!({
        "queue": args.key.queue, "key": limit.key, "max_running": limit.max_running,
        "weight": limit.weight,
    });
    out.one("limit", &answer, |_| {
        format!(
            "limit {} of queue {}: max running {}, weight {}",
            limit.key,
            args.key.queue,
            most(limit.max_running),
            limit.weight
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(
    key: &Key,
    declared: bool,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db, by) = (common.out(), common.db().await?, by(why));
    let limits = db.limits();
    let removed = match declared {
        true => db.within(limits.retire(&key.queue, &key.key, &by)).await?,
        false => db.within(limits.remove(&key.queue, &key.key, &by)).await?,
    };
    if removed != Toggle::Done {
        let set_by = if declared { "code declared" } else { "an operator set" };
        return Err(Failure::not_found(format!(
            "queue {} has no limit {:?} that {set_by}",
            key.queue, key.key
        ))
        .hint("see where limits come from: leasehold limits list"));
    }
    let answer = serde_json::json!({ "queue": key.queue, "key": key.key, "result": "removed" });
    out.one("limit", &answer, |_| format!("limit {} of queue {} is removed", key.key, key.queue))?;
    Ok(ExitCode::SUCCESS)
}

async fn keys(
    queue: &str,
    blocked: bool,
    after: &str,
    count: i32,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let mut keys: Vec<LimitKeyInfo> = db.within(db.limits().keys(queue, after, count)).await?;
    if blocked {
        keys.retain(|key| key.state != LimitState::Open);
    }
    out.list("keys", &keys, |keys| {
        let mut columns =
            Columns::new(&["KEY", "STATE", "RUNNING", "WAITING", "WEIGHT", "PAUSED BY"]);
        for key in keys {
            let running = match key.max_running {
                Some(most) => format!("{} of {most}", key.running),
                None => key.running.to_string(),
            };
            columns.row([
                key.key.clone(),
                key.state.as_str().to_owned(),
                running,
                key.waiting.to_string(),
                key.weight.to_string(),
                key.paused_by.clone().unwrap_or_default(),
            ]);
        }
        columns
    })?;
    if keys.is_empty() && out.is_table() {
        out.note(match blocked {
            true => format!("no limit keys of queue {queue} are full or paused"),
            false => format!("no limit keys of queue {queue} have jobs"),
        });
    }
    Ok(ExitCode::SUCCESS)
}

async fn toggle(
    key: &Key,
    why: Option<String>,
    pause: bool,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db, by) = (common.out(), common.db().await?, by(why));
    let limits = db.limits();
    let (changed, done) = match pause {
        true => (db.within(limits.pause(&key.queue, &key.key, &by)).await?, "paused"),
        false => (db.within(limits.resume(&key.queue, &key.key, &by)).await?, "resumed"),
    };
    if changed != Toggle::Done {
        let state = if pause { "paused already" } else { "not paused" };
        return Err(Failure::conflict(format!(
            "limit key {} of queue {} is {state}",
            key.key, key.queue
        )));
    }
    let answer = serde_json::json!({ "queue": key.queue, "key": key.key, "result": done });
    out.one("limit_key", &answer, |_| {
        format!("limit key {} of queue {} is {done}", key.key, key.queue)
    })?;
    Ok(ExitCode::SUCCESS)
}
