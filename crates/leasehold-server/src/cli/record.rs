//! One job, formatted for output.

use jiff::Timestamp;
use leasehold::admin::JobInfo;
use leasehold::{Cause, JobState};
use serde::Serializer;

use super::failures::lines;
use crate::output::{Columns, fields};
use crate::text::{one_line, relative};

/// Writes ids as text in JSON: a reader that parses numbers as doubles would change large ones.
pub fn as_text<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&id.to_string())
}

/// Summarises when a job is due, who runs it, or how it ended.
fn situation(job: &JobInfo, now: Timestamp) -> String {
    let when =
        |moment: Option<Timestamp>| moment.map(|moment| relative(moment, now)).unwrap_or_default();
    let since = |moment: Option<Timestamp>| {
        moment
            .map(|moment| crate::text::print_duration(now.duration_since(moment).unsigned_abs()))
            .unwrap_or_default()
    };
    match job.state {
        JobState::Scheduled | JobState::Retrying => format!("due {}", when(Some(job.scheduled_at))),
        JobState::Ready => format!("waiting {}", since(Some(job.scheduled_at))),
        JobState::Running if job.cancel_requested => "asked to stop".to_owned(),
        JobState::Running => format!("running {}", since(job.claimed_at)),
        JobState::Dead => {
            format!("{} {}", job.cause.map_or("died", Cause::as_str), when(job.finished_at))
        }
        _ => format!("finished {}", when(job.finished_at)),
    }
}

fn attempts(job: &JobInfo) -> String {
    match job.max_attempts {
        Some(most) => format!("{}/{most}", job.attempts),
        None => job.attempts.to_string(),
    }
}

/// Returns when the attempt after the last failure started, or is due. `None` for a dead job.
fn next_start(job: &JobInfo) -> Option<Timestamp> {
    match job.state {
        JobState::Dead => None,
        state if state.is_waiting() => Some(job.scheduled_at),
        _ => job.claimed_at,
    }
}

/// Returns how long the last attempt of a finished job took, from its claim on.
fn took(job: &JobInfo) -> String {
    match (job.claimed_at, job.finished_at) {
        (Some(claimed), Some(finished)) => {
            crate::text::print_duration(finished.duration_since(claimed).unsigned_abs())
        }
        _ => String::new(),
    }
}

/// What is shown instead of the columns that a viewer may not read.
const HIDDEN: &str = "hidden: needs leasehold_operator";

/// Formats everything about one job. `why_waiting`: why it does not run, if it waits.
pub fn show(job: &JobInfo, why_waiting: Option<&str>, now: Timestamp) -> String {
    let moment = |moment: Option<Timestamp>| {
        moment.map(|moment| format!("{moment:.3} ({})", relative(moment, now))).unwrap_or_default()
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let number = |number: i32| if number == 0 { String::new() } else { number.to_string() };
    let kwargs = match &job.kwargs {
        Some(kwargs) => serde_json::to_string_pretty(kwargs).unwrap_or_default(),
        None => HIDDEN.to_owned(),
    };
    let generation = job.lease_generation.0;
    fields(&[
        ("id", job.id.to_string()),
        ("state", format!("{} ({})", job.state, situation(job, now))),
        ("waits because", why_waiting.unwrap_or_default().to_owned()),
        ("name", job.name.clone()),
        ("queue", job.queue.clone()),
        ("tag", job.tag.clone()),
        ("key", text(&job.idempotency_key)),
        ("limit key", text(&job.limit_key)),
        ("batch", job.batch_id.map(|id| id.to_string()).unwrap_or_default()),
        ("priority", number(job.priority)),
        ("deferred", if job.deferred { "behind all others".to_owned() } else { String::new() }),
        ("attempts", attempts(job)),
        ("workers lost", number(job.lost_count.unwrap_or_default())),
        ("enqueued", moment(Some(job.enqueued_at))),
        ("due", moment(Some(job.scheduled_at))),
        ("expires", moment(job.expires_at)),
        ("finished", moment(job.finished_at)),
        ("took", took(job)),
        ("worker", text(&job.worker)),
        ("claimed", moment(job.claimed_at)),
        ("lease until", moment(job.lease_expires_at)),
        ("lease generation", if generation == 0 { String::new() } else { generation.to_string() }),
        ("cancel", if job.cancel_requested { "requested".to_owned() } else { String::new() }),
        ("cause", job.cause.map(|cause| cause.to_string()).unwrap_or_default()),
        ("last error", text(&job.last_error)),
        ("failures", lines(&job.errors, next_start(job), now)),
        ("note", text(&job.note)),
        ("trace", text(&job.trace_context)),
        ("kwargs", kwargs),
    ])
}

/// Formats jobs as a table.
pub fn table(jobs: &[JobInfo], now: Timestamp) -> Columns {
    let mut columns =
        Columns::new(&["ID", "STATE", "QUEUE", "NAME", "ATTEMPTS", "SITUATION", "KWARGS"]);
    for job in jobs {
        let kwargs = job.kwargs.as_ref().map_or("hidden".to_owned(), ToString::to_string);
        columns.row([
            job.id.to_string(),
            job.state.to_string(),
            job.queue.clone(),
            one_line(&job.name, 40),
            attempts(job),
            situation(job, now),
            one_line(&kwargs, 50),
        ]);
    }
    columns
}

/// Formats dead jobs as a table, with cause and last error.
pub fn dead_table(jobs: &[JobInfo], now: Timestamp) -> Columns {
    let mut columns =
        Columns::new(&["ID", "CAUSE", "QUEUE", "NAME", "ATTEMPTS", "DIED", "LAST ERROR"]);
    for job in jobs {
        let error = match &job.kwargs {
            Some(_) => job.last_error.as_deref().unwrap_or_default(),
            None => HIDDEN,
        };
        columns.row([
            job.id.to_string(),
            job.cause.map(|cause| cause.to_string()).unwrap_or_default(),
            job.queue.clone(),
            one_line(&job.name, 40),
            attempts(job),
            job.finished_at.map(|died| relative(died, now)).unwrap_or_default(),
            one_line(error, 70),
        ]);
    }
    columns
}
