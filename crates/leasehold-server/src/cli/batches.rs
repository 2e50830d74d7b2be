//! `leasehold batches`: list, show and cancel batches.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use leasehold::BatchId;
use leasehold::admin::{BatchInfo, BatchState};

use super::common::{Common, by};
use crate::exit::Failure;
use crate::output::{Columns, Format, fields};
use crate::text::{one_line, relative};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List batches with their progress, newest first
    #[command(after_help = LIST_HELP)]
    List {
        /// Select batches in this state: open, sealed, closed or cancelled
        #[arg(long)]
        state: Option<BatchState>,
        /// Continue after this batch, the last one of the previous page
        #[arg(long, value_name = "ID")]
        after: Option<BatchId>,
        /// List at most this many batches
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Show the progress of a batch and its follow-ups
    Show {
        /// Id of the batch
        id: BatchId,
        /// Show up to this many results of its jobs
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
        results: u32,
    },
    /// Cancel a batch: cancel its waiting jobs and ask the running ones to stop
    #[command(after_help = CANCEL_HELP)]
    Cancel {
        /// Id of the batch
        id: BatchId,
        /// Record this reason in the audit log
        #[arg(long)]
        why: Option<String>,
    },
}

const LIST_HELP: &str = "\
Examples:
  leasehold batches list --state sealed
  leasehold jobs list --filter 'batch:17 state:waiting'     the jobs of one batch";

const CANCEL_HELP: &str = "\
Example:
  leasehold batches cancel 17 --why 'the import was wrong'

The follow-up for success is not enqueued; the one for death or for any end is.";

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List { state, after, limit } => list(state, after, limit, common).await,
        Command::Show { id, results } => show(id, results, common).await,
        Command::Cancel { id, why } => cancel(id, why, common).await,
    }
}

fn percent(batch: &BatchInfo) -> String {
    match batch.total {
        0 => String::new(),
        total => format!("{}/{total} ({} %)", batch.ended(), batch.ended() * 100 / total),
    }
}

async fn list(
    state: Option<BatchState>,
    after: Option<BatchId>,
    limit: u32,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let page = db.within(db.batches().list(state, after, limit)).await?;
    let now = db.now().await?;
    if out.format == Format::Json {
        let next = page.next.map(|next| next.to_string());
        out.document(serde_json::json!({ "batches": page.batches, "next": next }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out.list("batches", &page.batches, |batches| table(batches, now))?;
    match page.next {
        Some(next) if out.is_table() => out.note(format!("more follow: --after {next}")),
        None if out.is_table() && page.batches.is_empty() => out.note("no batches"),
        _ => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn table(batches: &[BatchInfo], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "ID",
        "STATE",
        "ENDED",
        "WAITING",
        "RUNNING",
        "DEAD",
        "CREATED",
        "FOLLOW-UP",
        "DESCRIPTION",
    ]);
    for batch in batches {
        columns.row([
            batch.id.to_string(),
            batch.state.to_string(),
            percent(batch),
            batch.waiting.to_string(),
            batch.running.to_string(),
            batch.dead.to_string(),
            relative(batch.created_at, now),
            follow_up(batch),
            one_line(batch.description.as_deref().unwrap_or_default(), 60),
        ]);
    }
    columns
}

fn follow_up(batch: &BatchInfo) -> String {
    match batch.follow_up_job_id {
        Some(job) => format!("job {job}"),
        None => [&batch.on_success, &batch.on_end, &batch.on_death]
            .into_iter()
            .find_map(Clone::clone)
            .filter(|_| batch.closed_at.is_none())
            .unwrap_or_default(),
    }
}

fn text(batch: &BatchInfo, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| at.map(|at| relative(at, now)).unwrap_or_default();
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    fields(&[
        ("batch", batch.id.to_string()),
        ("description", name(&batch.description)),
        ("state", batch.state.to_string()),
        ("ended", percent(batch)),
        ("jobs", batch.total.to_string()),
        ("waiting", batch.waiting.to_string()),
        ("running", batch.running.to_string()),
        ("completed", batch.completed.to_string()),
        ("cancelled", batch.cancelled.to_string()),
        ("dead", batch.dead.to_string()),
        ("deleted", batch.deleted.to_string()),
        ("opened", relative(batch.created_at, now)),
        ("sealed", when(batch.sealed_at)),
        ("closed", when(batch.closed_at)),
        ("cancelled at", when(batch.cancelled_at)),
        ("cancelled by", name(&batch.cancelled_by)),
        ("why", name(&batch.cancelled_why)),
        ("on success", name(&batch.on_success)),
        ("on death", name(&batch.on_death)),
        ("on end", name(&batch.on_end)),
        ("follow-up", batch.follow_up_job_id.map(|id| format!("job {id}")).unwrap_or_default()),
    ])
}

fn missing(id: BatchId) -> Failure {
    Failure::not_found(format!("there is no batch {id}")).hint("leasehold batches list")
}

async fn show(id: BatchId, results: u32, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let batch = db.within(db.batches().get(id)).await?.ok_or_else(|| missing(id))?;
    let now = db.now().await?;
    // A viewer sees no results.
    let results = match db.within(db.batches().results(id, None, results)).await {
        Ok(results) => results,
        Err(failure) if failure.is_denied() => Vec::new(),
        Err(failure) => return Err(failure),
    };
    if out.is_table() {
        let mut shown = text(&batch, now);
        for result in results {
            shown.push_str(&format!("result of job {}: {}\n", result.job_id, result.result));
        }
        out.print(shown.trim_end())?;
    } else {
        out.document(serde_json::json!({ "batch": batch, "results": results }))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(id: BatchId, why: Option<String>, common: &Common) -> Result<ExitCode, Failure> {
    let (out, db) = (common.out(), common.db().await?);
    let known = db.within(db.batches().get(id)).await?.ok_or_else(|| missing(id))?;
    if known.closed_at.is_some() {
        return Err(Failure::conflict(format!("batch {id} is closed; all of its jobs have ended")));
    }
    let done = db.within(db.batches().cancel(id, &by(why))).await?;
    let result = serde_json::json!({
        "id": id.to_string(), "cancelled": done.cancelled, "requested": done.requested, "more": done.more,
    });
    out.one("batch", &result, |_| {
        let rest = if done.more { "; housekeeping cancels the rest" } else { "" };
        format!(
            "batch {id}: {} waiting jobs cancelled, {} running jobs asked to stop{rest}",
            done.cancelled, done.requested
        )
    })?;
    Ok(ExitCode::SUCCESS)
}
