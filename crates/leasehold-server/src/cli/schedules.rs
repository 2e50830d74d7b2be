//! `leasehold schedules`: jobs enqueued by time.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::admin::{ScheduleInfo, Toggle};
use leasehold::schedule::{CronSchedule, Missed, Schedule, ScheduleError};
use serde::Serialize;

use super::common::{Common, by};
use super::db::Db;
use super::known::{DEFAULT, check_queue};
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{nearest, relative, whole};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List schedules with their next slots
    List,
    /// Add a schedule
    #[command(after_help = ADD_HELP)]
    Add(AddArgs),
    /// Remove a schedule; jobs that it enqueued stay
    Remove {
        /// Name of the schedule
        name: String,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Pause a schedule
    Pause {
        /// Name of the schedule
        name: String,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Resume a paused schedule
    Resume {
        /// Name of the schedule
        name: String,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Enqueue the job of a schedule now; its slots do not change
    Run {
        /// Name of the schedule
        name: String,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Show when a schedule, or a cron pattern, fires next
    #[command(
        after_help = "Examples:\n  leasehold schedules next nightly-report\n  leasehold schedules next '0 3 * * 1-5' --zone Europe/Berlin"
    )]
    Next {
        /// Name of a schedule, or a cron pattern in quotes
        #[arg(value_name = "NAME|CRON")]
        what: String,
        /// Read the pattern in this time zone
        #[arg(long, default_value = "UTC")]
        zone: String,
        /// Show this many slots
        #[arg(long, default_value_t = 5, value_parser = whole::<u32>(1, 1000))]
        count: u32,
    },
}

const ADD_HELP: &str = "\
Examples:
  leasehold schedules add nightly '0 3 * * *' report.build '{\"n\":1}' --zone Europe/Berlin
  leasehold schedules add prune '*/10 * * * *' cache.prune --missed skip

Every worker with housekeeping fires schedules. A schedule that a worker declares in its code returns \
when that worker starts.";

#[derive(Args, Debug)]
pub struct AddArgs {
    /// Name of the schedule
    name: String,
    /// Cron pattern of five fields: minute, hour, day, month, weekday; or @hourly, @daily, @weekly, @monthly
    cron: String,
    /// Name of the job to enqueue
    job_name: String,
    /// Arguments of the job, a JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    kwargs: String,
    /// Read the pattern in this time zone
    #[arg(long, default_value = "UTC")]
    zone: String,
    #[arg(long, default_value = DEFAULT, help = "Enqueue into this queue")]
    queue: String,
    /// Set the priority; lower numbers run first
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = whole::<i32>(i32::MIN.into(), i32::MAX.into()))]
    priority: i32,
    /// Handle slots that passed while no worker ran: skip, once or all
    #[arg(long, default_value = "once", value_name = "POLICY")]
    missed: Missed,
    /// Allow a queue that does not exist yet
    #[arg(long)]
    new_queue: bool,
    /// Replace a schedule of the same name
    #[arg(long)]
    replace: bool,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List => list(common).await,
        Command::Add(args) => add(args, common).await,
        Command::Remove { name, why } => change(&name, "remove", why, common).await,
        Command::Pause { name, why } => change(&name, "pause", why, common).await,
        Command::Resume { name, why } => change(&name, "resume", why, common).await,
        Command::Run { name, why } => run_now(&name, why, common).await,
        Command::Next { what, zone, count } => next(&what, &zone, count, common).await,
    }
}

fn bad(error: ScheduleError) -> Failure {
    Failure::usage(error)
}

async fn list(common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (entries, now) = (entries(&db).await?, db.now().await?);
    out.list("schedules", &entries, |entries| {
        let mut columns = Columns::new(&[
            "NAME",
            "CRON",
            "IN WORDS",
            "ZONE",
            "JOB",
            "QUEUE",
            "NEXT",
            "LAST",
            "LAST JOB",
            "DECLARED BY",
        ]);
        for Entry { schedule: entry, words } in entries {
            let next = match &entry.paused_by {
                Some(by) => format!("paused by {by}"),
                None => relative(entry.next_slot, now),
            };
            columns.row([
                entry.name.clone(),
                entry.cron.clone(),
                words.clone(),
                entry.zone.clone(),
                entry.job_name.clone(),
                entry.queue.clone(),
                next,
                entry.last_slot.map(|slot| relative(slot, now)).unwrap_or_default(),
                entry.last_job_id.map(|id| id.to_string()).unwrap_or_default(),
                match (&entry.declared_by, entry.undeclared) {
                    (Some(by), false) => by.clone(),
                    (Some(by), true) => format!("{by}, no longer"),
                    (None, _) => String::new(),
                },
            ]);
        }
        columns
    })?;
    if entries.is_empty() && out.is_table() {
        out.note("no schedules");
    }
    let schedules = entries.iter().map(|entry| &entry.schedule);
    for entry in schedules.filter(|entry| entry.undeclared && out.is_table()) {
        out.note(format!(
            "{name} still fires, but no running worker has declared it for a day; \
             to remove it: leasehold schedules remove {name}",
            name = entry.name
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn add(args: AddArgs, common: &Common) -> Result<ExitCode, Failure> {
    let kwargs: serde_json::Value = serde_json::from_str(&args.kwargs)
        .map_err(|error| Failure::usage(format!("the kwargs are not JSON: {error}")))?;
    if !kwargs.is_object() {
        return Err(Failure::usage(
            "the kwargs are not a JSON object; wrap the value: {\"value\": ...}",
        ));
    }
    let schedule = Schedule::untyped(args.name, args.cron, args.zone, args.job_name, kwargs)
        .map_err(bad)?
        .queue(args.queue)
        .priority(args.priority)
        .missed(args.missed);
    schedule.check().map_err(bad)?;
    let (out, db) = (common.out(), common.db().await?);
    if !args.new_queue {
        check_queue(&db, &schedule.queue).await?;
    }
    let cron_schedule = CronSchedule::parse(&schedule.cron, &schedule.zone).map_err(bad)?;
    let added = db.within(db.schedules().add(&schedule, args.replace, &by(None))).await?;
    let Some(next) = added else {
        return Err(Failure::conflict(format!("schedule {:?} already exists", schedule.name))
            .hint("add --replace to change it, or choose another name"));
    };
    let answer = serde_json::json!({
        "name": schedule.name, "cron": schedule.cron, "words": words(&cron_schedule),
        "zone": schedule.zone, "next_slot": next,
    });
    out.one("schedule", &answer, |_| {
        format!(
            "schedule {}: {} ({}); next at {next}",
            schedule.name,
            words(&cron_schedule),
            schedule.zone
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn change(
    name: &str,
    verb: &'static str,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let (schedules, by) = (db.schedules(), by(why));
    let (changed, done) = match verb {
        "remove" => (db.within(schedules.remove(name, &by)).await?, "removed"),
        "pause" => (db.within(schedules.pause(name, &by)).await?, "paused"),
        _ => (db.within(schedules.resume(name, &by)).await?, "resumed"),
    };
    match changed {
        Toggle::Changed => {}
        Toggle::Already => {
            return Err(Failure::conflict(format!("schedule {name} is already {done}")));
        }
        _ => {
            find(&entries(&db).await?, name)?;
            return Err(Failure::not_found(format!("there is no schedule {name:?}")));
        }
    }
    let answer = serde_json::json!({ "name": name, "result": done });
    out.one("schedule", &answer, |_| format!("schedule {name} is {done}"))?;
    Ok(ExitCode::SUCCESS)
}

async fn run_now(name: &str, why: Option<String>, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let Some(job) = db.within(db.schedules().run_now(name, &by(why))).await? else {
        find(&entries(&db).await?, name)?;
        return Err(Failure::not_found(format!("there is no schedule {name:?}")));
    };
    let answer = serde_json::json!({ "name": name, "job": job.to_string() });
    out.one("schedule", &answer, |_| format!("schedule {name}: job {job} enqueued"))?;
    Ok(ExitCode::SUCCESS)
}

async fn next(what: &str, zone: &str, count: u32, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    // A pattern has blanks and a name has none; a pattern needs no database.
    let (cron, zone, now) = if what.trim().contains(' ') {
        (what.to_owned(), zone.to_owned(), Timestamp::now())
    } else {
        let db = common.db().await?;
        let entries = entries(&db).await?;
        let entry = find(&entries, what)?;
        (entry.cron.clone(), entry.zone.clone(), db.now().await?)
    };
    let cron_schedule = CronSchedule::parse(&cron, &zone).map_err(bad)?;
    let mut slots = Vec::new();
    let mut moment = now;
    for _ in 0..count {
        moment = cron_schedule.next_after(moment).map_err(bad)?;
        slots.push(moment);
    }
    let tz = jiff::tz::TimeZone::get(&zone).map_err(|error| Failure::usage(error.to_string()))?;
    let answer = serde_json::json!({ "cron": cron, "words": words(&cron_schedule), "zone": zone, "slots": slots });
    out.one("schedule", &answer, |_| {
        let mut text = format!("{} ({zone})\n", words(&cron_schedule));
        for slot in &slots {
            let local = slot.to_zoned(tz.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
            text.push_str(&format!("{local}  {slot}  {}\n", relative(*slot, now)));
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A schedule with its pattern in words.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    schedule: ScheduleInfo,
    words: String,
}

/// Describes a pattern.
fn words(cron_schedule: &CronSchedule) -> String {
    // The describing library puts "At" before patterns without an hour, too.
    cron_schedule.describe().trim_end_matches('.').replace("At every ", "Every ")
}

/// Returns every schedule, by name.
async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let schedules = db.within(db.schedules().list()).await?;
    let entry = |schedule: ScheduleInfo| {
        let words = CronSchedule::parse(&schedule.cron, &schedule.zone)
            .map_or_else(|error| error.to_string(), |cron_schedule| words(&cron_schedule));
        Entry { schedule, words }
    };
    Ok(schedules.into_iter().map(entry).collect())
}

/// Finds a schedule by name; the error names the nearest known one.
fn find<'a>(entries: &'a [Entry], name: &str) -> Result<&'a ScheduleInfo, Failure> {
    let schedules = || entries.iter().map(|entry| &entry.schedule);
    schedules().find(|schedule| schedule.name == name).ok_or_else(|| {
        let known: Vec<String> = schedules().map(|schedule| schedule.name.clone()).collect();
        let failure = Failure::not_found(format!("there is no schedule {name:?}"));
        match nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near:?}?")),
            None => failure.hint("list schedules: leasehold schedules list"),
        }
    })
}
