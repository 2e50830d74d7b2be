//! Which queues exist. No worker would ever claim a job in a mistyped queue.

use super::db::Db;
use crate::exit::Failure;
use crate::text::nearest;

/// The queue of jobs that name none; it exists even before its first job.
pub const DEFAULT: &str = "default";

/// Rejects an unknown queue, with the nearest known name as a hint, for commands with `--new-queue`.
pub async fn check_queue(db: &Db, queue: &str) -> Result<(), Failure> {
    check(db, queue, true).await
}

/// The same for commands that act only on queues that exist. They take any name that exists: a plain
/// INSERT checks only the length of a name.
pub async fn check_existing(db: &Db, queue: &str) -> Result<(), Failure> {
    check(db, queue, false).await
}

async fn check(db: &Db, queue: &str, may_create: bool) -> Result<(), Failure> {
    if queue == DEFAULT {
        return Ok(());
    }
    let known = match db.within(db.queues().names()).await {
        Ok(known) => known,
        // A producer may enqueue and may not see which queues there are.
        Err(failure) if failure.is_denied() => {
            return leasehold::job::check_queue_name(queue).map_err(Failure::usage);
        }
        Err(failure) => return Err(failure),
    };
    if known.iter().any(|name| name == queue) {
        return Ok(());
    }
    if may_create {
        leasehold::job::check_queue_name(queue).map_err(Failure::usage)?;
    }
    let found = match nearest(queue, &known) {
        Some(near) => format!("did you mean {near:?}?"),
        None if known.is_empty() => {
            "no queue of this database has jobs or settings yet.".to_owned()
        }
        None => format!("known queues: {}.", listed(&known)),
    };
    let hint = match may_create {
        true => format!("{found} To create a new queue add --new-queue"),
        false => format!("{found} List queues: leasehold queues list"),
    };
    Err(Failure::not_found(format!("there is no queue {queue:?}")).hint(hint))
}

/// The first names, and how many more there are.
fn listed(names: &[String]) -> String {
    const MOST: usize = 10;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
