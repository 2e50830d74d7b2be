//! A queue, as stored in the database.

use super::record::finite;
use jiff::Timestamp;
use serde::Serialize;

use crate::output::Columns;
use crate::text::{relative, seconds};

#[derive(Serialize)]
pub struct Queue {
    pub queue: String,
    pub ready: i64,
    pub running: i64,
    pub scheduled: i64,
    pub dead: i64,
    pub expired: i64,
    pub workers: i64,
    pub oldest_ready_at: Option<Timestamp>,
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    pub paused_why: Option<String>,
    pub lease_seconds: Option<f64>,
    pub max_attempts: Option<i32>,
    pub max_lost: Option<i32>,
    pub batch: Option<i32>,
    pub run_limit_seconds: Option<f64>,
    pub backoff_first_seconds: Option<f64>,
    pub backoff_longest_seconds: Option<f64>,
    pub keep_history: Option<bool>,
    pub display_name: Option<String>,
    pub owner: Option<String>,
}

pub fn read(row: &tokio_postgres::Row) -> Queue {
    Queue {
        queue: row.get("queue"),
        ready: row.get("ready"),
        running: row.get("running"),
        scheduled: row.get("scheduled"),
        dead: row.get("dead"),
        expired: row.get("expired"),
        workers: row.get("workers"),
        oldest_ready_at: finite(row, "oldest_ready_at"),
        paused_at: row.get("paused_at"),
        paused_by: row.get("paused_by"),
        paused_why: row.get("paused_why"),
        lease_seconds: row.get("lease_seconds"),
        max_attempts: row.get("max_attempts"),
        max_lost: row.get("max_lost"),
        batch: row.get("batch"),
        run_limit_seconds: row.get("run_limit_seconds"),
        backoff_first_seconds: row.get("backoff_first_seconds"),
        backoff_longest_seconds: row.get("backoff_longest_seconds"),
        keep_history: row.get("keep_history"),
        display_name: row.get("display_name"),
        owner: row.get("owner"),
    }
}

pub fn table(queues: &[Queue], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "QUEUE",
        "READY",
        "OLDEST",
        "RUNNING",
        "SCHEDULED",
        "DEAD",
        "EXPIRED",
        "WORKERS",
        "LEASE",
        "ATTEMPTS",
        "PAUSED",
    ]);
    for queue in queues {
        let paused = queue.paused_at.map(|at| {
            let by = queue.paused_by.as_deref().unwrap_or_default();
            let why = queue.paused_why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{} by {by}{why}", relative(at, now))
        });
        columns.row([
            queue.queue.clone(),
            queue.ready.to_string(),
            queue.oldest_ready_at.map(|at| relative(at, now)).unwrap_or_default(),
            queue.running.to_string(),
            queue.scheduled.to_string(),
            queue.dead.to_string(),
            queue.expired.to_string(),
            queue.workers.to_string(),
            queue.lease_seconds.map(seconds).unwrap_or_default(),
            queue.max_attempts.map(|most| most.to_string()).unwrap_or_default(),
            paused.unwrap_or_default(),
        ]);
    }
    columns
}
