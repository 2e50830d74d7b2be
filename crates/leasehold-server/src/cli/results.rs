//! The result for each job that an operator changes.

use std::collections::BTreeMap;
use std::process::ExitCode;

use leasehold::admin::{By, Change, JobUpdate};
use leasehold::{JobId, JobState};
use serde::Serialize;

use super::db::Db;
use super::many::Selection;
use crate::exit::{Code, Failure};
use crate::output::{Columns, Out};
use crate::text::count;

/// The result for one job.
#[derive(Debug, Serialize)]
struct Entry {
    id: String,
    result: &'static str,
}

/// What the operator asked for; it decides the advice about jobs that were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Promote,
    Redrive,
    Cancel,
    Delete,
    Update,
}

/// The results for all jobs. For jobs selected by a filter only counts are kept: there may be a
/// million.
pub struct Results {
    act: Act,
    by_id: bool,
    each: Vec<Entry>,
    counts: BTreeMap<&'static str, usize>,
}

impl Results {
    pub fn new(act: Act, selection: &Selection) -> Self {
        Self { by_id: selection.by_id(), ..Self::by_id(act) }
    }

    /// For jobs that are given by id.
    pub fn by_id(act: Act) -> Self {
        Self { act, by_id: true, each: Vec::new(), counts: BTreeMap::new() }
    }

    fn add(&mut self, id: JobId, result: &'static str) {
        *self.counts.entry(result).or_default() += 1;
        if self.by_id {
            self.each.push(Entry { id: id.to_string(), result });
        }
    }

    /// Prints the results. A job given by id that could not be changed decides the exit code; one that
    /// a filter selected and that changed its state meanwhile does not.
    pub fn report(self, out: Out) -> Result<ExitCode, Failure> {
        if self.by_id {
            out.list("jobs", &self.each, |each| {
                let mut columns = Columns::new(&["ID", "RESULT"]);
                for entry in each {
                    columns.row([entry.id.clone(), entry.result.to_owned()]);
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
        match self.each.iter().find_map(|entry| problem(self.act, entry)) {
            Some(failure) => Err(failure),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn problem(act: Act, entry: &Entry) -> Option<Failure> {
    let id = &entry.id;
    let conflict = |text: String| Failure::conflict(format!("job {id} {text}"));
    match (entry.result, act) {
        ("missing", _) => Some(no_such_job(id)),
        ("running", _) => Some(
            conflict("is running".to_owned())
                .hint(format!("wait for it, or ask it to stop: leasehold jobs cancel {id}")),
        ),
        ("waiting", _) => Some(
            conflict("is waiting, not dead".to_owned())
                .hint(format!("let it run now: leasehold jobs promote {id}")),
        ),
        ("finished", Act::Cancel) => Some(
            conflict("is completed: there is nothing left to cancel".to_owned())
                .hint(format!("see when it ended and where it ran: leasehold jobs show {id}")),
        ),
        ("finished", Act::Delete) => Some(
            conflict("is finished: only its history is left".to_owned())
                .hint("housekeeping drops the history when it is past its retention"),
        ),
        ("finished", _) => Some(
            conflict("is finished".to_owned())
                .hint("enqueue a new job; a finished job does not run again"),
        ),
        ("already_cancelled", _) => Some(
            conflict("is already cancelled".to_owned())
                .hint(format!("see when and why: leasehold jobs show {id}")),
        ),
        ("dead", Act::Promote) => Some(
            conflict("is dead, and only waiting jobs are promoted".to_owned())
                .hint(format!("redrive it: leasehold dead redrive {id}")),
        ),
        ("dead", Act::Update) => Some(
            conflict("is dead, and only waiting jobs are updated".to_owned())
                .hint(format!("redrive it first: leasehold dead redrive {id}")),
        ),
        ("dead", _) => {
            Some(conflict("is dead: there is nothing left to cancel".to_owned()).hint(format!(
                "redrive or delete it: leasehold dead redrive {id}, leasehold jobs delete {id}"
            )))
        }
        ("kept", _) => Some(
            conflict("stays dead: its key belongs to a newer job".to_owned())
                .hint("wait until the newer job is over, or enqueue under another key"),
        ),
        _ => None,
    }
}

pub fn no_such_job(id: impl std::fmt::Display) -> Failure {
    Failure::new(Code::NotFound, format!("there is no job {id}"))
        .hint("history is kept for some days: leasehold jobs list --state completed --since 7d")
}

/// Promotes waiting jobs.
pub async fn promote_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    results: &mut Results,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().promote_many(ids, by)).await? {
        let result = match change {
            Change::Changed => "promoted",
            Change::WrongState(JobState::Ready) => "already_due",
            Change::WrongState(JobState::Dead) => "dead",
            change => unchanged(change),
        };
        results.add(id, result);
    }
    Ok(())
}

/// Redrives dead jobs.
pub async fn redrive_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    results: &mut Results,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().redrive_many(ids, by)).await? {
        let result = match change {
            Change::Changed => "redriven",
            Change::WrongState(state) if state.is_waiting() => "waiting",
            change => unchanged(change),
        };
        results.add(id, result);
    }
    Ok(())
}

pub async fn cancel_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    results: &mut Results,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().cancel_many(ids, by)).await? {
        let result = match change {
            Change::Changed => "cancelled",
            Change::Requested => "cancel_requested",
            Change::WrongState(JobState::Dead) => "dead",
            Change::WrongState(JobState::Cancelled) => "already_cancelled",
            change => unchanged(change),
        };
        results.add(id, result);
    }
    Ok(())
}

pub async fn delete_step(
    db: &Db,
    ids: &[JobId],
    by: &By,
    results: &mut Results,
) -> Result<(), Failure> {
    for (id, change) in db.within(db.jobs().delete_many(ids, by)).await? {
        let result = if change == Change::Changed { "deleted" } else { unchanged(change) };
        results.add(id, result);
    }
    Ok(())
}

/// Updates waiting jobs, each by its own statement.
pub async fn update_step(
    db: &Db,
    ids: &[JobId],
    update: &JobUpdate,
    by: &By,
    results: &mut Results,
) -> Result<(), Failure> {
    for id in ids {
        let updated = db.within(db.jobs().update(*id, update, by)).await;
        let updated = updated.map_err(|failure| {
            failure.reworded(&[("expires_at", "--expires"), ("scheduled_at", "--at")])
        })?;
        let result = match updated {
            Change::Changed => "updated",
            Change::WrongState(JobState::Dead) => "dead",
            change => unchanged(change),
        };
        results.add(*id, result);
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
