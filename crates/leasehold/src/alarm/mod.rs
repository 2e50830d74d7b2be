//! Alarms: conditions that need an operator, kept in the database until they end.
//!
//! [`rules`] evaluates a sample and is pure; [`snapshot`] is its input; this file reads the snapshot
//! and records the result.
//!
//! # Invariants
//! - The process that took the sample evaluates it. Raising or clearing an alarm and enqueueing its
//!   notification are one statement, so a notification exists if and only if the change was recorded.
//! - A rule whose part of the sample is missing raises nothing and clears nothing.
//! - One open row per rule and subject. It closes by itself when the condition ends.
//! - An evaluator that stalled while others continued changes nothing: it names its sample, and only
//!   the latest sample counts.
//!
//! # What can go wrong
//! - The worker that sends notifications is down: the job waits for it, as jobs do.
//! - No process runs housekeeping: see [`crate::measure`].

mod rule;
#[doc(hidden)]
pub mod rules;
#[doc(hidden)]
pub mod snapshot;
mod thresholds;

use jiff::Timestamp;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::CallError;
pub use rule::Rule;
use snapshot::Snapshot;
pub use thresholds::Thresholds;

/// The queue of the notification jobs.
pub const QUEUE: &str = "leasehold.alarms";
/// Jobs that post to a URL.
pub const WEBHOOK: &str = "leasehold.alarm.webhook";
/// Jobs that run a command.
pub const COMMAND: &str = "leasehold.alarm.command";

/// An alarm that was raised or cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// True: raised. False: cleared.
    pub raised: bool,
    /// The name of the rule, such as `no_workers`.
    pub rule: String,
    /// The queue, sweep or mirror; empty for the whole database.
    pub subject: String,
    /// One sentence for an operator, with the value and the threshold.
    pub summary: String,
}

/// Evaluates a sample by the default thresholds, and records the alarms that were raised or cleared.
pub async fn evaluate(client: &Client, sample: Timestamp) -> Result<Vec<Change>, CallError> {
    evaluate_by(client, sample, &Thresholds::default()).await
}

pub(crate) async fn evaluate_by(
    client: &Client,
    sample: Timestamp,
    thresholds: &Thresholds,
) -> Result<Vec<Change>, CallError> {
    let sql = "select leasehold_internal.alarm_snapshot($1)::text";
    let rows = client.query_typed(sql, &[(&sample, Type::TIMESTAMPTZ)]).await?;
    let text: Option<&str> = rows.first().and_then(|row| row.get(0));
    // Without a snapshot nothing is known: raise nothing and clear nothing.
    let Some(text) = text else { return Ok(Vec::new()) };
    let snapshot: Snapshot = match serde_json::from_str(text) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            tracing::warn!(%error, "alarms were not evaluated: the functions in the database are of another release");
            return Ok(Vec::new());
        }
    };
    let found = rules::evaluate(&snapshot, thresholds);
    let found = serde_json::to_value(&found).unwrap_or_default();
    let evaluated: Vec<&str> =
        Rule::ALL.iter().filter(|rule| snapshot.knows(**rule)).map(|rule| rule.as_str()).collect();
    let sql =
        "select change, rule, subject, summary from leasehold_internal.apply_alarms($1, $2, $3)";
    let params = [
        (&sample as _, Type::TIMESTAMPTZ),
        (&found as _, Type::JSONB),
        (&evaluated as _, Type::TEXT_ARRAY),
    ];
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
                tracing::info!(alarm.rule = rule, alarm.subject = subject, "an alarm has cleared");
            }
        }
    }
    Ok(changes)
}
