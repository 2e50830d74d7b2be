//! `leasehold dead`: lists, groups and redrives dead jobs.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use leasehold::admin::{DeadGroup, JobFilter};
use leasehold::{Cause, JobId, JobState};

use super::common::{Common, by};
use super::filter::Filter;
use super::jobs::{Part, no_such_state};
use super::many::Selection;
use super::record;
use super::results::{Act, Results, redrive_step};
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::{one_line, relative, whole};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List dead jobs, the latest death first
    List(ListArgs),
    /// Group dead jobs by name and error, the largest group first
    Groups {
        #[command(flatten)]
        filter: Filter,
        /// List at most this many groups
        #[arg(long, default_value_t = 50, value_parser = whole::<u32>(1, 1000))]
        limit: u32,
    },
    /// Redrive dead jobs with fresh attempts
    #[command(after_help = REDRIVE_HELP)]
    Redrive {
        #[command(flatten)]
        selection: Selection,
        #[arg(long, value_delimiter = ',', help = CAUSE_HELP)]
        cause: Vec<Cause>,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
}

const CAUSE_HELP: &str =
    "Select jobs that died of these causes: exhausted, lost, rejected, undecodable, expired";

const REDRIVE_HELP: &str = "\
Examples:
  leasehold dead redrive 81230 81231
  leasehold dead redrive --queue mail --cause exhausted --dry-run
  leasehold dead redrive --filter 'error:\"connection reset\" newer:2h'
  leasehold dead redrive --all --yes

A job whose idempotency key belongs to a newer job stays dead.";

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[arg(long, value_delimiter = ',', help = CAUSE_HELP)]
    cause: Vec<Cause>,
    #[command(flatten)]
    part: Part,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List(args) => list(args, common).await,
        Command::Groups { filter, limit } => groups(&filter, limit, common).await,
        Command::Redrive { selection, cause, why } => redrive(selection, cause, why, common).await,
    }
}

async fn list(args: ListArgs, common: &Common) -> Result<ExitCode, Failure> {
    let filter = args.filter.join()?.and(with_causes(args.cause)).map_err(Failure::usage)?;
    let Some(filter) = filter.only(&[JobState::Dead]) else {
        return Err(Failure::usage(
            "the filter selects no dead jobs; remove its state, or use: leasehold jobs list",
        ));
    };
    let (out, db) = (common.out(), common.db().await?);
    args.part.read(&db, &filter).await?.print(out, "no dead jobs", record::dead_table)?;
    Ok(ExitCode::SUCCESS)
}

async fn groups(filter: &Filter, limit: u32, common: &Common) -> Result<ExitCode, Failure> {
    let filter = filter.join()?;
    let (out, db) = (common.out(), common.db().await?);
    let groups = db.within(db.dead().groups(&filter, limit)).await?;
    let now = db.now().await?;
    out.list("groups", &groups, |groups: &[DeadGroup]| {
        let mut columns = Columns::new(&["JOBS", "NAME", "CAUSES", "LAST", "ERROR"]);
        for group in groups {
            let causes: Vec<&str> = group.causes.iter().map(|cause| cause.as_str()).collect();
            columns.row([
                group.jobs.to_string(),
                one_line(&group.name, 40),
                causes.join(" "),
                relative(group.last_at, now),
                one_line(&group.fingerprint, 90),
            ]);
        }
        columns
    })?;
    if groups.is_empty() && out.is_table() {
        out.note("no dead jobs");
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the filter of `--cause`. Without the flag it matches every job.
fn with_causes(causes: Vec<Cause>) -> JobFilter {
    match causes.is_empty() {
        true => JobFilter::any(),
        false => JobFilter::any().causes(causes),
    }
}

async fn redrive(
    selection: Selection,
    cause: Vec<Cause>,
    why: Option<String>,
    common: &Common,
) -> Result<ExitCode, Failure> {
    selection.check("redrive", !cause.is_empty())?;
    let Some(filter) = selection.matching(&[JobState::Dead])? else {
        return no_such_state(common);
    };
    let filter = filter.and(with_causes(cause)).map_err(Failure::usage)?;
    let (out, db) = (common.out(), common.db().await?);
    if !selection.confirm(&db, out, "redrive", &filter).await? {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut results, by) = (Results::new(Act::Redrive, &selection), by(why));
    if selection.by_id() {
        redrive_step(&db, &selection.ids, &by, &mut results).await?;
    } else {
        let act = async |ids: &[JobId]| redrive_step(&db, ids, &by, &mut results).await;
        selection.each_step(&db, &filter, act).await?;
    }
    results.report(out)
}
