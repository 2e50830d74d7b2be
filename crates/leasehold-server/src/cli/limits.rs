//! `leasehold limits`: limits of a limit key, a name or a queue.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::admin::{LimitInfo, LimitKeyInfo, LimitSource, LimitState, Toggle};
use leasehold::{Limit, OnDeath, OnFailure};

use super::common::{Common, by};
use super::known::{DEFAULT, check_queue};
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{parse_duration, print_duration, whole};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List limits and where they come from
    List {
        /// Only of this queue
        #[arg(long)]
        queue: Option<String>,
    },
    /// Show a limit
    Show(Target),
    /// Set a limit of a key, of all keys with this text before their first ':', of a name or of a queue
    #[command(after_help = SET_HELP)]
    Set(SetArgs),
    /// Remove a limit that an operator set; the one that code declares applies again
    Remove {
        #[command(flatten)]
        key: Target,
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
        /// Only keys that cannot start a job
        #[arg(long)]
        blocked: bool,
        /// Continue after this key
        #[arg(long, default_value = "", value_name = "KEY")]
        after: String,
        /// Show this many keys
        #[arg(long, default_value_t = 100, value_parser = whole::<i32>(1, 10_000))]
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
  leasehold limits set api --rate 100/1m --burst 20
  leasehold limits set line --ordered --on-death stop
  leasehold limits set --queue sync --max-running 40 --max-waiting 100000
  leasehold limits set --name report.build --max-running 3

A limit without a key is the one of the whole queue. The command replaces the limit as a whole.
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
pub struct Target {
    /// Limit key, such as tenant:7, or the text before the first ':' of many. Default: the whole queue
    key: Option<String>,
    /// Name of jobs: those without a limit key get it as their key
    #[arg(long, conflicts_with = "key")]
    name: Option<String>,
    #[arg(long, default_value = DEFAULT, help = "Queue of the jobs")]
    queue: String,
}

impl Target {
    fn key(&self) -> &str {
        self.key.as_deref().or(self.name.as_deref()).unwrap_or_default()
    }

    fn limit(&self) -> Limit {
        match (&self.key, &self.name) {
            (Some(key), _) => Limit::new(key),
            (None, Some(name)) => Limit::of_name(name),
            (None, None) => Limit::of_queue(),
        }
    }

    fn print(&self) -> String {
        title(&self.queue, self.key())
    }
}

/// How texts name a limit.
fn title(queue: &str, key: &str) -> String {
    match key {
        "" => format!("limit of queue {queue}"),
        key => format!("limit {key} of queue {queue}"),
    }
}

#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    key: Target,
    /// Run at most this many jobs of one key at the same time. Default: any number
    #[arg(long, value_name = "JOBS")]
    max_running: Option<i32>,
    /// Give a key this many jobs for one job of a key with weight 1
    #[arg(long, default_value_t = 1)]
    weight: i32,
    /// Start at most this many jobs of one key per time: 100/1m. Default: any number
    #[arg(long, value_name = "JOBS/TIME", value_parser = parse_rate)]
    rate: Option<(i32, Duration)>,
    /// Start this many jobs at once before the rate holds them back. Default: 1
    #[arg(long, value_name = "JOBS", requires = "rate", value_parser = whole::<i32>(1, 1_000_000))]
    burst: Option<i32>,
    /// Run one job of a key at a time, in order
    #[arg(long)]
    ordered: bool,
    /// Let a job that waits for its next attempt block those behind it, or let them pass. Default: block
    #[arg(long, requires = "ordered", value_parser = ["block", "pass"])]
    on_failure: Option<String>,
    /// Continue after a dead job, or stop its key until it is redriven or deleted. Default: continue
    #[arg(long, requires = "ordered", value_parser = ["continue", "stop"])]
    on_death: Option<String>,
    /// Refuse an enqueue when this many jobs of the key wait. Default: any number
    #[arg(long, value_name = "JOBS", value_parser = whole::<i32>(1, 1_000_000))]
    max_waiting: Option<i32>,
    /// Run a job after this time without another enqueue of its key, and at the latest after MAX
    #[arg(long, value_name = "TIME[..MAX]", value_parser = parse_debounce, conflicts_with = "throttle")]
    debounce: Option<(Duration, Option<Duration>)>,
    /// Store nothing of an enqueue this soon after another one of its key
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    throttle: Option<Duration>,
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

fn parse_rate(text: &str) -> Result<(i32, Duration), String> {
    let (jobs, per) = text.split_once('/').ok_or("write the jobs and the time: 100/1m")?;
    let jobs = jobs
        .trim()
        .parse()
        .map_err(|_| format!("{jobs:?} is not a number of jobs; write 100/1m"))?;
    Ok((jobs, parse_duration(per)?))
}

fn parse_debounce(text: &str) -> Result<(Duration, Option<Duration>), String> {
    match text.split_once("..") {
        Some((wait, most)) => Ok((parse_duration(wait)?, Some(parse_duration(most)?))),
        None => Ok((parse_duration(text)?, None)),
    }
}

/// What a limit holds back, in one line.
fn rules(limit: &LimitInfo) -> String {
    let mut rules = Vec::new();
    if let Some(jobs) = limit.max_running {
        rules.push(format!("max running {jobs}"));
    }
    if let (Some(rate), Some(per)) = (limit.rate, limit.per) {
        let burst = limit.burst.unwrap_or(1);
        rules.push(format!("rate {rate}/{}, burst {burst}", print_duration(per)));
    }
    if limit.ordered {
        let (failure, death) = (limit.on_failure.as_str(), limit.on_death.as_str());
        rules.push(format!("ordered, on failure {failure}, on death {death}"));
    }
    if let Some(jobs) = limit.max_waiting {
        rules.push(format!("max waiting {jobs}"));
    }
    if let (Some(wait), Some(most)) = (limit.debounce, limit.debounce_max) {
        rules.push(format!("debounce {}..{}", print_duration(wait), print_duration(most)));
    }
    if let Some(time) = limit.throttle {
        rules.push(format!("throttle {}", print_duration(time)));
    }
    if limit.weight != 1 || rules.is_empty() {
        rules.push(format!("weight {}", limit.weight));
    }
    rules.join(", ")
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
        let mut columns = Columns::new(&["QUEUE", "KEY", "LIMIT", "SET BY"]);
        for limit in limits {
            columns.row([
                limit.queue.clone(),
                match (limit.key.as_str(), limit.by_name) {
                    ("", _) => "(queue)".to_owned(),
                    (name, true) => format!("{name} (name)"),
                    (key, false) => key.to_owned(),
                },
                rules(limit),
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

async fn show(key: &Target, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let Some(limit) = db.within(db.limits().get(&key.queue, key.key())).await? else {
        return Err(missing(key));
    };
    out.one("limit", &limit, |limit| {
        format!("{}: {}; {}", title(&limit.queue, &limit.key), rules(limit), source(limit))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn missing(key: &Target) -> Failure {
    let text = match key.key() {
        "" => format!("queue {} has no limit of its own", key.queue),
        text => format!("queue {} has no limit {text:?}", key.queue),
    };
    Failure::not_found(text).hint("list them: leasehold limits list")
}

async fn set(args: SetArgs, common: &Common) -> Result<ExitCode, Failure> {
    let mut limit = args.key.limit().weight(args.weight);
    limit.max_running = args.max_running;
    limit.rate = args.rate;
    limit.burst = args.burst;
    limit.ordered = args.ordered;
    if args.on_failure.as_deref() == Some("pass") {
        limit.on_failure = OnFailure::Pass;
    }
    if args.on_death.as_deref() == Some("stop") {
        limit.on_death = OnDeath::Stop;
    }
    limit.max_waiting = args.max_waiting;
    if let Some((wait, most)) = args.debounce {
        limit.debounce = Some(wait);
        limit.debounce_max = most;
    }
    limit.throttle = args.throttle;
    limit.check().map_err(|error| {
        Failure::usage(error).hint("to let none of its jobs start: leasehold limits pause KEY")
    })?;
    let (out, db) = (common.out(), common.db().await?);
    if !args.new_queue {
        check_queue(&db, &args.key.queue).await?;
    }
    db.within(db.limits().set(&args.key.queue, &limit, &by(args.why))).await?;
    let Some(set) = db.within(db.limits().get(&args.key.queue, &limit.key)).await? else {
        return Err(missing(&args.key));
    };
    out.one("limit", &set, |set| format!("{}: {}", args.key.print(), rules(set)))?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(
    key: &Target,
    declared: bool,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db, by) = (common.out(), common.db().await?, by(why));
    let limits = db.limits();
    let removed = match declared {
        true => db.within(limits.retire(&key.queue, key.key(), &by)).await?,
        false => db.within(limits.remove(&key.queue, key.key(), &by)).await?,
    };
    if removed != Toggle::Changed {
        let set_by = if declared { "code declared" } else { "an operator set" };
        return Err(Failure::not_found(format!(
            "queue {} has no limit {:?} that {set_by}",
            key.queue,
            key.key()
        ))
        .hint("see where limits come from: leasehold limits list"));
    }
    let answer = serde_json::json!({ "queue": key.queue, "key": key.key(), "result": "removed" });
    out.one("limit", &answer, |_| format!("{} is removed", key.print()))?;
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
            true => format!("no limit keys of queue {queue} are blocked"),
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
    if changed != Toggle::Changed {
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
