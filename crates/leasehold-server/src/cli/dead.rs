//! `leasehold dead`: lists and redrives dead jobs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use leasehold::JobState;

use super::common::{Common, actor};
use super::filter::{Filter, Question};
use super::many::Selection;
use super::record::{self, Record};
use super::verdicts::{Act, Verdicts, redrive_step};
use crate::exit::Failure;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List dead jobs, the highest id first
    List(ListArgs),
    /// Redrive dead jobs: bring them back with fresh attempts
    #[command(after_help = REDRIVE_HELP)]
    Redrive {
        #[command(flatten)]
        selection: Selection,
        #[arg(long, value_parser = CAUSES, help = CAUSE_HELP)]
        cause: Option<String>,
    },
}

const CAUSES: [&str; 5] = ["exhausted", "lost", "refused", "undecodable", "expired"];
const CAUSE_HELP: &str = "Jobs that died of this";

const REDRIVE_HELP: &str = "\
Examples:
  leasehold dead redrive 81230 81231
  leasehold dead redrive --queue mail --cause exhausted --dry-run
  leasehold dead redrive --all --yes

A job whose idempotency key belongs to a newer job stays dead.";

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[arg(long, value_parser = CAUSES, help = CAUSE_HELP)]
    cause: Option<String>,
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
        Command::Redrive { selection, cause } => redrive(selection, cause, common).await,
    }
}

fn dead() -> Vec<JobState> {
    vec![JobState::DeadLetter, JobState::Expired]
}

async fn list(args: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let question = Question {
        filter: args.filter,
        states: dead(),
        cause: args.cause,
        before: args.before,
        limit: args.limit,
        ..Question::default()
    };
    let records = question.ask(&db).await?;
    let now = db.now().await?;
    out.list("jobs", &records, |records| record::dead_table(records, now))?;
    if out.is_table() {
        match records.last() {
            None => out.note("no dead jobs"),
            Some(last) if records.len() as i64 == question.limit => {
                out.note(format!("more may follow: --before {}", last.id));
            }
            Some(_) => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn redrive(
    selection: Selection,
    cause: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("redrive", cause.is_some())?;
    let (out, db) = (common.out(), common.db().await?);
    let question = Question {
        filter: selection.filter.clone(),
        states: dead(),
        cause,
        ..Question::ids(&selection.ids)
    };
    if !selection.confirm(&db, out, "redrive", &question).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut verdicts, actor) = (Verdicts::new(Act::Run, &selection), actor());
    if selection.by_id() {
        redrive_step(&db, &selection.ids, &actor, &mut verdicts).await?;
    } else {
        let act = async |step: Vec<Record>| {
            let ids: Vec<i64> = step.iter().map(|record| record.id).collect();
            redrive_step(&db, &ids, &actor, &mut verdicts).await
        };
        selection.each_step(&db, &question, act).await?;
    }
    verdicts.report(out)
}
