//! `leasehold jobs`: list, show, retry and cancel jobs.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::JobState;

use super::common::{Common, actor};
use super::filter::{Filter, Question, parse_state};
use super::many::Selection;
use super::record;
use super::verdicts::{Act, Verdicts, cancel_step, retry_step};
use crate::exit::Failure;
use crate::text::parse_duration;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List jobs, the highest id first
    #[command(after_help = LIST_HELP)]
    List(ListArgs),
    /// Show everything about a job
    Show {
        /// The ids of jobs
        #[arg(required = true, value_name = "ID")]
        ids: Vec<i64>,
    },
    /// Let jobs run now: promote a waiting one, redrive a dead one
    #[command(after_help = RETRY_HELP)]
    Retry(Selection),
    /// Cancel jobs: a waiting one at once; a running one is asked to stop
    #[command(after_help = CANCEL_HELP)]
    Cancel {
        #[command(flatten)]
        selection: Selection,
        /// The reason, for the records
        #[arg(long)]
        why: Option<String>,
    },
}

const LIST_HELP: &str = "\
Examples:
  leasehold jobs list --state running
  leasehold jobs list --queue mail --name 'email.*' --limit 20
  leasehold jobs list --before 81230          the page after the one that ended with job 81230
  leasehold jobs list --state done --since 2h -o ndjson | jq .kwargs";

const RETRY_HELP: &str = "\
Examples:
  leasehold jobs retry 81230
  leasehold jobs retry --queue mail --tag import --dry-run

A running job is not touched (exit code 5).";

const CANCEL_HELP: &str = "\
Examples:
  leasehold jobs cancel 81230 --why 'ordered twice'
  leasehold jobs cancel --queue mail --name newsletter.send --dry-run";

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Jobs in these states: pending (waiting), processing (running), dead_letter (dead), expired,
    /// done, cancelled
    #[arg(long, value_parser = parse_state, value_delimiter = ',', value_name = "STATE")]
    state: Vec<JobState>,
    #[command(flatten)]
    filter: Filter,
    /// Jobs with these ids
    #[arg(long, value_delimiter = ',')]
    id: Vec<i64>,
    /// How far back to look for finished jobs
    #[arg(long, value_parser = parse_duration, default_value = "1h", value_name = "TIME")]
    since: Duration,
    /// Only jobs with a lower id: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// The most jobs to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List(args) => list(args, common).await,
        Command::Show { ids } => show(&ids, common).await,
        Command::Retry(selection) => retry(selection, common).await,
        Command::Cancel { selection, why } => cancel(selection, why, common).await,
    }
}

async fn list(args: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let question = Question {
        filter: args.filter,
        states: args.state,
        since: args.id.is_empty().then_some(args.since),
        ids: args.id,
        before: args.before,
        limit: args.limit,
        cause: None,
    };
    let records = question.ask(&db).await?;
    let now = db.now().await?;
    out.list("jobs", &records, |records| record::table(records, now))?;
    if out.is_table() {
        match records.last() {
            None => out
                .note("no jobs match (finished ones are looked for in the last hour; see --since)"),
            Some(last) if records.len() as i64 == question.limit => {
                out.note(format!("more may follow: --before {}", last.id));
            }
            Some(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(ids: &[i64], common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let records = Question::ids(ids).ask(&db).await?;
    let now = db.now().await?;
    match records.as_slice() {
        [one] if ids.len() == 1 => out.one("job", one, |record| record.show(now))?,
        _ if out.is_table() => {
            let all: Vec<String> = records.iter().map(|record| record.show(now)).collect();
            if !all.is_empty() {
                out.print(all.join("\n").trim_end())?;
            }
        }
        _ => out.list("jobs", &records, |records| record::table(records, now))?,
    }
    match ids.iter().find(|id| records.iter().all(|record| record.id != **id)) {
        Some(missing) => Err(super::verdicts::no_such_job(*missing)),
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn retry(selection: Selection, common: &Common) -> Result<ExitCode, Failure> {
    selection.check("retry", false)?;
    let (out, db) = (common.out(), common.db().await?);
    let question = Question {
        filter: selection.filter.clone(),
        states: vec![JobState::Pending, JobState::DeadLetter, JobState::Expired],
        ..Question::ids(&selection.ids)
    };
    if !selection.confirm(&db, out, "retry", &question).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut verdicts, actor) = (Verdicts::new(Act::Run, &selection), actor());
    if selection.by_id() {
        retry_step(&db, &selection.ids, &actor, &mut verdicts).await?;
    } else {
        let act = async |step: Vec<record::Record>| {
            let ids: Vec<i64> = step.iter().map(|record| record.id).collect();
            retry_step(&db, &ids, &actor, &mut verdicts).await
        };
        selection.each_step(&db, &question, act).await?;
    }
    verdicts.report(out)
}

async fn cancel(
    selection: Selection,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("cancel", false)?;
    let (out, db) = (common.out(), common.db().await?);
    let question = Question {
        filter: selection.filter.clone(),
        states: vec![JobState::Pending, JobState::Processing],
        ..Question::ids(&selection.ids)
    };
    if !selection.confirm(&db, out, "cancel", &question).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut verdicts, actor) = (Verdicts::new(Act::Cancel, &selection), actor());
    if selection.by_id() {
        cancel_step(&db, &selection.ids, &actor, why.as_deref(), &mut verdicts).await?;
    } else {
        let act = async |step: Vec<record::Record>| {
            let ids: Vec<i64> = step.iter().map(|record| record.id).collect();
            cancel_step(&db, &ids, &actor, why.as_deref(), &mut verdicts).await
        };
        selection.each_step(&db, &question, act).await?;
    }
    verdicts.report(out)
}
