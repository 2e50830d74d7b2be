//! The outcome for each job that an operator retries, redrives or cancels.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;

use super::db::Db;
use super::filter::Question;
use super::many::Selection;
use crate::exit::{Code, Failure};
use crate::output::{Columns, Out};
use crate::text::count;

/// The outcome for one job.
#[derive(Debug, Serialize)]
struct Verdict {
    #[serde(serialize_with = "super::record::as_text")]
    id: i64,
    result: &'static str,
}

/// What the operator asked for; it decides the advice about jobs that were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Retry or redrive: the job is to run again.
    Run,
    Cancel,
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

    fn add(&mut self, id: i64, result: &'static str) {
        *self.counts.entry(result).or_default() += 1;
        if self.by_id {
            self.each.push(Verdict { id, result });
        }
    }

    /// Prints the outcomes. A job given by id that could not be changed decides the exit code; one that
    /// a filter selected and that changed its state meanwhile does not.
    pub fn report(self, out: Out) -> Result<ExitCode, Failure> {
        if self.by_id {
            out.list("jobs", &self.each, |each| {
                let mut columns = Columns::new(&["ID", "RESULT"]);
                for verdict in each {
                    columns.row([verdict.id.to_string(), verdict.result.to_owned()]);
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
    let id = verdict.id;
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
                format!("it stays for whoever wants to redrive it: leasehold jobs show {id}"),
            ),
        ),
        "kept" => Some(
            Failure::conflict(format!("job {id} stays dead: its key belongs to a newer job"))
                .hint("wait until the newer job is over, or enqueue under another key"),
        ),
        _ => None,
    }
}

pub fn no_such_job(id: i64) -> Failure {
    Failure::new(Code::NotFound, format!("there is no job {id}"))
        .hint("finished jobs are kept for some days; look with: leasehold jobs list --state done --since 7d")
}

/// Promotes waiting jobs and redrives dead ones.
pub async fn retry_step(
    db: &Db,
    ids: &[i64],
    actor: &str,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    let redriven = redrive(db, ids, actor).await?;
    let moved = db
        .query(
            "select * from leasehold.promote($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&actor, Type::TEXT)],
        )
        .await?;
    let promoted: Vec<i64> = moved.iter().map(|row| row.get(0)).collect();
    let states = states(db, ids).await?;
    for id in ids {
        let result = match states.get(id).map(String::as_str) {
            _ if redriven.contains(id) => "redriven",
            _ if promoted.contains(id) => "promoted",
            Some("pending") => "already_due",
            Some("processing") => "running",
            Some("dead_letter" | "expired") => "kept",
            Some(_) => "finished",
            None => "missing",
        };
        verdicts.add(*id, result);
    }
    Ok(())
}

/// Redrives dead jobs only.
pub async fn redrive_step(
    db: &Db,
    ids: &[i64],
    actor: &str,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    let redriven = redrive(db, ids, actor).await?;
    let states = states(db, ids).await?;
    for id in ids {
        let result = match states.get(id).map(String::as_str) {
            _ if redriven.contains(id) => "redriven",
            Some("dead_letter" | "expired") => "kept",
            Some("pending") => "waiting",
            Some("processing") => "running",
            Some(_) => "finished",
            None => "missing",
        };
        verdicts.add(*id, result);
    }
    Ok(())
}

pub async fn cancel_step(
    db: &Db,
    ids: &[i64],
    actor: &str,
    why: Option<&str>,
    verdicts: &mut Verdicts,
) -> Result<(), Failure> {
    let sql = "select u.id, leasehold.cancel(u.id, $2, $3) from unnest($1) as u (id)";
    let answers = db
        .query(sql, &[(&ids, Type::INT8_ARRAY), (&actor, Type::TEXT), (&why, Type::TEXT)])
        .await?;
    let gone: Vec<i64> = answers
        .iter()
        .filter(|row| row.get::<_, &str>(1) == "gone")
        .map(|row| row.get(0))
        .collect();
    let states = states(db, &gone).await?;
    for row in &answers {
        let id: i64 = row.get(0);
        let result = match (row.get(1), states.get(&id).map(String::as_str)) {
            ("cancelled", _) => "cancelled",
            ("requested", _) => "stop_requested",
            (_, Some("dead_letter" | "expired")) => "dead",
            (_, Some("cancelled")) => "already_cancelled",
            (_, Some(_)) => "finished",
            (_, None) => "missing",
        };
        verdicts.add(id, result);
    }
    Ok(())
}

async fn redrive(db: &Db, ids: &[i64], actor: &str) -> Result<Vec<i64>, Failure> {
    let rows = db
        .query(
            "select * from leasehold.redrive($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&actor, Type::TEXT)],
        )
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

async fn states(db: &Db, ids: &[i64]) -> Result<BTreeMap<i64, String>, Failure> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let records = Question::ids(ids).ask(db).await?;
    Ok(records.into_iter().map(|record| (record.id, record.state)).collect())
}
