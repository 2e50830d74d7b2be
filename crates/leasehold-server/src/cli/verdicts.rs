//! The outcome for each job that an operator retries, redrives or cancels.

use std::collections::BTreeMap;
use std::process::ExitCode;

use leasehold::admin::{By, Change};
use leasehold::{JobId, JobState};
use serde::Serialize;

use super::db::Db;
use super::many::Selection;
use crate::exit::{Code, Failure};
use crate::output::{Columns, Out};
use crate::text::count;

/// The outcome for one job.
#[derive(Debug, Serialize)]
struct Verdict {
    id: String,
    result: &'static str,
}

/// What the operator asked for; it decides the advice about jobs that were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Retry or redrive: the operator wants the job to run again.
    Run,
    Cancel,
    Delete,
}

/// The outcomes for all jobs. For jobs selected by a filter only counts are kept: there may be a
/// million.
pub struct Verdicts {
    act: Act,
    by_id: bool,
    each: Vec<Verdict>,
    counts: BTreeMap<&'static str, usize>,
}

impl Verdicts {
    pub fn new(act: Act, selection: &Selection) -> Self {
        Self { act, by_id: selection.by_id(), each: Vec::new(), counts: BTreeMap::new() }
    }

    fn add(&mut self, id: JobId, result: &'static str) {
        *self.counts.entry(result).or_default() += 1;
        if self.by_id {
            self.each.push(Verdict { id: id.to_string(), result });
        }
    }

    /// Prints the outcomes. A job given by id that could not be changed decides the exit code; one that
    /// a filter selected and that changed its state meanwhile does not.
    pub fn report(self, out: Out) -> Result<ExitCode, Failure> {
        if self.by_id {
            out.list("jobs", &self.each, |each| {
                let mut columns = Columns::new(&["ID", "RESULT"]);
                for verdict in each {
                    columns.row([verdict.id.clone(), verdict.result.to_owned()]);
                }
                columns
            })?;
        } else {
            out.one("results", &self.counts, |counts| {
                let lines: Vec<String> = counts
                    .iter()
                    .map(|(result, number)| format!("{}: {result}", count(*number, "job")))
                    .collect();
                lines.join("\n")
            })?;
        }
        match self.each.iter().find_map(|verdict| problem(self.act, verdict)) {
            Some(failure) => Err(failure),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn problem(act: Act, verdict: &Verdict) -> Option<Failure> {
    let id = &verdict.id;
    match verdict.result {
        "missing" => Some(no_such_job(id)),
        "running" => Some(
            Failure::conflict(format!("job {id} is running"))
                .hint(format!("wait for it, or ask it to stop: leasehold jobs cancel {id}")),
        ),
        "waiting" => Some(
            Failure::conflict(format!("job {id} is not dead: it waits"))
                .hint(format!("let it run now: leasehold jobs retry {id}")),
        ),
        "finished" if act == Act::Cancel => Some(
            Failure::conflict(format!("job {id} is completed: there is nothing left to cancel"))
                .hint(format!("when it ended, and where it ran: leasehold jobs show {id}")),
        ),
        "finished" if act == Act::Delete => Some(
            Failure::conflict(format!("job {id} is finished: only its history is left"))
                .hint("housekeeping drops the history when it is past its retention"),
        ),
        "already_cancelled" => Some(
            Failure::conflict(format!("job {id} is already cancelled"))
                .hint(format!("when, and why: leasehold jobs show {id}")),
        ),
        "finished" => Some(
            Failure::conflict(format!("job {id} is finished"))
                .hint("enqueue a new job; what is finished does not run again"),
        ),
        "dead" => Some(
            Failure::conflict(format!("job {id} is dead: there is nothing left to cancel")).hint(
                format!("redrive it or delete it: leasehold dead redrive {id}, leasehold jobs delete {id}"),
            ),
        ),
        "kept" => Some(
            Failure::conflict(format!("job {id} stays dead: its key belongs to a newer job"))
                .hint("wait until the newer job is over, or enqueue under another key"),
        ),
        _ => None,
    }
}

pub fn no_such_job(id: impl std::fmt::Display) -> Failure {
    Failure::new(Code::NotFound, format!("there is no job {id}"))
        .hint("finished jobs are kept for some days; look with: leasehold jobs list --state completed --since 7d")
}

/// Promotes waiting jobs and redrives dead ones.
pub async fn retry_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    let redriven = db.within(db.jobs().redrive_many(ids, by)).await?;
    let waiting: Vec<JobId> = redriven
        .iter()
        .filter(|(_, change)| matches!(change, Change::WrongState(state) if state.is_waiting()))
        .map(|(id, _)| *id)
        .collect();
    let promoted = match waiting.is_empty() {
        true => Vec::new(),
        false => db.within(db.jobs().promote_many(&waiting, by)).await?,
    };
    let promoted: BTreeMap<JobId, Change> = promoted.into_iter().collect();
    for (id, change) in redriven {
        let result = match (change, promoted.get(&id)) {
            (Change::Done, _) => "redriven",
            (_, Some(Change::Done)) => "promoted",
            (_, Some(Change::WrongState(JobState::Ready))) => "already_due",
            (_, Some(change)) => unchanged(*change),
            (change, None) => unchanged(change),
        };
        verdicts.add(id, result);
    }
    Ok(())
}

/// Redrives dead jobs only.
pub async fn redrive_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().redrive_many(ids, by)).await? {
        let result = match change {
            Change::Done => "redriven",
            Change::WrongState(state) if state.is_waiting() => "waiting",
            change => unchanged(change),
        };
        verdicts.add(id, result);
    }
    Ok(())
}

pub async fn cancel_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().cancel_many(ids, by)).await? {
        let result = match change {
            Change::Done => "cancelled",
            Change::Requested => "stop_requested",
            Change::WrongState(JobState::Dead) => "dead",
            Change::WrongState(JobState::Cancelled) => "already_cancelled",
            change => unchanged(change),
        };
        verdicts.add(id, result);
    }
    Ok(())
}

pub async fn delete_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().delete_many(ids, by)).await? {
        let result = if change == Change::Done { "deleted" } else { unchanged(change) };
        verdicts.add(id, result);
    }
    Ok(())
}

/// Returns why a job was not changed.
fn unchanged(change: Change) -> &'static str {
    match change {
        Change::NotFound => "missing",
        Change::KeyTaken => "kept",
        Change::WrongState(JobState::Running) => "running",
        _ => "finished",
    }
}
