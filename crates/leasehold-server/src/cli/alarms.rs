//! `leasehold alarms`: alarms, thresholds of queues, and test notifications.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::common::{Common, actor};
use super::db::Db;
use super::known::{check_existing, check_queue};
use super::prompt::ask_why;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{parse_duration, print_duration, relative, seconds, since};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List active alarms
    List {
        /// Include cleared alarms, the latest first
        #[arg(long)]
        all: bool,
        /// List at most this many alarms
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
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
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(-1..), allow_negative_numbers = true)]
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

async fn list(all: bool, limit: i64, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (entries(&db, all, limit).await?, db.now().await?);
    out.list("alarms", &entries, |entries| table(entries, now))?;
    if out.is_table() {
        let row = db.one("select at, fresh from leasehold_internal.measured()", &[]).await?;
        let (at, fresh): (Option<Timestamp>, bool) = (row.get(0), row.get(1));
        // An empty list means "no alarms" only if samples are recent.
        match (fresh, at) {
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
    let sql = "select leasehold.acknowledge_alarm($1, $2, $3)";
    let params = [(&id as _, Type::INT8), (&actor() as _, Type::TEXT), (&why as _, Type::TEXT)];
    if !db.one(sql, &params).await?.get::<_, bool>(0) {
        find(&db, id).await?;
        return Err(Failure::conflict(format!("alarm {id} is cleared")));
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
    find(&db, id).await?;
    let seconds = how_long.as_secs_f64();
    let sql = "select leasehold.silence_alarm($1, make_interval(secs => $2), $3, $4)";
    let params = [
        (&id as _, Type::INT8),
        (&seconds as _, Type::FLOAT8),
        (&actor() as _, Type::TEXT),
        (&why as _, Type::TEXT),
    ];
    db.one(sql, &params).await?;
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
    let Some(queue) = args.queue else {
        if sets {
            return Err(Failure::usage(
                "no queue is given; name one: leasehold alarms watch QUEUE",
            ));
        }
        let watches = watches(&db).await?;
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
    let over = args.over.map(|over| over.as_secs_f64());
    if over.is_some_and(|over| !(120.0..=82_800.0).contains(&over)) {
        return Err(Failure::usage("--over is out of range; give 2m to 23h"));
    }
    let max_age = args.max_age.map(|age| age.as_secs_f64());
    let bulk = (!args.bulk_tags.is_empty()).then_some(args.bulk_tags);
    let sql = "select leasehold.watch_queue($1, $2, false, $3, make_interval(secs => $4), $5, $6, \
               make_interval(secs => $7), $8, $9)";
    let params = [
        (&queue as _, Type::TEXT),
        (&actor() as _, Type::TEXT),
        (&args.min_completed as _, Type::INT8),
        (&over as _, Type::FLOAT8),
        (&args.max_length as _, Type::INT8),
        (&bulk as _, Type::TEXT_ARRAY),
        (&max_age as _, Type::FLOAT8),
        (&args.max_dead as _, Type::INT8),
        (&args.max_lost as _, Type::INT8),
    ];
    db.one(sql, &params).await?;
    let known =
        watches(&db).await?.into_iter().filter(|watch| watch.queue == queue).collect::<Vec<_>>();
    out.list("watches", &known, watch_table)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the thresholds of one queue.
async fn show_watch(db: &Db, queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let watches: Vec<Watch> =
        watches(db).await?.into_iter().filter(|watch| watch.queue == queue).collect();
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
    let sql = "select leasehold.unwatch_queue($1, $2)";
    let params = [(&queue as _, Type::TEXT), (&actor() as _, Type::TEXT)];
    if !db.one(sql, &params).await?.get::<_, bool>(0) {
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
    let row = db.one("select leasehold_internal.test_alarm($1)", &[(&actor(), Type::TEXT)]).await?;
    let receivers: i32 = row.get(0);
    if receivers == 0 {
        return Err(Failure::conflict("no receiver of alarms is registered").hint(
            "start leasehold console or leasehold serve with --alarm-webhook URL or --alarm-command COMMAND",
        ));
    }
    let answer = serde_json::json!({ "receivers": receivers, "result": "sent" });
    common.out().one("test", &answer, |_| {
        format!(
            "enqueued for {}; follow the jobs: leasehold jobs list --queue leasehold.alarms",
            crate::text::count(usize::try_from(receivers).unwrap_or(0), "receiver")
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Entry {
    id: String,
    rule: String,
    subject: String,
    state: String,
    raised_at: Timestamp,
    cleared_at: Option<Timestamp>,
    seen_at: Timestamp,
    value: f64,
    threshold: f64,
    summary: String,
    acknowledged_at: Option<Timestamp>,
    acknowledged_by: Option<String>,
    acknowledged_why: Option<String>,
    silenced_until: Option<Timestamp>,
    silenced_by: Option<String>,
    silenced_why: Option<String>,
    /// When notifications were enqueued; `None`: there was no receiver.
    notified_at: Option<Timestamp>,
    /// When the first receiver accepted its notification.
    delivered_at: Option<Timestamp>,
    delivered_by: Option<String>,
}

/// The thresholds of a queue.
#[derive(Serialize)]
struct Watch {
    queue: String,
    off: bool,
    min_completed: i64,
    over_seconds: f64,
    max_length: Option<i64>,
    bulk_tags: Vec<String>,
    max_age_seconds: Option<f64>,
    max_dead: i64,
    max_lost: i64,
    since: Timestamp,
    changed_by: String,
}

/// Returns the active alarms, with `all` also the cleared ones. The latest first.
async fn entries(db: &Db, all: bool, limit: i64) -> Result<Vec<Entry>, Failure> {
    let sql = "select * from leasehold.alarms where $1 or cleared_at is null \
               order by raised_at desc, id desc limit $2";
    let rows = db.query(sql, &[(&all, Type::BOOL), (&limit, Type::INT8)]).await?;
    Ok(rows.iter().map(read).collect())
}

async fn find(db: &Db, id: i64) -> Result<Entry, Failure> {
    let sql = "select * from leasehold.alarms where id = $1";
    let rows = db.query(sql, &[(&id, Type::INT8)]).await?;
    rows.first().map(read).ok_or_else(|| {
        Failure::not_found(format!("there is no alarm {id}"))
            .hint("list alarms: leasehold alarms list --all")
    })
}

fn read(row: &Row) -> Entry {
    Entry {
        id: row.get::<_, i64>("id").to_string(),
        rule: row.get("rule"),
        subject: row.get("subject"),
        state: row.get("state"),
        raised_at: row.get("raised_at"),
        cleared_at: row.get("cleared_at"),
        seen_at: row.get("seen_at"),
        value: row.get("value"),
        threshold: row.get("threshold"),
        summary: row.get("summary"),
        acknowledged_at: row.get("acknowledged_at"),
        acknowledged_by: row.get("acknowledged_by"),
        acknowledged_why: row.get("acknowledged_why"),
        silenced_until: row.get("silenced_until"),
        silenced_by: row.get("silenced_by"),
        silenced_why: row.get("silenced_why"),
        notified_at: row.get("notified_at"),
        delivered_at: row.get("delivered_at"),
        delivered_by: row.get("delivered_by"),
    }
}

async fn watches(db: &Db) -> Result<Vec<Watch>, Failure> {
    let sql = "select queue, off, min_completed, extract(epoch from over)::float8 as over_seconds, \
               max_length, bulk_tags, extract(epoch from max_age)::float8 as max_age_seconds, \
               max_dead, max_lost, since, changed_by from leasehold_internal.watch order by queue limit 10000";
    let rows = db.query(sql, &[]).await?;
    let read = |row: &Row| Watch {
        queue: row.get("queue"),
        off: row.get("off"),
        min_completed: row.get("min_completed"),
        over_seconds: row.get("over_seconds"),
        max_length: row.get("max_length"),
        bulk_tags: row.get("bulk_tags"),
        max_age_seconds: row.get("max_age_seconds"),
        max_dead: row.get("max_dead"),
        max_lost: row.get("max_lost"),
        since: row.get("since"),
        changed_by: row.get("changed_by"),
    };
    Ok(rows.iter().map(read).collect())
}

fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ID", "RULE", "SUBJECT", "STATE", "SINCE", "WHAT"]);
    for entry in entries {
        columns.row([
            entry.id.clone(),
            entry.rule.clone(),
            entry.subject.clone(),
            entry.state.clone(),
            relative(entry.raised_at, now),
            entry.summary.clone(),
        ]);
    }
    columns
}

fn text(entry: &Entry, now: Timestamp) -> String {
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
        ("alarm", entry.id.clone()),
        ("rule", entry.rule.clone()),
        ("subject", entry.subject.clone()),
        ("state", entry.state.clone()),
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
fn notified(entry: &Entry, now: Timestamp) -> String {
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
            "not yet; enqueued {}, see: leasehold jobs list --queue leasehold.alarms",
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

fn watch_table(watches: &[Watch]) -> Columns {
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
                least => format!(">= {least} in {}", seconds(watch.over_seconds)),
            },
            watch.max_length.map_or_else(off, |most| format!("<= {most}")),
            watch.bulk_tags.join(", "),
            watch.max_age_seconds.map_or_else(off, |most| format!("<= {}", seconds(most))),
            counted(watch.max_dead),
            counted(watch.max_lost),
            watch.changed_by.clone(),
        ]);
    }
    columns
}
