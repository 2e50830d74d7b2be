//! Which queues exist. No worker would ever claim a job in a mistyped queue.

use super::db::Db;
use crate::exit::Failure;
use crate::text::nearest;

/// The queue of jobs that name none; it exists even before its first job.
pub const DEFAULT: &str = "default";

/// Rejects an unknown queue, with the nearest known name as a hint.
pub async fn check_queue(db: &Db, queue: &str) -> Result<(), Failure> {
    leasehold::job::check_queue_name(queue).map_err(Failure::usage)?;
    if queue == DEFAULT {
        return Ok(());
    }
    let known = match db.within(db.queues().names()).await {
        Ok(known) => known,
        // A producer may enqueue and may not see which queues there are.
        Err(failure) if failure.is_denied() => return Ok(()),
        Err(failure) => return Err(failure),
    };
    if known.iter().any(|name| name == queue) {
        return Ok(());
    }
    let hint = match (nearest(queue, &known), known.is_empty()) {
        (Some(near), _) => format!("did you mean {near:?}? To create a new queue add --new-queue"),
        (None, true) => {
            "the only queue yet is \"default\"; to create this one add --new-queue".to_owned()
        }
        (None, false) => {
            format!("known queues: {}. To create a new one add --new-queue", known.join(", "))
        }
    };
    Err(Failure::not_found(format!("there is no queue {queue:?}")).hint(hint))
}
