//! Finish: how an attempt ends. One function a transition; each carries the fence.
//!
//! # What can go wrong
//! - The reply is lost: [`explain`] asks what became of it. Only the owner of a generation can
//!   finish its jobs, so "gone and not taken by an expiry" means that we finished it.
//! - The lease was lost: the write matches nothing, the answer says so, the result is dropped.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::error::{CallError, storable};
use crate::job::{Generation, JobId};
use crate::link::Link;

/// What is to become of one attempt. Only this module turns it into a transition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Complete,
    /// The handler completed the job in a transaction of its own: make sure that it did.
    CompletedInTransaction,
    Retry {
        after: Option<Duration>,
        why: String,
    },
    Snooze {
        wait: Duration,
    },
    /// Not done now; it comes back behind every job that was never put off. `counted`: the attempt was
    /// a failure.
    PutOff {
        wait: Duration,
        why: String,
        counted: bool,
    },
    Cancel {
        why: String,
    },
    Bury {
        cause: &'static str,
        why: String,
    },
    /// Not run: hand it back, and the attempt with it.
    Release,
}

/// What the database said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    Completed,
    Retried,
    Snoozed,
    Cancelled,
    Buried,
    Released,
    /// Nothing was changed: the lease was lost.
    Lost,
}

/// What became of a finish that had no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Still ours; not written.
    Held,
    /// Written by us.
    Finished,
    Lost,
}

/// Completes jobs of one generation. Answers with those that were still ours.
pub(crate) async fn complete(
    link: &Link,
    ids: &[i64],
    generation: Generation,
) -> Result<Vec<i64>, CallError> {
    let rows = link
        .query(
            "select * from leasehold.complete_many($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Ends one attempt any other way than by completing it.
pub(crate) async fn finish(
    link: &Link,
    id: JobId,
    generation: Generation,
    verdict: &Verdict,
) -> Result<Finished, CallError> {
    let fence = [(&id.0 as _, Type::INT8), (&generation.0 as _, Type::INT8)];
    let [job, generation_param] = fence;
    match verdict {
        Verdict::Complete | Verdict::CompletedInTransaction => {
            let done = complete(link, &[id.0], generation).await?;
            Ok(if done.is_empty() { Finished::Lost } else { Finished::Completed })
        }
        Verdict::Retry { after, why } => {
            let seconds = after.map(|after| after.as_secs_f64());
            let why = storable(why);
            let rows = link
                .query(
                    "select leasehold.fail($1, $2, $3, make_interval(secs => $4))",
                    &[job, generation_param, (&why, Type::TEXT), (&seconds, Type::FLOAT8)],
                )
                .await?;
            let word: Option<&str> = rows.first().map(|row| row.get(0));
            Ok(match word {
                Some("retry") => Finished::Retried,
                Some("buried") => Finished::Buried,
                Some("cancelled") => Finished::Cancelled,
                _ => Finished::Lost,
            })
        }
        Verdict::Snooze { wait } => {
            let seconds = wait.as_secs_f64();
            let sql = "select leasehold.snooze($1, $2, make_interval(secs => $3))";
            let params = [job, generation_param, (&seconds as _, Type::FLOAT8)];
            yes_or_lost(link, sql, &params, Finished::Snoozed).await
        }
        Verdict::PutOff { wait, why, counted } => {
            let off = Off { id, wait: *wait, why, counted: *counted };
            let done = put_off(link, &[off], generation).await?;
            Ok(if done.is_empty() { Finished::Lost } else { Finished::Snoozed })
        }
        Verdict::Cancel { why } => {
            let why = storable(why);
            let sql = "select leasehold.finish_cancelled($1, $2, $3)";
            let params = [job, generation_param, (&why as _, Type::TEXT)];
            yes_or_lost(link, sql, &params, Finished::Cancelled).await
        }
        Verdict::Bury { cause, why } => {
            let why = storable(why);
            let sql = "select leasehold.bury($1, $2, $3, $4)";
            let params = [job, generation_param, (&why as _, Type::TEXT), (cause as _, Type::TEXT)];
            yes_or_lost(link, sql, &params, Finished::Buried).await
        }
        Verdict::Release => {
            let released = release(link, &[id.0], generation).await?;
            Ok(if released == 0 { Finished::Lost } else { Finished::Released })
        }
    }
}

/// One job to be put off.
pub(crate) struct Off<'a> {
    pub(crate) id: JobId,
    pub(crate) wait: Duration,
    pub(crate) why: &'a str,
    pub(crate) counted: bool,
}

/// Puts jobs of one generation off. Answers with those that were still ours.
pub(crate) async fn put_off(
    link: &Link,
    jobs: &[Off<'_>],
    generation: Generation,
) -> Result<Vec<i64>, CallError> {
    let ids: Vec<i64> = jobs.iter().map(|job| job.id.0).collect();
    let waits: Vec<f64> = jobs.iter().map(|job| job.wait.as_secs_f64()).collect();
    let whys: Vec<String> = jobs.iter().map(|job| storable(job.why)).collect();
    let counted: Vec<bool> = jobs.iter().map(|job| job.counted).collect();
    let rows = link
        .query(
            "select * from leasehold.put_off($1, $2, $3, $4, $5)",
            &[
                (&ids, Type::INT8_ARRAY),
                (&generation.0, Type::INT8),
                (&waits, Type::FLOAT8_ARRAY),
                (&whys, Type::TEXT_ARRAY),
                (&counted, Type::BOOL_ARRAY),
            ],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn yes_or_lost(
    link: &Link,
    sql: &str,
    params: &[crate::link::Param<'_>],
    yes: Finished,
) -> Result<Finished, CallError> {
    let rows = link.query(sql, params).await?;
    let kept = rows.first().is_some_and(|row| row.get(0));
    Ok(if kept { yes } else { Finished::Lost })
}

/// Hands jobs back unrun. Answers how many were still ours.
pub(crate) async fn release(
    link: &Link,
    ids: &[i64],
    generation: Generation,
) -> Result<usize, CallError> {
    let rows = link
        .query(
            "select * from leasehold.release($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows.len())
}

/// Ends the lease of a generation when a transaction of a handler finished its last job.
pub(crate) async fn settle(link: &Link, generation: Generation) -> Result<(), CallError> {
    link.query("select leasehold.settle($1)", &[(&generation.0, Type::INT8)]).await?;
    Ok(())
}

/// What became of jobs whose finish had no reply.
pub(crate) async fn explain(
    link: &Link,
    ids: &[i64],
    generation: Generation,
) -> Result<Vec<(JobId, Fate)>, CallError> {
    let rows = link
        .query(
            "select job_id, state from leasehold.explain_finish($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&generation.0, Type::INT8)],
        )
        .await?;
    Ok(rows
        .iter()
        .map(|row| {
            let fate = match row.get(1) {
                "held" => Fate::Held,
                "finished" => Fate::Finished,
                _ => Fate::Lost,
            };
            (JobId(row.get(0)), fate)
        })
        .collect())
}
