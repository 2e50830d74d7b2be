//! Alarms and watches, as stored in the database.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::db::Db;
use crate::exit::Failure;
use crate::output::{Columns, fields};
use crate::text::{relative, seconds};

#[derive(Serialize)]
pub struct Entry {
    pub id: String,
    pub rule: String,
    pub subject: String,
    pub state: String,
    pub raised_at: Timestamp,
    pub cleared_at: Option<Timestamp>,
    pub seen_at: Timestamp,
    pub value: f64,
    pub threshold: f64,
    pub summary: String,
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
    pub acknowledged_why: Option<String>,
    pub silenced_until: Option<Timestamp>,
    pub silenced_by: Option<String>,
    pub silenced_why: Option<String>,
    /// When notifications were enqueued; `None`: there was no receiver.
    pub notified_at: Option<Timestamp>,
    /// When the first receiver accepted its notification.
    pub delivered_at: Option<Timestamp>,
    pub delivered_by: Option<String>,
}

/// The thresholds of a queue.
#[derive(Serialize)]
pub struct Watch {
    pub queue: String,
    pub off: bool,
    pub min_completed: i64,
    pub over_seconds: f64,
    pub max_length: Option<i64>,
    pub bulk_tags: Vec<String>,
    pub max_age_seconds: Option<f64>,
    pub max_dead: i64,
    pub max_lost: i64,
    pub since: Timestamp,
    pub changed_by: String,
}

/// Returns the active alarms, with `all` also the cleared ones. The latest first.
pub async fn entries(db: &Db, all: bool, limit: i64) -> Result<Vec<Entry>, Failure> {
    let sql = "select * from leasehold.alarm_state where $1 or cleared_at is null \
               order by raised_at desc, id desc limit $2";
    let rows = db.query(sql, &[(&all, Type::BOOL), (&limit, Type::INT8)]).await?;
    Ok(rows.iter().map(read).collect())
}

pub async fn find(db: &Db, id: i64) -> Result<Entry, Failure> {
    let sql = "select * from leasehold.alarm_state where id = $1";
    let rows = db.query(sql, &[(&id, Type::INT8)]).await?;
    rows.first().map(read).ok_or_else(|| {
        Failure::not_found(format!("there is no alarm {id}"))
            .hint("see: leasehold alarms list --all")
    })
}

fn read(row: &Row) -> Entry {
    Entry {
        id: row.get::<_, i64>("id").to_string(),
        rule: row.get("rule"),
        subject: row.get("subject"),
        state: row.get("state"),
        raised_at: row.get("raised_at"),
        cleared_at: row.get("cleared_at"),
        seen_at: row.get("seen_at"),
        value: row.get("value"),
        threshold: row.get("threshold"),
        summary: row.get("summary"),
        acknowledged_at: row.get("acknowledged_at"),
        acknowledged_by: row.get("acknowledged_by"),
        acknowledged_why: row.get("acknowledged_why"),
        silenced_until: row.get("silenced_until"),
        silenced_by: row.get("silenced_by"),
        silenced_why: row.get("silenced_why"),
        notified_at: row.get("notified_at"),
        delivered_at: row.get("delivered_at"),
        delivered_by: row.get("delivered_by"),
    }
}

pub async fn watches(db: &Db) -> Result<Vec<Watch>, Failure> {
    let sql = "select queue, off, min_completed, extract(epoch from over)::float8 as over_seconds, \
               max_length, bulk_tags, extract(epoch from max_age)::float8 as max_age_seconds, \
               max_dead, max_lost, since, changed_by from leasehold.watch order by queue limit 10000";
    let rows = db.query(sql, &[]).await?;
    let read = |row: &Row| Watch {
        queue: row.get("queue"),
        off: row.get("off"),
        min_completed: row.get("min_completed"),
        over_seconds: row.get("over_seconds"),
        max_length: row.get("max_length"),
        bulk_tags: row.get("bulk_tags"),
        max_age_seconds: row.get("max_age_seconds"),
        max_dead: row.get("max_dead"),
        max_lost: row.get("max_lost"),
        since: row.get("since"),
        changed_by: row.get("changed_by"),
    };
    Ok(rows.iter().map(read).collect())
}

pub fn table(entries: &[Entry], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ID", "RULE", "SUBJECT", "STATE", "SINCE", "WHAT"]);
    for entry in entries {
        columns.row([
            entry.id.clone(),
            entry.rule.clone(),
            entry.subject.clone(),
            entry.state.clone(),
            relative(entry.raised_at, now),
            entry.summary.clone(),
        ]);
    }
    columns
}

pub fn text(entry: &Entry, now: Timestamp) -> String {
    let when = |at: Option<Timestamp>| match at {
        Some(at) => format!("{at} ({})", relative(at, now)),
        None => String::new(),
    };
    let signed = |by: &Option<String>, why: &Option<String>| match (by, why) {
        (Some(by), Some(why)) => format!("{by}: {why}"),
        (Some(by), None) => by.clone(),
        (None, _) => String::new(),
    };
    fields(&[
        ("alarm", entry.id.clone()),
        ("rule", entry.rule.clone()),
        ("subject", entry.subject.clone()),
        ("state", entry.state.clone()),
        ("what", entry.summary.clone()),
        ("value", entry.value.to_string()),
        ("threshold", entry.threshold.to_string()),
        ("raised", when(Some(entry.raised_at))),
        ("last seen", when(Some(entry.seen_at))),
        ("cleared", when(entry.cleared_at)),
        ("notified", notified(entry, now)),
        ("acknowledged", when(entry.acknowledged_at)),
        ("by", signed(&entry.acknowledged_by, &entry.acknowledged_why)),
        ("silenced until", when(entry.silenced_until)),
        ("silenced by", signed(&entry.silenced_by, &entry.silenced_why)),
    ])
}

/// Describes whether a receiver was notified of the alarm, and when.
fn notified(entry: &Entry, now: Timestamp) -> String {
    match (entry.delivered_at, entry.notified_at) {
        (Some(at), _) => {
            let receiver = entry.delivered_by.as_deref().unwrap_or("an unknown receiver");
            format!("{at} ({}), {receiver}", relative(at, now))
        }
        (None, Some(at)) if entry.cleared_at.is_some() => format!(
            "no receiver: enqueued {}, and cleared before one accepted it",
            relative(at, now)
        ),
        (None, Some(at)) => format!(
            "not yet; enqueued {}, see: leasehold jobs list --queue leasehold.alarms",
            relative(at, now)
        ),
        (None, None) if entry.silenced_until.is_some_and(|until| until > now) => {
            "no receiver: silenced".to_owned()
        }
        (None, None) if entry.acknowledged_at.is_some() => {
            "no receiver: acknowledged first".to_owned()
        }
        (None, None) => "no receiver (no webhook or command is configured)".to_owned(),
    }
}

pub fn watch_table(watches: &[Watch]) -> Columns {
    let mut columns =
        Columns::new(&["QUEUE", "COMPLETED", "LENGTH", "WITHOUT", "AGE", "DEAD", "LOST", "BY"]);
    let off = || "-".to_owned();
    for watch in watches {
        let counted = |most: i64| if most > 0 { format!("< {most}") } else { off() };
        let name = if watch.off { format!("{} (off)", watch.queue) } else { watch.queue.clone() };
        columns.row([
            name,
            match watch.min_completed {
                0 => off(),
                least => format!(">= {least} in {}", seconds(watch.over_seconds)),
            },
            watch.max_length.map_or_else(off, |most| format!("<= {most}")),
            watch.bulk_tags.join(", "),
            watch.max_age_seconds.map_or_else(off, |most| format!("<= {}", seconds(most))),
            counted(watch.max_dead),
            counted(watch.max_lost),
            watch.changed_by.clone(),
        ]);
    }
    columns
}
