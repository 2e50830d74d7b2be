//! Mirrors: a second store that is kept equal to rows of Postgres, and proven equal.
//!
//! A row of the user's table has a key and a version that only grows. A change commits together with a
//! job. A pass reads what the store holds, writes what is missing, reads again, and completes the job
//! only when the store is *seen* to hold that version or a newer one. A check compares all rows, in
//! both directions, all the time.
//!
//! # In reading order
//! `declare` holds the declaration, `statements` turns it into SQL, `install` adds the triggers, and
//! `prepare` checks it all against the table. `target` is the interface of a store. `compare` decides,
//! without side effects; `sync` carries the decision out for some rows; `pass` does so for jobs, with
//! turns and pauses for `bulk` work, and `direct` right after a commit. `throttle` limits what the store is
//! asked for now. `check` compares ranges by their digests and `differences` finds the rows that
//! differ; `rebuild` creates a second set, `prove` fills and compares it, `sets` decides which are
//! written; `order` runs what operators ask for; `runtime` is what all of them share.
//!
//! # What is true
//! - A document never goes back to an older version, and a deletion is a version too.
//! - A job completes when its row is seen in the store, in this version or a newer one, and not before.
//! - No transaction is open during a call to the store.
//! - The direct path only saves time. Without it, nothing is lost.
//!
//! # What can go wrong
//! - The store is down: jobs are deferred, and one probe at a time asks whether it is back.
//! - The store refuses one document for good: its job is buried with the reason, and the others
//!   continue.
//! - The store was restored from an old copy, or lost: the check finds what differs and has it written.
//! - Postgres was restored from an old copy: the store is ahead, and the rows' versions are raised
//!   above it.

mod bulk;
mod check;
mod compare;
mod declare;
mod differences;
mod direct;
mod failed_target;
mod fingerprint;
mod install;
mod order;
mod pass;
mod prepare;
mod prove;
mod purge;
mod rebuild;
#[cfg(feature = "redis")]
mod redis_hash;
mod runtime;
mod sets;
mod source;
mod statements;
mod sync;
mod target;
mod throttle;

pub use check::CheckReport;
pub use compare::Outcome as MirrorOutcome;
pub use declare::Mirror;
pub use direct::DirectWriter;
pub use fingerprint::fingerprint;
pub use install::trigger_names;
pub use prepare::MirrorError;
pub use rebuild::RebuildReport;
#[cfg(feature = "redis")]
pub use redis_hash::RedisHash;
pub use target::{
    Digest, Held, ItemError, Range, Target, TargetError, Targets, Tombstone, Write, Written,
};

pub(crate) use check::Checker;
pub(crate) use order::runner as order_runner;
pub(crate) use pass::runner as pass_runner;
pub(crate) use runtime::MirrorRuntime;
#[cfg(feature = "testing")]
pub(crate) use runtime::SETTINGS;
