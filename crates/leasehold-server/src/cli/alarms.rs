//! `leasehold alarms`: alarms, thresholds of queues, and test notifications.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::admin::{AlarmChange, AlarmInfo, Toggle, WatchChange, WatchInfo};
use leasehold::alarm::QUEUE;

use super::common::{Common, by};
use super::db::Db;
use super::known::{check_existing, check_queue};
use super::prompt::ask_why;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{parse_duration, print_duration, relative, since};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List active alarms
    List {
        /// Include cleared alarms, the latest first
        #[arg(long)]
        all: bool,
        /// List at most this many alarms
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show one alarm
    Show {
        /// Id of the alarm
        id: i64,
    },
    /// Acknowledge an alarm: an operator works on it
    #[command(after_help = "Example:\n  leasehold alarms ack 7 --why 'restarting the workers'")]
    Ack {
        /// Id of the alarm
        id: i64,
        /// Record this reason; it is shown with the alarm
        #[arg(long)]
        why: Option<String>,
    },
    /// Silence the notifications of an alarm for a time, even if it clears and is raised again
    #[command(
        after_help = "Examples:\n  leasehold alarms silence 7 --for 2h --why 'the bucket moves'\n  leasehold alarms silence 7 --for 0s --why 'it has moved'"
    )]
    Silence {
        /// Id of the alarm
        id: i64,
        /// Silence it for this time; 0s ends a silence
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        how_long: Duration,
        /// Record this reason; it is shown with the alarm
        #[arg(long)]
        why: Option<String>,
    },
    /// Set thresholds of a queue, show them, or list those of every queue
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Remove the thresholds of a queue; the defaults for dead and lost jobs still apply
    Unwatch {
        /// Name of the queue
        queue: String,
    },
    /// Send a test notification to every alarm receiver
    Test,
}

const WATCH_HELP: &str = "\
Examples:
  leasehold alarms watch                      the thresholds of every queue
  leasehold alarms watch mail                 those of one queue; changes nothing
  leasehold alarms watch mail --min-completed 1 --over 10m --max-length 10000
  leasehold alarms watch annotations --bulk-tag 'reindex_*' --bulk-tag import

A queue without completed jobs raises an alarm only if --min-completed or --over is set. Let its producer send \
canaries, so that a quiet queue and a stopped one differ; leasehold serve does.";

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Name of the queue
    queue: Option<String>,
    /// Raise an alarm if fewer jobs complete within --over; 0: never. Initially: 1 with --over, else 0
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    min_completed: Option<i64>,
    /// Set the window of --min-completed, 2m to 23h. Initially: 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    over: Option<Duration>,
    /// Raise an alarm if more jobs wait or run; -1: never
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)), allow_negative_numbers = true)]
    max_length: Option<i64>,
    /// Leave jobs of this tag out of the length; a star at the end matches any text. Repeat for more
    #[arg(long = "bulk-tag", value_name = "TAG")]
    bulk_tags: Vec<String>,
    /// Raise an alarm if a ready job waits longer; 0s: never. Initially: 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_age: Option<Duration>,
    /// Raise an alarm if this many jobs die within 15 minutes; 0: never
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    max_dead: Option<i64>,
    /// Raise an alarm if this many jobs lose their worker within 15 minutes; 0: never
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    max_lost: Option<i64>,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
}

impl WatchArgs {
    /// True if a threshold is given.
    fn sets(&self) -> bool {
        self.min_completed.is_some()
            || self.over.is_some()
            || self.max_length.is_some()
            || !self.bulk_tags.is_empty()
            || self.max_age.is_some()
            || self.max_dead.is_some()
            || self.max_lost.is_some()
    }
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List { all, limit } => list(all, limit, common).await,
        Command::Show { id } => show(id, common).await,
        Command::Ack { id, why } => ack(id, why, common).await,
        Command::Silence { id, how_long, why } => silence(id, how_long, why, common).await,
        Command::Watch(args) => watch(args, common).await,
        Command::Unwatch { queue } => unwatch(&queue, common).await,
        Command::Test => test(common).await,
    }
}

async fn list(all: bool, limit: u32, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let entries = db.within(db.alarms().list(all, limit)).await?;
    let sampled = db.within(db.measurements().sampled()).await?;
    let now = sampled.now;
    out.list("alarms", &entries, |entries| table(entries, now))?;
    if out.is_table() {
        // An empty list means "no alarms" only if samples are recent.
        match (sampled.fresh, sampled.at) {
            (true, _) if entries.is_empty() => out.note("no alarms"),
            (true, _) => {}
            (false, Some(at)) => out.note(format!(
                "no sample has been taken since {}: alarms are neither raised nor cleared; is a worker running?",
                since(at, now)
            )),
            (false, None) => {
                out.note("no sample has been taken yet: no alarm can be raised; is a worker running?");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(id: i64, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entry, now) = (find(&db, id).await?, db.now().await?);
    out.one("alarm", &entry, |entry| text(entry, now))?;
    Ok(ExitCode::SUCCESS)
}

async fn ack(id: i64, why: Option<String>, common: &Common) -> Result<ExitCode, Failure> {
    let why = ask_why(why, "--why 'restarting the workers'")?;
    let db = common.db().await?;
    match db.within(db.alarms().acknowledge(id, &by(Some(why)))).await? {
        AlarmChange::Changed => {}
        AlarmChange::NotFound => return Err(unknown(id)),
        _ => return Err(Failure::conflict(format!("alarm {id} is cleared"))),
    }
    report_change(id, "acknowledged", format!("alarm {id} is acknowledged"), common)
}

async fn silence(
    id: i64,
    how_long: Duration,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let why = ask_why(why, "--why 'the bucket moves'")?;
    let db = common.db().await?;
    if db.within(db.alarms().silence(id, how_long, &by(Some(why)))).await? != AlarmChange::Changed {
        return Err(unknown(id));
    }
    match how_long.is_zero() {
        true => {
            report_change(id, "unsilenced", format!("alarm {id} is no longer silenced"), common)
        }
        false => {
            let text = format!("alarm {id} is silenced for {}", print_duration(how_long));
            report_change(id, "silenced", text, common)
        }
    }
}

fn report_change(
    id: i64,
    result: &str,
    text: String,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let answer = serde_json::json!({ "id": id.to_string(), "result": result });
    common.out().one("alarm", &answer, |_| text)?;
    Ok(ExitCode::SUCCESS)
}

async fn watch(args: WatchArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let sets = args.sets();
    let Some(queue) = args.queue.clone() else {
        if sets {
            return Err(Failure::usage(
                "no queue is given; name one: leasehold alarms watch QUEUE",
            ));
        }
        let watches = db.within(db.alarms().watches()).await?;
        out.list("watches", &watches, watch_table)?;
        if watches.is_empty() && out.is_table() {
            out.note("no queue has thresholds of its own; set some: leasehold alarms watch QUEUE");
        }
        return Ok(ExitCode::SUCCESS);
    };
    if !sets {
        return show_watch(&db, &queue, common).await;
    }
    if !args.new_queue {
        check_queue(&db, &queue).await?;
    }
    let window = Duration::from_secs(120)..=Duration::from_secs(23 * 3600);
    if args.over.is_some_and(|over| !window.contains(&over)) {
        return Err(Failure::usage("--over is out of range; give 2m to 23h"));
    }
    db.within(db.alarms().set_watch(&queue, &args.change(), &by(None))).await?;
    let known: Vec<_> = db.within(db.alarms().watch(&queue)).await?.into_iter().collect();
    out.list("watches", &known, watch_table)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the thresholds of one queue.
async fn show_watch(db: &Db, queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let watches: Vec<_> = db.within(db.alarms().watch(queue)).await?.into_iter().collect();
    if watches.is_empty() {
        check_existing(db, queue).await?;
        return Err(Failure::not_found(format!("queue {queue:?} has no thresholds of its own"))
            .hint(format!(
                "set some, such as: leasehold alarms watch {queue} --max-length 10000"
            )));
    }
    common.out().list("watches", &watches, watch_table)?;
    Ok(ExitCode::SUCCESS)
}

async fn unwatch(queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    if db.within(db.alarms().remove_watch(queue, &by(None))).await? != Toggle::Changed {
        return Err(Failure::not_found(format!("queue {queue:?} has no thresholds of its own"))
            .hint("list thresholds: leasehold alarms watch"));
    }
    let answer = serde_json::json!({ "queue": queue, "result": "unwatched" });
    common
        .out()
        .one("watch", &answer, |_| format!("the thresholds of queue {queue} are removed"))?;
    Ok(ExitCode::SUCCESS)
}

async fn test(common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let receivers = db.within(db.alarms().test(&by(None))).await?;
    if receivers == 0 {
        return Err(Failure::conflict("no receiver of alarms is registered").hint(
            "start leasehold console or leasehold serve with --alarm-webhook URL or --alarm-command COMMAND",
        ));
    }
    let answer = serde_json::json!({ "receivers": receivers, "result": "sent" });
    common.out().one("test", &answer, |_| {
        format!(
            "enqueued for {}; follow the jobs: leasehold jobs list --queue {QUEUE}",
            crate::text::count(receivers as usize, "receiver")
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn find(db: &Db, id: i64) -> Result<AlarmInfo, Failure> {
    db.within(db.alarms().get(id)).await?.ok_or_else(|| unknown(id))
}

fn unknown(id: i64) -> Failure {
    Failure::not_found(format!("there is no alarm {id}"))
        .hint("list alarms: leasehold alarms list --all")
}

impl WatchArgs {
    fn change(&self) -> WatchChange {
        let mut change = WatchChange::new();
        if let Some(jobs) = self.min_completed {
            change = change.min_completed(jobs);
        }
        if let Some(over) = self.over {
            change = change.over(over);
        }
        if let Some(jobs) = self.max_length {
            change = change.max_length(u32::try_from(jobs).ok());
        }
        if !self.bulk_tags.is_empty() {
            change = change.bulk_tags(&self.bulk_tags);
        }
        if let Some(age) = self.max_age {
            change = change.max_age(Some(age).filter(|age| !age.is_zero()));
        }
        if let Some(jobs) = self.max_dead {
            change = change.max_dead(jobs);
        }
        if let Some(jobs) = self.max_lost {
            change = change.max_lost(jobs);
        }
        change
    }
}

fn table(entries: &[AlarmInfo], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ID", "RULE", "SUBJECT", "STATE", "SINCE", "WHAT"]);
    for entry in entries {
        columns.row([
            entry.id.to_string(),
            entry.rule.to_string(),
            entry.subject.clone(),
            entry.state.to_string(),
            relative(entry.raised_at, now),
            entry.summary.clone(),
        ]);
    }
    columns
}

fn text(entry: &AlarmInfo, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let signed = |by: &Option<String>, why: &Option<String>| match (by, why) {
        (Some(by), Some(why)) => format!("{by}: {why}"),
        (Some(by), None) => by.clone(),
        (None, _) => String::new(),
    };
    fields(&[
        ("alarm", entry.id.to_string()),
        ("rule", entry.rule.to_string()),
        ("subject", entry.subject.clone()),
        ("state", entry.state.to_string()),
        ("what", entry.summary.clone()),
        ("value", entry.value.to_string()),
        ("threshold", entry.threshold.to_string()),
        ("raised", when(Some(entry.raised_at))),
        ("last seen", when(Some(entry.seen_at))),
        ("cleared", when(entry.cleared_at)),
        ("notified", notified(entry, now)),
        ("acknowledged", when(entry.acknowledged_at)),
        ("by", signed(&entry.acknowledged_by, &entry.acknowledged_why)),
        ("silenced until", when(entry.silenced_until)),
        ("silenced by", signed(&entry.silenced_by, &entry.silenced_why)),
    ])
}

/// Describes whether a receiver was notified of the alarm, and when.
fn notified(entry: &AlarmInfo, now: Timestamp) -> String {
    match (entry.delivered_at, entry.notified_at) {
        (Some(at), _) => {
            let receiver = entry.delivered_by.as_deref().unwrap_or("an unknown receiver");
            format!("{at} ({}), {receiver}", relative(at, now))
        }
        (None, Some(at)) if entry.cleared_at.is_some() => format!(
            "no receiver: enqueued {}, and cleared before one accepted it",
            relative(at, now)
        ),
        (None, Some(at)) => format!(
            "not yet; enqueued {}, see: leasehold jobs list --queue {QUEUE}",
            relative(at, now)
        ),
        (None, None) if entry.silenced_until.is_some_and(|until| until > now) => {
            "no receiver: silenced".to_owned()
        }
        (None, None) if entry.acknowledged_at.is_some() => {
            "no receiver: acknowledged first".to_owned()
        }
        (None, None) => "no receiver (no webhook or command is configured)".to_owned(),
    }
}

fn watch_table(watches: &[WatchInfo]) -> Columns {
    let mut columns =
        Columns::new(&["QUEUE", "COMPLETED", "LENGTH", "WITHOUT", "AGE", "DEAD", "LOST", "BY"]);
    let off = || "-".to_owned();
    for watch in watches {
        let counted = |most: i64| if most > 0 { format!("< {most}") } else { off() };
        let name = if watch.off { format!("{} (off)", watch.queue) } else { watch.queue.clone() };
        columns.row([
            name,
            match watch.min_completed {
                0 => off(),
                least => format!(">= {least} in {}", print_duration(watch.over)),
            },
            watch.max_length.map_or_else(off, |most| format!("<= {most}")),
            watch.bulk_tags.join(", "),
            watch.max_age.map_or_else(off, |most| format!("<= {}", print_duration(most))),
            counted(watch.max_dead),
            counted(watch.max_lost),
            watch.changed_by.clone(),
        ]);
    }
    columns
}
