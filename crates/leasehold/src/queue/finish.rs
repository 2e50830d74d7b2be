//! Finish: records how an attempt ended. One function per transition; each carries the fence.
//!
//! # What can go wrong
//! - The reply is lost: [`explain`] returns what became of it. Only the owner of a generation can
//!   finish its jobs, so "gone, and not reclaimed" means that this worker finished it.
//! - The lease was lost: the write matches no row, the return value shows it, and the result is dropped.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::error::{CallError, storable};
use crate::error_text::HIDDEN_TEXT;
use crate::job::{Cause, Generation, JobId};
use crate::link::Statements;

/// Completes a job in a transaction of its handler. It leaves the lease row alone: the transaction may
/// stay open for a while, and a lock on the lease would keep the worker from renewing its other jobs.
pub(crate) const COMPLETE_IN_TRANSACTION: &str =
    "select * from leasehold.complete_many($1, $2, false)";
/// The longest wait that is sent. If the due time were beyond the range of timestamps, the server would
/// refuse the finish for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

fn seconds(wait: Duration) -> f64 {
    wait.min(LONGEST_WAIT).as_secs_f64()
}

/// How an attempt ends. Only this module turns it into a transition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Transition {
    Complete,
    /// The handler completed the job in its own transaction: make sure that it did.
    CompletedInTransaction,
    Retry {
        after: Option<Duration>,
        why: String,
    },
    /// `why`: the handler did not run, for this reason.
    Snooze {
        wait: Duration,
        why: Option<String>,
    },
    /// It returns behind every job of its queue that is not deferred. `counted`: the attempt counts as a
    /// failure.
    Defer {
        wait: Duration,
        why: String,
        counted: bool,
    },
    Cancel {
        why: String,
    },
    Bury {
        cause: Cause,
        why: String,
    },
    /// Not run: release the job, without counting the attempt.
    Release,
}

impl Transition {
    /// Returns the text for the table and the log.
    pub(crate) fn why(&self) -> Option<&str> {
        match self {
            Self::Retry { why, .. }
            | Self::Defer { why, .. }
            | Self::Cancel { why }
            | Self::Bury { why, .. } => Some(why),
            Self::Snooze { why, .. } => why.as_deref(),
            Self::Complete | Self::CompletedInTransaction | Self::Release => None,
        }
    }

    /// Returns the cause that the transition gives to a dead job.
    pub(crate) fn cause(&self) -> Option<Cause> {
        match self {
            Self::Bury { cause, .. } => Some(*cause),
            _ => None,
        }
    }

    /// Replaces a handler's text, which may hold secrets.
    pub(crate) fn hide_text(&mut self) {
        if let Self::Retry { why, .. }
        | Self::Snooze { why: Some(why), .. }
        | Self::Defer { why, .. }
        | Self::Cancel { why }
        | Self::Bury { why, .. } = self
        {
            HIDDEN_TEXT.clone_into(why);
        }
    }
}

/// What the database recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The job is completed.
    Completed,
    /// The attempt failed, and the job waits for the next one.
    Retried,
    /// The job waits; the attempt was not counted.
    Snoozed,
    /// The job waits behind all other jobs of its queue.
    Deferred,
    /// The job is cancelled.
    Cancelled,
    /// The job is dead.
    Buried,
    /// The job is ready again; the attempt was not counted.
    Released,
    /// Nothing was changed: the lease was lost.
    Lost,
}

/// What became of a finish without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishState {
    /// Still held by this worker; not recorded.
    Held,
    /// Recorded by this worker.
    Finished,
    Lost,
}

/// Completes jobs of one generation. Returns those that this worker still held.
pub(crate) async fn complete(
    link: &impl Statements,
    ids: &[i64],
    generation: Generation,
) -> Result<Vec<i64>, CallError> {
    let rows = link
        .query(
            // One row, because each costs both sides some work.
            "select coalesce(array_agg(done), '{}') from leasehold.complete_many($1, $2) done",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows.first().map(|row| row.get(0)).unwrap_or_default())
}

/// Ends one attempt in any other way than by completing it.
pub(crate) async fn finish(
    link: &impl Statements,
    id: JobId,
    generation: Generation,
    transition: &Transition,
) -> Result<Finished, CallError> {
    let fence = [(&id.0 as _, Type::INT8), (&generation.0 as _, Type::INT8)];
    let [job, generation_param] = fence;
    match transition {
        Transition::Complete | Transition::CompletedInTransaction => {
            let done = complete(link, &[id.0], generation).await?;
            Ok(if done.is_empty() { Finished::Lost } else { Finished::Completed })
        }
        Transition::Retry { after, why } => {
            Ok(fail(link, id, generation, why, *after).await?.outcome)
        }
        Transition::Snooze { wait, .. } => {
            let seconds = seconds(*wait);
            let sql = "select leasehold.snooze($1, $2, make_interval(secs => $3))";
            let params = [job, generation_param, (&seconds as _, Type::FLOAT8)];
            yes_or_lost(link, sql, &params, Finished::Snoozed).await
        }
        Transition::Defer { wait, why, counted } => {
            let deferral = Deferral { id, wait: *wait, why, counted: *counted };
            let ended = defer(link, &[deferral], generation).await?;
            Ok(ended.first().map_or(Finished::Lost, |(_, finished)| *finished))
        }
        Transition::Cancel { why } => {
            let why = storable(why);
            let sql = "select leasehold.finish_cancelled($1, $2, $3)";
            let params = [job, generation_param, (&why as _, Type::TEXT)];
            yes_or_lost(link, sql, &params, Finished::Cancelled).await
        }
        Transition::Bury { cause, why } => {
            let why = storable(why);
            let sql = "select leasehold.bury($1, $2, $3, $4)";
            let cause = cause.as_str();
            let params =
                [job, generation_param, (&why as _, Type::TEXT), (&cause as _, Type::TEXT)];
            yes_or_lost(link, sql, &params, Finished::Buried).await
        }
        Transition::Release => {
            let released = release(link, &[id.0], generation).await?;
            Ok(if released.is_empty() { Finished::Lost } else { Finished::Released })
        }
    }
}

/// The result of a failed attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) outcome: Finished,
    /// After which time the job is due again, if it is retried.
    pub(crate) next_in: Option<Duration>,
}

/// Records that an attempt failed. `after`: the wait; `None`: the queue's backoff.
pub(crate) async fn fail(
    link: &impl Statements,
    id: JobId,
    generation: Generation,
    why: &str,
    after: Option<Duration>,
) -> Result<Failed, CallError> {
    let (why, after) = (storable(why), after.map(seconds));
    let rows = link
        .query(
            "select outcome, extract(epoch from next_in)::float8 \
               from leasehold_internal.record_failure($1, $2, $3, make_interval(secs => $4))",
            &[
                (&id.0, Type::INT8),
                (&generation.0, Type::INT8),
                (&why, Type::TEXT),
                (&after, Type::FLOAT8),
            ],
        )
        .await?;
    let word: Option<&str> = rows.first().map(|row| row.get(0));
    let next_in: Option<f64> = rows.first().and_then(|row| row.get(1));
    let outcome = match word {
        Some("retry") => Finished::Retried,
        Some("buried") => Finished::Buried,
        Some("cancelled") => Finished::Cancelled,
        _ => Finished::Lost,
    };
    let next_in = next_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(Failed { outcome, next_in })
}

/// One job to defer.
pub(crate) struct Deferral<'a> {
    pub(crate) id: JobId,
    pub(crate) wait: Duration,
    pub(crate) why: &'a str,
    pub(crate) counted: bool,
}

/// Defers jobs of one generation. Returns those that this worker still held, and what became of them.
pub(crate) async fn defer(
    link: &impl Statements,
    jobs: &[Deferral<'_>],
    generation: Generation,
) -> Result<Vec<(i64, Finished)>, CallError> {
    let ids: Vec<i64> = jobs.iter().map(|job| job.id.0).collect();
    let waits: Vec<f64> = jobs.iter().map(|job| seconds(job.wait)).collect();
    let reasons: Vec<String> = jobs.iter().map(|job| storable(job.why)).collect();
    let counted: Vec<bool> = jobs.iter().map(|job| job.counted).collect();
    let rows = link
        .query(
            "select job_id, outcome from leasehold_internal.defer_many($1, $2, $3, $4, $5)",
            &[
                (&ids, Type::INT8_ARRAY),
                (&generation.0, Type::INT8),
                (&waits, Type::FLOAT8_ARRAY),
                (&reasons, Type::TEXT_ARRAY),
                (&counted, Type::BOOL_ARRAY),
            ],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let finished = match row.get(1) {
                "buried" => Finished::Buried,
                "cancelled" => Finished::Cancelled,
                _ => Finished::Deferred,
            };
            (row.get(0), finished)
        })
        .collect())
}

async fn yes_or_lost(
    link: &impl Statements,
    sql: &str,
    params: &[crate::link::Param<'_>],
    yes: Finished,
) -> Result<Finished, CallError> {
    let rows = link.query(sql, params).await?;
    let kept = rows.first().is_some_and(|row| row.get(0));
    Ok(if kept { yes } else { Finished::Lost })
}

/// Releases jobs that did not run. Returns those that this worker still held and that are due again.
pub(crate) async fn release(
    link: &impl Statements,
    ids: &[i64],
    generation: Generation,
) -> Result<Vec<i64>, CallError> {
    let rows = link
        .query(
            "select * from leasehold.release($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Ends the lease of a generation whose last job a handler's transaction finished.
pub(crate) async fn settle(
    link: &impl Statements,
    generation: Generation,
) -> Result<(), CallError> {
    link.query("select leasehold_internal.settle($1)", &[(&generation.0, Type::INT8)]).await?;
    Ok(())
}

/// Returns what became of jobs whose finish had no reply.
pub(crate) async fn explain(
    link: &impl Statements,
    ids: &[i64],
    generation: Generation,
) -> Result<Vec<(JobId, FinishState)>, CallError> {
    let rows = link
        .query(
            "select job_id, state from leasehold_internal.explain_finish($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let state = match row.get(1) {
                "held" => FinishState::Held,
                "finished" => FinishState::Finished,
                _ => FinishState::Lost,
            };
            (JobId(row.get(0)), state)
        })
        .collect())
}

/// Returns how this generation ended a job that [`explain`] reports as finished. `None`: it was put
/// back.
pub(crate) async fn ended_as(
    link: &impl Statements,
    id: JobId,
    generation: Generation,
) -> Result<Option<Finished>, CallError> {
    let rows = link
        .query(
            "select leasehold_internal.ended_as($1, $2)",
            &[(&id.0, Type::INT8), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(match rows.first().map(|row| row.get(0)) {
        Some("completed") => Some(Finished::Completed),
        Some("cancelled") => Some(Finished::Cancelled),
        Some("buried") => Some(Finished::Buried),
        _ => None,
    })
}
