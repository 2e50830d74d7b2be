//! Queues as a table.

use jiff::Timestamp;
use leasehold::admin::QueueInfo;

use crate::output::Columns;
use crate::text::{length, relative};

pub fn table(queues: &[QueueInfo], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&[
        "QUEUE",
        "READY",
        "OLDEST",
        "RUNNING",
        "SCHEDULED",
        "RETRYING",
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
            queue.retrying.to_string(),
            queue.dead.to_string(),
            queue.expired.to_string(),
            queue.workers.to_string(),
            queue.settings.as_ref().map(|set| length(set.lease)).unwrap_or_default(),
            queue.settings.as_ref().map(|set| set.max_attempts.to_string()).unwrap_or_default(),
            paused.unwrap_or_default(),
        ]);
    }
    columns
}
