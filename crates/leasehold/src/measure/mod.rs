//! Measure: samples of the database and counts of this process.
//!
//! In reading order: this file takes the sample of a minute; [`process`] counts what this process does;
//! [`names`] lists every metric; [`text`] formats them for a scraper; [`canary`] proves that a quiet
//! queue is still worked.
//!
//! # Invariants
//! - One sample per minute for the whole fleet, taken by the first process that asks. The statement
//!   that writes the sample also compares and advances the row of the duty.
//! - Enqueue, claim and complete do nothing for it: completions are read from history.
//! - It reads only the engine's own tables. The workers of a sweep count the rows of its table.
//!
//! - Every part has its own time limit and its own result. A part that fails is missing in its minute:
//!   a chart has a gap there, and alarms that depend on it are neither raised nor cleared.
//!
//! # What can go wrong
//! - The table of a sweep is locked, slow or gone: its worker counts nothing, and its rows are missing
//!   in this minute.
//! - No process runs housekeeping: no sample is taken and no alarm is raised. A scraper sees it by
//!   `leasehold_sample_age_seconds`.
//! - The sampler dies: the next process that asks takes the minute, and reads what happened in between
//!   from history, up to an hour back.

pub mod canary;
#[doc(hidden)]
pub mod names;
mod numbers;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod text;

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::alarm::{self, Change, Thresholds};
use crate::database::Database;
use crate::error::CallError;

/// How often a housekeeper asks whether a minute has passed.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long a sample and its evaluation may take: more than all limits of its parts.
const LIMIT: Duration = Duration::from_secs(58);
/// How long the evaluation of alarms may take.
const EVALUATE_LIMIT: &str = "set statement_timeout = '8s'";

/// Every part of a sample that can fail by itself.
pub(crate) const PARTS: [&str; 10] = [
    "vacuum", "mirrors", "flows", "queues", "recount", "ages", "sweeps", "tables", "hours",
    "alarms",
];

/// The parts that the server measures, in this order, with their time limits. `vacuum` comes first: a
/// vacuum that is held back slows down everything that reads tables.
const MEASURED: [(&str, &str); 8] = [
    ("vacuum", "3s"),
    ("mirrors", "3s"),
    ("flows", "8s"),
    ("queues", "8s"),
    ("ages", "5s"),
    ("sweeps", "3s"),
    ("tables", "2s"),
    ("hours", "4s"),
];

/// The result of one sample.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampled {
    /// The minute that was sampled, by its beginning.
    pub minute: Timestamp,
    /// Alarms that were raised or cleared.
    pub changes: Vec<Change>,
    /// Parts that failed or timed out, and why. They are missing in this minute; nothing else is.
    pub failed: Vec<(&'static str, String)>,
}

/// Takes the sample of the minute that has ended, if it is due, and evaluates it. `None`: another
/// process does, or did.
///
/// Uses its own session: a count over a long queue must not delay the reclaim of leases.
pub async fn run_once(
    database: &Database,
    thresholds: &Thresholds,
) -> Result<Option<Sampled>, CallError> {
    let sampling = async {
        let session =
            database.connect().await.map_err(|error| CallError::Connect(Box::new(error)))?;
        sample_by(&session, thresholds).await
    };
    tokio::time::timeout(LIMIT, sampling).await.map_err(|_| CallError::TimedOut(LIMIT))?
}

/// Like [`run_once`] by the default thresholds, on a given session. Close the session if this is cancelled
/// half-way.
pub async fn sample(client: &Client) -> Result<Option<Sampled>, CallError> {
    sample_by(client, &Thresholds::default()).await
}

async fn sample_by(client: &Client, thresholds: &Thresholds) -> Result<Option<Sampled>, CallError> {
    client
        .batch_execute("begin; set local statement_timeout = '3s'; set local lock_timeout = '2s'")
        .await?;
    let mut failed = Vec::new();
    let taken = take(client, &mut failed).await;
    let end = if taken.is_ok() { "commit" } else { "rollback" };
    let ended = client.batch_execute(end).await;
    let Some(minute) = taken? else { return Ok(None) };
    ended?;
    let changes = evaluate(client, minute, thresholds, &mut failed).await?;
    for (part, error) in &failed {
        tracing::debug!(part, error, "a part of the sample is missing in this minute");
    }
    Ok(Some(Sampled { minute, changes, failed }))
}

/// Parts that failed, and why.
type Missing = Vec<(&'static str, String)>;

/// Takes the sample, unless another process has. The first to ask owns the minute until the end of the
/// transaction.
async fn take(client: &Client, failed: &mut Missing) -> Result<Option<Timestamp>, CallError> {
    let rows = client.query_typed("select leasehold_internal.begin_sample()", &[]).await?;
    let minute = rows.first().and_then(|row| row.get::<_, Option<Timestamp>>(0));
    let Some(minute) = minute else { return Ok(None) };
    for (part, limit) in MEASURED {
        let sql = "select leasehold_internal.measure_part($2, $1)";
        let params = [(&minute as _, Type::TIMESTAMPTZ), (&part as _, Type::TEXT)];
        if let Some(error) = alone(client, limit, sql, &params).await? {
            failed.push((part, error));
        }
        if part == "queues" {
            // Recounts short queues next to a very long one. A queue whose recount times out keeps the
            // page estimate.
            let sql = "select leasehold_internal.recount_queues($1)";
            let params = [(&minute as _, Type::TIMESTAMPTZ)];
            if let Some(error) = alone(client, "5s", sql, &params).await? {
                failed.push(("recount", error));
            }
        }
    }
    client.batch_execute("set local statement_timeout = '3s'").await?;
    client
        .query_typed("select leasehold_internal.end_sample($1)", &[(&minute, Type::TIMESTAMPTZ)])
        .await?;
    Ok(Some(minute))
}

/// Runs one statement of the sample under its own limit. The limit is the server's, so the statement
/// ends too, not only our wait. Returns the error if the server refused it; the rest of the sample
/// stays.
async fn alone(
    client: &Client,
    limit: &str,
    sql: &str,
    params: &[crate::link::Param<'_>],
) -> Result<Option<String>, CallError> {
    let begin = format!("savepoint part; set local statement_timeout = '{limit}'");
    client.batch_execute(&begin).await?;
    match client.query_typed(sql, params).await {
        Ok(_) => {
            client.batch_execute("release savepoint part").await?;
            Ok(None)
        }
        Err(error) => {
            let error = undone(error.into())?;
            client.batch_execute("rollback to savepoint part").await?;
            Ok(Some(error))
        }
    }
}

/// Returns the text of an error that a savepoint undoes; any other error ends the sample.
fn undone(error: CallError) -> Result<String, CallError> {
    match &error {
        CallError::Database(inner) if inner.as_db_error().is_some() => Ok(error.to_string()),
        _ => Err(error),
    }
}

/// Evaluates the sample. A sample that cannot be evaluated is still kept.
async fn evaluate(
    client: &Client,
    minute: Timestamp,
    thresholds: &Thresholds,
    failed: &mut Missing,
) -> Result<Vec<Change>, CallError> {
    client.batch_execute(EVALUATE_LIMIT).await?;
    let changes = match alarm::evaluate_by(client, minute, thresholds).await {
        Ok(changes) => changes,
        Err(error) => {
            failed.push(("alarms", undone(error)?));
            Vec::new()
        }
    };
    client.batch_execute("reset statement_timeout").await?;
    Ok(changes)
}
