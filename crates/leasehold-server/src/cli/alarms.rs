//! `leasehold alarms`: alarms, thresholds of queues, and test notifications.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio_postgres::types::Type;

use super::alarm_entry::{entries, find, table, text, watch_table, watches};
use super::common::{Common, actor};
use super::prompt::ask_why;
use crate::exit::Failure;
use crate::text::{length, parse_duration, since};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List active alarms
    List {
        /// Include cleared alarms, the latest first
        #[arg(long)]
        all: bool,
        /// The most alarms to list
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
    },
    /// Show one alarm
    Show {
        /// The number of the alarm
        id: i64,
    },
    /// Acknowledge an alarm: an operator is working on it
    #[command(after_help = "Example:\n  leasehold alarms ack 7 --why 'restarting the workers'")]
    Ack {
        /// The number of the alarm
        id: i64,
        /// The reason, shown with the alarm
        #[arg(long)]
        why: Option<String>,
    },
    /// Send no notifications of an alarm for a while, even if it clears and is raised again
    #[command(
        after_help = "Examples:\n  leasehold alarms silence 7 --for 2h --why 'the bucket moves'\n  leasehold alarms silence 7 --for 0s --why 'it has moved'"
    )]
    Silence {
        /// The number of the alarm
        id: i64,
        /// How long; 0s ends a silence
        #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
        how_long: Duration,
        /// The reason, shown with the alarm
        #[arg(long)]
        why: Option<String>,
    },
    /// Set the thresholds of a queue, or list them
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Remove the thresholds of a queue; the defaults for dead and lost jobs still apply
    Unwatch {
        /// The name of the queue
        queue: String,
    },
    /// Send a test notification to every alarm receiver
    Test,
}

const WATCH_HELP: &str = "\
Examples:
  leasehold alarms watch
  leasehold alarms watch mail --min-completed 1 --over 10m --max-length 10000
  leasehold alarms watch annotations --bulk-tag 'reindex_*' --bulk-tag import

A queue that completes nothing for a while is only an alarm where something is expected of it: let \
its producer send a canary, which the services here do.";

#[derive(Args, Debug)]
pub struct WatchArgs {
    /// The name of the queue
    queue: Option<String>,
    /// At least this many jobs complete within --over; 0: do not check
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    min_completed: Option<i64>,
    /// The window for --min-completed, 2m to 23h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    over: Option<Duration>,
    /// At most this many jobs wait or run; -1: do not check
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(-1..), allow_negative_numbers = true)]
    max_length: Option<i64>,
    /// Do not count jobs of this tag toward the length; a star at the end matches any rest. Repeat for
    /// more
    #[arg(long = "bulk-tag", value_name = "TAG")]
    bulk_tags: Vec<String>,
    /// No ready job waits longer; 0s: do not check. Initially: 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    max_age: Option<Duration>,
    /// Fewer jobs than this die within 15 minutes; 0: do not check
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    max_dead: Option<i64>,
    /// Fewer jobs than this lose their worker within 15 minutes; 0: do not check
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(i64).range(0..))]
    max_lost: Option<i64>,
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
        let row = db.one("select at, fresh from leasehold.measured()", &[]).await?;
        let (at, fresh): (Option<jiff::Timestamp>, bool) = (row.get(0), row.get(1));
        // An empty list means "no alarms" only if samples are recent.
        match (fresh, at) {
            (true, _) if entries.is_empty() => out.note("no alarms"),
            (true, _) => {}
            (false, Some(at)) => out.note(format!(
                "nobody has measured since {}: alarms are neither raised nor cleared; is a worker running?",
                since(at, now)
            )),
            (false, None) => {
                out.note("nobody has measured yet: no alarm can be raised; is a worker running?");
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
        return Err(Failure::conflict(format!("alarm {id} is over")));
    }
    told(id, "acknowledged", format!("alarm {id} is acknowledged"), common)
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
        true => told(id, "heard", format!("alarm {id} is no longer silenced"), common),
        false => {
            let text = format!("alarm {id} is silenced for {}", length(how_long));
            told(id, "silenced", text, common)
        }
    }
}

fn told(id: i64, result: &str, text: String, common: &Common) -> Result<ExitCode, Failure> {
    let answer = serde_json::json!({ "id": id.to_string(), "result": result });
    common.out().one("alarm", &answer, |_| text)?;
    Ok(ExitCode::SUCCESS)
}

async fn watch(args: WatchArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let Some(queue) = args.queue else {
        let watches = watches(&db).await?;
        out.list("watches", &watches, watch_table)?;
        if watches.is_empty() && out.is_table() {
            out.note("nothing is expected of any queue; say what: leasehold alarms watch QUEUE");
        }
        return Ok(ExitCode::SUCCESS);
    };
    leasehold::job::check_queue_name(&queue).map_err(Failure::usage)?;
    let over = args.over.map(|over| over.as_secs_f64());
    if over.is_some_and(|over| !(120.0..=82_800.0).contains(&over)) {
        return Err(Failure::usage("--over is 2m to 23h"));
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

async fn unwatch(queue: &str, common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let sql = "select leasehold.unwatch_queue($1, $2)";
    let params = [(&queue as _, Type::TEXT), (&actor() as _, Type::TEXT)];
    if !db.one(sql, &params).await?.get::<_, bool>(0) {
        return Err(Failure::not_found(format!("nothing is expected of queue {queue:?}"))
            .hint("see: leasehold alarms watch"));
    }
    let answer = serde_json::json!({ "queue": queue, "result": "unwatched" });
    common
        .out()
        .one("watch", &answer, |_| format!("nothing is expected of queue {queue} any more"))?;
    Ok(ExitCode::SUCCESS)
}

async fn test(common: &Common) -> Result<ExitCode, Failure> {
    let db = common.db().await?;
    let row = db.one("select leasehold.test_alarm($1)", &[(&actor(), Type::TEXT)]).await?;
    let receivers: i32 = row.get(0);
    if receivers == 0 {
        return Err(Failure::conflict("nobody would be told of an alarm").hint(
            "start a service with --alarm-webhook URL or --alarm-command COMMAND, or: leasehold console",
        ));
    }
    let answer = serde_json::json!({ "receivers": receivers, "result": "sent" });
    common.out().one("test", &answer, |_| {
        format!("sent to {}; they have it when these are done: leasehold jobs list --queue leasehold.alarms", crate::text::count(usize::try_from(receivers).unwrap_or(0), "receiver"))
    })?;
    Ok(ExitCode::SUCCESS)
}
