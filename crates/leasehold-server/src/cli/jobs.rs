//! `leasehold jobs`: list, show, promote, update, cancel and delete jobs.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use leasehold::admin::{Cursor, JobFilter, JobInfo, JobUpdate, Page};
use leasehold::{JobId, JobState};
use serde::Serialize;

use super::common::{Common, by};
use super::db::Db;
use super::due::{Due, parse_due};
use super::filter::{Filter, States};
use super::many::Selection;
use super::record;
use super::results::{Act, Results, cancel_step, delete_step, promote_step, update_step};
use crate::exit::Failure;
use crate::output::{Columns, Format, Out};
use crate::text::{parse_duration, whole};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List jobs, newest first by the time they were finished, claimed or else enqueued
    #[command(after_help = LIST_HELP)]
    List(ListArgs),
    /// Show everything about jobs
    Show {
        /// Ids of jobs
        #[arg(required = true, value_name = "ID")]
        ids: Vec<JobId>,
    },
    /// Promote waiting jobs: they are due now
    #[command(after_help = PROMOTE_HELP)]
    Promote {
        #[command(flatten)]
        selection: Selection,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Update waiting jobs: priority, due time, expiry, tag, attempts
    #[command(after_help = UPDATE_HELP, override_usage = "leasehold jobs update <ID>... <VALUE>...")]
    Update(UpdateArgs),
    /// Cancel waiting jobs, and ask running ones to stop
    #[command(after_help = CANCEL_HELP)]
    Cancel {
        #[command(flatten)]
        selection: Selection,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
    /// Delete waiting and dead jobs without running them and without history
    #[command(after_help = DELETE_HELP)]
    Delete {
        #[command(flatten)]
        selection: Selection,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
}

const DELETE_HELP: &str = "\
Examples:
  leasehold jobs delete 81230 --why 'enqueued by mistake'
  leasehold jobs delete --filter 'state:dead cause:expired older:7d' --dry-run

To end a job and keep a record of it, cancel it. A running job is not touched (exit code 5).";

const LIST_HELP: &str = "\
Examples:
  leasehold jobs list --state running
  leasehold jobs list --queue mail --name 'email.*' --limit 20
  leasehold jobs list --filter 'state:retrying error:\"timed out\" older:1h'
  leasehold jobs list --after CURSOR          the next page; each page prints its cursor
  leasehold jobs list --state completed --since 2h -o ndjson | jq .kwargs";

const PROMOTE_HELP: &str = "\
Examples:
  leasehold jobs promote 81230
  leasehold jobs promote --queue mail --tag import --dry-run

Running, dead and finished jobs are not touched (exit code 5). Redrive dead jobs: leasehold dead redrive.";

const UPDATE_HELP: &str = "\
Examples:
  leasehold jobs update 81230 --priority -10
  leasehold jobs update 81230 81231 --at +2h --why 'after the maintenance'

A new due time moves the expiry along, unless --expires is given. Running, dead and finished jobs are \
not touched (exit code 5).";

const CANCEL_HELP: &str = "\
Examples:
  leasehold jobs cancel 81230 --why 'ordered twice'
  leasehold jobs cancel --queue mail --name newsletter.send --dry-run";

/// Which part of a list to show.
#[derive(Args, Debug)]
pub struct Part {
    /// Continue after this cursor, which the previous page printed
    #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
    after: Option<Cursor>,
    /// List at most this many jobs
    #[arg(long, default_value_t = 50, value_parser = whole::<u32>(1, 10_000))]
    limit: u32,
}

/// Jobs of a list, over as many pages as it takes.
pub struct Listed {
    pub jobs: Vec<JobInfo>,
    pub next: Option<Cursor>,
    pub now: Timestamp,
}

impl Part {
    pub async fn read(&self, db: &Db, filter: &JobFilter) -> Result<Listed, Failure> {
        let (mut jobs, mut after) = (Vec::new(), self.after);
        loop {
            let left = self.limit.saturating_sub(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
            let page = after.iter().fold(Page::first(left), |page, cursor| page.after(*cursor));
            let read = db.within(db.jobs().list(filter, &page)).await?;
            jobs.extend(read.jobs);
            after = read.next;
            if after.is_none() || jobs.len() >= self.limit as usize {
                return Ok(Listed { jobs, next: after, now: read.now });
            }
        }
    }
}

impl Listed {
    /// Prints the jobs, and how to list the next ones.
    pub fn print(
        &self,
        out: Out,
        none: &str,
        table: fn(&[JobInfo], Timestamp) -> Columns,
    ) -> Result<(), Failure> {
        match out.format {
            Format::Json => {
                let next = self.next.map(|cursor| cursor.to_string());
                out.document(serde_json::json!({ "jobs": self.jobs, "next": next }))?;
            }
            _ => out.list("jobs", &self.jobs, |jobs| table(jobs, self.now))?,
        }
        match self.next {
            Some(next) if out.is_table() => out.note(format!("more follow: --after {next}")),
            None if out.is_table() && self.jobs.is_empty() => out.note(none),
            _ => {}
        }
        Ok(())
    }
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("value").required(true).multiple(true)
    .args(["priority", "at", "expires", "tag", "max_attempts"]))]
pub struct UpdateArgs {
    /// Ids of waiting jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
    /// Set the priority; lower numbers run first
    #[arg(long, allow_hyphen_values = true, value_parser = whole::<i32>(i32::MIN.into(), i32::MAX.into()))]
    priority: Option<i32>,
    /// Run at this time: '+5m' from now by the database's clock, or 2026-05-01T09:00:00Z
    #[arg(long, value_parser = parse_due, value_name = "WHEN")]
    at: Option<Due>,
    /// Expire at this time, unless the job has started before it
    #[arg(long, value_parser = parse_due, value_name = "WHEN")]
    expires: Option<Due>,
    /// Set the tag; '' removes it
    #[arg(long)]
    tag: Option<String>,
    /// Bury the job after this many attempts, counted from its first
    #[arg(long, value_parser = whole::<i32>(1, i32::MAX.into()))]
    max_attempts: Option<i32>,
    /// Record this reason in the audit log
    #[arg(long)]
    why: Option<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Select jobs in these states: scheduled, ready, running, retrying, completed, cancelled, dead;
    /// waiting is short for scheduled,ready,retrying
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    state: Vec<States>,
    #[command(flatten)]
    filter: Filter,
    /// Select jobs with these ids
    #[arg(long, value_delimiter = ',')]
    id: Vec<JobId>,
    /// Select jobs that were finished, claimed or else enqueued within this time
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    since: Option<Duration>,
    #[command(flatten)]
    part: Part,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List(args) => list(args, common).await,
        Command::Show { ids } => show(&ids, common).await,
        Command::Promote { selection, why } => promote(selection, why, common).await,
        Command::Update(args) => update(args, common).await,
        Command::Cancel { selection, why } => cancel(selection, why, common).await,
        Command::Delete { selection, why } => delete(selection, why, common).await,
    }
}

async fn list(args: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let mut flags = JobFilter::any();
    // An empty list of ids or states would match no job.
    if !args.state.is_empty() {
        flags = flags.states(args.state.into_iter().flat_map(|states| states.0));
    }
    if !args.id.is_empty() {
        flags = flags.ids(args.id);
    }
    let flags = args.since.into_iter().fold(flags, JobFilter::newer);
    let filter = args.filter.join()?.and(flags).map_err(Failure::usage)?;
    let (out, db) = (common.out(), common.db().await?);
    args.part.read(&db, &filter).await?.print(out, "no jobs match", record::table)?;
    Ok(ExitCode::SUCCESS)
}

/// A job, why it does not run if it waits, and what it kept if it completed.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    job: &'a JobInfo,
    why_waiting: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a serde_json::Value>,
}

/// Returns what a completed job kept; nothing to a viewer.
async fn result_of(db: &Db, job: &JobInfo) -> Result<Option<serde_json::Value>, Failure> {
    if job.state != JobState::Completed || job.kwargs.is_none() {
        return Ok(None);
    }
    db.within(db.batches().result(job.id)).await
}

async fn show(ids: &[JobId], common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let filter = JobFilter::any().ids(ids.iter().copied());
    let listed = Part { after: None, limit: 100_000 }.read(&db, &filter).await?;
    let (jobs, now) = (listed.jobs, listed.now);
    match jobs.as_slice() {
        [one] if ids.len() == 1 => {
            let why_waiting = match one.state.is_waiting() {
                true => db.within(db.jobs().why_waiting(one.id)).await?,
                false => None,
            };
            let result = result_of(&db, one).await?;
            let shown = Shown { job: one, why_waiting, result: result.as_ref() };
            out.one("job", &shown, |shown| {
                let result = shown.result.map(|result| format!("result  {result}\n"));
                record::show(shown.job, shown.why_waiting.as_deref(), now)
                    + &result.unwrap_or_default()
            })?;
        }
        _ if out.is_table() => {
            let all: Vec<String> = jobs.iter().map(|job| record::show(job, None, now)).collect();
            if !all.is_empty() {
                out.print(all.join("\n").trim_end())?;
            }
        }
        _ => out.list("jobs", &jobs, |jobs| record::table(jobs, now))?,
    }
    match ids.iter().find(|id| jobs.iter().all(|job| job.id != **id)) {
        Some(missing) => Err(super::results::no_such_job(missing)),
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn promote(
    selection: Selection,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("promote", false)?;
    let Some(filter) = selection.matching(JobState::WAITING)? else {
        return no_such_state(common);
    };
    let (out, db) = (common.out(), common.db().await?);
    if !selection.confirm(&db, out, "promote", &filter).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut results, by) = (Results::new(Act::Promote, &selection), by(why));
    if selection.by_id() {
        promote_step(&db, &selection.ids, &by, &mut results).await?;
    } else {
        let act = async |ids: &[JobId]| promote_step(&db, ids, &by, &mut results).await;
        selection.each_step(&db, &filter, act).await?;
    }
    results.report(out)
}

async fn update(args: UpdateArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let now = db.now().await?;
    let mut update = JobUpdate::new();
    if let Some(priority) = args.priority {
        update = update.priority(priority);
    }
    if let Some(due) = args.at {
        update = update.run_at(due.from(now)?);
    }
    if let Some(expiry) = args.expires {
        update = update.expires_at(expiry.from(now)?);
    }
    if let Some(tag) = args.tag {
        update = update.tag(tag);
    }
    if let Some(most) = args.max_attempts {
        update = update.max_attempts(most);
    }
    let mut results = Results::by_id(Act::Update);
    update_step(&db, &args.ids, &update, &by(args.why), &mut results).await?;
    results.report(out)
}

async fn cancel(
    selection: Selection,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("cancel", false)?;
    let states = [JobState::WAITING, &[JobState::Running]].concat();
    let Some(filter) = selection.matching(&states)? else { return no_such_state(common) };
    let (out, db) = (common.out(), common.db().await?);
    if !selection.confirm(&db, out, "cancel", &filter).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut results, by) = (Results::new(Act::Cancel, &selection), by(why));
    if selection.by_id() {
        cancel_step(&db, &selection.ids, &by, &mut results).await?;
    } else {
        let act = async |ids: &[JobId]| cancel_step(&db, ids, &by, &mut results).await;
        selection.each_step(&db, &filter, act).await?;
    }
    results.report(out)
}

async fn delete(
    selection: Selection,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("delete", false)?;
    let states = [JobState::WAITING, &[JobState::Dead]].concat();
    let Some(filter) = selection.matching(&states)? else { return no_such_state(common) };
    let (out, db) = (common.out(), common.db().await?);
    if !selection.confirm(&db, out, "delete", &filter).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut results, by) = (Results::new(Act::Delete, &selection), by(why));
    if selection.by_id() {
        delete_step(&db, &selection.ids, &by, &mut results).await?;
    } else {
        let act = async |ids: &[JobId]| delete_step(&db, ids, &by, &mut results).await;
        selection.each_step(&db, &filter, act).await?;
    }
    results.report(out)
}

/// The filter names only states that the command does not change.
pub fn no_such_state(common: &Common) -> Result<ExitCode, Failure> {
    common.out().note("no job matches; nothing was changed");
    Ok(ExitCode::SUCCESS)
}
