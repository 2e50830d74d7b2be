//! Bulk operations on notes, in steps: renames, deleted accounts, moved groups, re-indexing.
//!
//! # Invariants
//! - Each step is one short transaction. A save waits for one step at most.
//! - After each step the worker waits for a cooldown of eight times the duration of the step, which leaves
//!   most of the database to requests. The mirror has a cooldown of its own, for the index.
//! - Each step stores how far the operation has come: after a crash it resumes from there.
//! - After 40 steps the job is snoozed, so that other jobs run: deleting an account does not wait for a
//!   re-index of everything.

use std::time::{Duration, Instant};

use leasehold::schedule::Schedule;
use leasehold::worker::WorkerBuilder;
use leasehold::{Ctx, Job, JobError, JobResult, Outcome};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::error::{Refused, StartError};
use crate::service::Annotations;

/// The queue of bulk operations.
pub const QUEUE: &str = "annotations.bulk";
/// Notes per step.
const NOTES: i32 = 250;
/// Steps before the job is snoozed, so that other operations run.
const STEPS: usize = 40;
/// The cooldown after a step, as a multiple of its duration.
const COOLDOWN: u32 = 8;
/// The longest cooldown: one slow moment of the database must not delay the operation for minutes.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(1);

#[derive(Job, Serialize, Deserialize)]
#[job(name = "annotations.bulk", queue = "annotations.bulk", max_attempts = 1000)]
struct Bulk {
    bulk: i64,
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "annotations.purge", queue = "annotations.bulk", max_attempts = 3)]
struct Purge {}

/// Adds everything that annotations need to a worker: the index, bulk operations, pruning.
pub fn worker<S: Send + Sync + 'static>(
    annotations: &Annotations,
    builder: WorkerBuilder<S>,
) -> Result<WorkerBuilder<S>, StartError> {
    let schedule = Schedule::new("annotations.purge", "41 * * * *", "UTC", &Purge {})
        .map_err(|error| StartError::Settings(error.to_string()))?;
    let (working, purging) = (annotations.clone(), annotations.clone());
    let builder = builder
        .queue(QUEUE, 2)
        .handle(move |job: Bulk, ctx: Ctx| work(working.clone(), job, ctx))
        .handle(move |_: Purge| purge(purging.clone()))
        .schedule(schedule);
    Ok(match annotations.writes_index() {
        true => index_worker(annotations, builder),
        false => builder,
    })
}

/// Adds only what keeps the index equal to the notes: for a process that became the writer of the index
/// ([`Annotations::becomes_writer`]) while its worker ran.
pub fn index_worker<S: Send + Sync + 'static>(
    annotations: &Annotations,
    builder: WorkerBuilder<S>,
) -> WorkerBuilder<S> {
    match &annotations.0.mirrored {
        Some(mirrored) => builder.mirror(mirrored.mirror.clone()),
        None => builder,
    }
}

async fn work(annotations: Annotations, job: Bulk, ctx: Ctx) -> JobResult {
    let sql = "select rows_changed, finished from annotations.bulk_step($1, $2)";
    for _ in 0..STEPS {
        if ctx.stop_reason().is_some() {
            return Err(JobError::retry("the worker stopped between two steps"));
        }
        let started = Instant::now();
        let params = [(&job.bulk as _, Type::INT8), (&NOTES as _, Type::INT4)];
        let row = annotations.slow_row(sql, &params).await.map_err(|error| failure(&error))?;
        if row.get(1) {
            return Ok(Outcome::Complete);
        }
        tokio::time::sleep((started.elapsed() * COOLDOWN).min(LONGEST_COOLDOWN)).await;
    }
    Ok(Outcome::Snooze(Duration::ZERO))
}

async fn purge(annotations: Annotations) -> Result<(), JobError> {
    loop {
        let row = annotations.slow_row("select annotations.purge()", &[]).await;
        let gone: i64 = row.map_err(|error| failure(&error))?.get(0);
        if gone < 10_000 {
            return Ok(());
        }
    }
}

fn failure(error: &Refused) -> JobError {
    match error {
        Refused::Unavailable(why) => JobError::retry(why.to_string()),
        other => JobError::retry(other.to_string()),
    }
}
