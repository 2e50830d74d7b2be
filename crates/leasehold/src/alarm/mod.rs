//! Alarms: what is wrong, kept in the database until it is right again.
//!
//! [`rules`] decides, and is pure; [`snapshot`] is what it decides on; this file reads that and writes down
//! what came of it.
//!
//! # What is true
//! - Whoever took the sample judges it. An alarm is raised, or cleared, in the statement that enqueues
//!   the word about it: nobody hears of what is not there, and what is there is heard of.
//! - One open row a rule and subject. It closes by itself when it no longer holds.
//! - A judge that slept while others went on changes nothing: it names its sample, and only the last
//!   one counts.
//!
//! # What can go wrong
//! - The one who carries the word is down: the job waits for it, as jobs do.
//! - Nobody keeps house: see [`crate::measure`].

mod rule;
pub mod rules;
pub mod snapshot;

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::CallError;
use rules::Defaults;
use snapshot::Snapshot;

/// The queue of the jobs that carry the word.
pub const QUEUE: &str = "leasehold.alarms";
/// Jobs that go to a URL.
pub const WEBHOOK: &str = "leasehold.alarm.webhook";
/// Jobs that go to a command.
pub const COMMAND: &str = "leasehold.alarm.command";

/// An alarm that was raised or cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub raised: bool,
    pub rule: String,
    pub subject: String,
    pub summary: String,
}

/// Judges a sample and writes down what came of it.
pub async fn evaluate(client: &Client, sample: Timestamp) -> Result<Vec<Change>, CallError> {
    let sql = "select leasehold.alarm_snapshot($1)::text";
    let rows = client.query_typed(sql, &[(&sample, Type::TIMESTAMPTZ)]).await?;
    let text: Option<&str> = rows.first().and_then(|row| row.get(0));
    // Nothing is known: then nothing is raised, and nothing cleared.
    let Some(text) = text else { return Ok(Vec::new()) };
    let snapshot: Snapshot = match serde_json::from_str(text) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            tracing::warn!(%error, "alarms were not judged: the functions in the database are of another release");
            return Ok(Vec::new());
        }
    };
    let found = rules::judge(&snapshot, &Defaults::default());
    let found = serde_json::to_value(&found).unwrap_or_default();
    let sql = "select change, rule, subject, summary from leasehold.apply_alarms($1, $2)";
    let params = [(&sample as _, Type::TIMESTAMPTZ), (&found as _, Type::JSONB)];
    let rows = client.query_typed(sql, &params).await?;
    let changes: Vec<Change> = rows
        .iter()
        .map(|row| Change {
            raised: row.get::<_, &str>(0) == "raised",
            rule: row.get(1),
            subject: row.get(2),
            summary: row.get(3),
        })
        .collect();
    for Change { raised, rule, subject, summary } in &changes {
        match raised {
            true => tracing::warn!(alarm.rule = rule, alarm.subject = subject, "{summary}"),
            false => {
                tracing::info!(alarm.rule = rule, alarm.subject = subject, "the alarm is over");
            }
        }
    }
    Ok(changes)
}
