//! One job, formatted for output.

use jiff::Timestamp;
use leasehold::queue::moment::Moment;
use serde::{Serialize, Serializer};
use tokio_postgres::Row;

use super::failures::{PastFailure, past_failures, tell};
use crate::output::{Columns, fields};
use crate::text::{one_line, relative};

/// A job in any state.
#[derive(Debug, Serialize)]
pub struct Record {
    #[serde(serialize_with = "as_text")]
    pub id: i64,
    pub state: String,
    pub queue: String,
    pub name: String,
    pub tag: String,
    pub priority: Option<i32>,
    pub attempts: i32,
    pub max_attempts: Option<i32>,
    pub lost_count: Option<i32>,
    pub enqueued_at: Timestamp,
    pub scheduled_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub key: Option<String>,
    #[serde(serialize_with = "as_text")]
    pub lease_generation: i64,
    pub claimed_by: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub cancel_requested: bool,
    pub cause: Option<String>,
    pub last_error: Option<String>,
    pub errors: Vec<PastFailure>,
    pub note: Option<String>,
    pub kwargs: serde_json::Value,
    pub trace_context: Option<String>,
}

/// Writes ids as text in JSON: a reader that parses numbers as doubles would change large ones.
pub fn as_text<S: Serializer>(id: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&id.to_string())
}

impl Record {
    /// Reads a row of `queries/jobs.sql`.
    pub fn read(row: &Row) -> Self {
        Self {
            id: row.get("id"),
            state: row.get("state"),
            queue: row.get("queue"),
            name: row.get("name"),
            tag: row.get("tag"),
            priority: row.get("priority"),
            attempts: row.get("attempts"),
            max_attempts: row.get("max_attempts"),
            lost_count: row.get("lost_count"),
            enqueued_at: row.get("enqueued_at"),
            scheduled_at: finite(row, "scheduled_at"),
            expires_at: finite(row, "expires_at"),
            finished_at: row.get("finished_at"),
            key: row.get("key"),
            lease_generation: row.get("lease_generation"),
            claimed_by: row.get("claimed_by"),
            claimed_at: row.get("claimed_at"),
            lease_expires_at: row.get("lease_expires_at"),
            cancel_requested: row.get("cancel_requested"),
            cause: row.get("cause"),
            last_error: row.get("last_error"),
            errors: past_failures(row.get("errors")),
            note: row.get("note"),
            kwargs: row.get("kwargs"),
            trace_context: row.get("trace_context"),
        }
    }

    /// Summarises when a job is due, who runs it, or how it ended.
    fn situation(&self, now: Timestamp) -> String {
        let when = |moment: Option<Timestamp>| {
            moment.map(|moment| relative(moment, now)).unwrap_or_default()
        };
        let since = |moment: Option<Timestamp>| {
            moment
                .map(|moment| crate::text::length(now.duration_since(moment).unsigned_abs()))
                .unwrap_or_default()
        };
        match self.state.as_str() {
            "pending" if self.scheduled_at.is_some_and(|due| due > now) => {
                format!("due {}", when(self.scheduled_at))
            }
            "pending" => format!("waiting {}", since(self.scheduled_at)),
            "processing" if self.cancel_requested => "asked to stop".to_owned(),
            "processing" => format!("running {}", since(self.claimed_at)),
            "dead_letter" | "expired" => {
                format!("{} {}", self.cause.as_deref().unwrap_or("died"), when(self.finished_at))
            }
            _ => format!("finished {}", when(self.finished_at)),
        }
    }

    fn attempts(&self) -> String {
        match self.max_attempts {
            Some(most) => format!("{}/{most}", self.attempts),
            None => self.attempts.to_string(),
        }
    }

    /// Returns when the attempt after the last failure started, or is due. `None` for a dead job.
    fn next_start(&self) -> Option<Timestamp> {
        match self.state.as_str() {
            "pending" => self.scheduled_at,
            "dead_letter" | "expired" => None,
            _ => self.claimed_at,
        }
    }

    /// Returns how long the last attempt of a finished job took, from its claim on.
    fn took(&self) -> String {
        match (self.claimed_at, self.finished_at) {
            (Some(claimed), Some(finished)) => {
                crate::text::length(finished.duration_since(claimed).unsigned_abs())
            }
            _ => String::new(),
        }
    }

    /// Formats everything about one job.
    pub fn show(&self, now: Timestamp) -> String {
        let moment = |moment: Option<Timestamp>| {
            moment
                .map(|moment| format!("{moment:.3} ({})", relative(moment, now)))
                .unwrap_or_default()
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let number = |number: Option<i32>| {
            number.filter(|n| *n != 0).map(|n| n.to_string()).unwrap_or_default()
        };
        let kwargs = serde_json::to_string_pretty(&self.kwargs).unwrap_or_default();
        fields(&[
            ("id", self.id.to_string()),
            ("state", format!("{} ({})", self.state, self.situation(now))),
            ("name", self.name.clone()),
            ("queue", self.queue.clone()),
            ("tag", self.tag.clone()),
            ("key", text(&self.key)),
            ("priority", number(self.priority)),
            ("attempts", self.attempts()),
            ("workers lost", number(self.lost_count)),
            ("enqueued", moment(Some(self.enqueued_at))),
            ("due", moment(self.scheduled_at)),
            ("expires", moment(self.expires_at)),
            ("finished", moment(self.finished_at)),
            ("took", self.took()),
            ("claimed by", text(&self.claimed_by)),
            ("claimed", moment(self.claimed_at)),
            ("lease until", moment(self.lease_expires_at)),
            (
                "generation",
                if self.lease_generation == 0 {
                    String::new()
                } else {
                    self.lease_generation.to_string()
                },
            ),
            ("cancel", if self.cancel_requested { "requested".to_owned() } else { String::new() }),
            ("cause", text(&self.cause)),
            ("last error", text(&self.last_error)),
            ("failures", tell(&self.errors, self.next_start(), now)),
            ("note", text(&self.note)),
            ("trace", text(&self.trace_context)),
            ("kwargs", kwargs),
        ])
    }
}

/// Formats jobs as a table.
pub fn table(records: &[Record], now: Timestamp) -> Columns {
    let mut columns =
        Columns::new(&["ID", "STATE", "QUEUE", "NAME", "TRIES", "SITUATION", "KWARGS"]);
    for record in records {
        columns.row([
            record.id.to_string(),
            record.state.clone(),
            record.queue.clone(),
            one_line(&record.name, 40),
            record.attempts(),
            record.situation(now),
            one_line(&record.kwargs.to_string(), 50),
        ]);
    }
    columns
}

/// Formats dead jobs as a table, with cause and last error.
pub fn dead_table(records: &[Record], now: Timestamp) -> Columns {
    let mut columns =
        Columns::new(&["ID", "CAUSE", "QUEUE", "NAME", "TRIES", "DIED", "LAST ERROR"]);
    for record in records {
        columns.row([
            record.id.to_string(),
            record.cause.clone().unwrap_or_default(),
            record.queue.clone(),
            one_line(&record.name, 40),
            record.attempts(),
            record.finished_at.map(|died| relative(died, now)).unwrap_or_default(),
            one_line(record.last_error.as_deref().unwrap_or_default(), 70),
        ]);
    }
    columns
}

/// Reads a time that may be infinite in the database: returns the nearest time that can be shown instead.
pub fn finite(row: &Row, column: &str) -> Option<Timestamp> {
    row.get::<_, Option<Moment>>(column).map(Moment::to_timestamp)
}
