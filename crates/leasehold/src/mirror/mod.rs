//! Mirrors: a second store that is kept equal to rows of Postgres, and proven so.
//!
//! A row of a table of yours has a key and a version that only grows. A change of it commits with a
//! job; a pass looks at what the store holds, writes what is missing, looks again, and completes the
//! job only when the store is *seen* to hold that version or a newer one. A check compares everything,
//! both ways, all the time.
//!
//! # In reading order
//! `declare` says what to mirror, `statements` turns that into SQL, `install` adds the trigger, and
//! `prepare` checks it all against the table. `target` is what a store must be able to do. `compare`
//! decides, without touching anything; `sync` does it for some rows; `pass` does it for jobs, with turns
//! and rests for `bulk` work, `direct` right after a commit. `pace` says how much may be asked of the store
//! now. `check` compares ranges by their digests and `differences` takes them apart; `rebuild` makes a
//! second set, `prove` fills and compares it, `sets` says which are written; `order` is how people ask for
//! these; `desk` is what all of them share.
//!
//! # What is true
//! - A document never goes back to an older version, and a deletion is a version too.
//! - A job ends when its row is seen in the store, in this version or a newer one, and not before.
//! - No transaction is open while the store is asked.
//! - The direct path only makes it sooner. Drop it, and nothing is lost.
//!
//! # What can go wrong
//! - The store is down: jobs are put off, one probe at a time asks whether it is back.
//! - The store refuses one document for good: its job is buried with the reason, the others go on.
//! - The store was set back to an old copy, or lost: the check finds what differs and has it written.
//! - Postgres was set back: the store is ahead, and the rows' versions are raised above it.

mod bulk;
mod check;
mod compare;
mod declare;
mod desk;
mod differences;
mod direct;
mod fingerprint;
mod install;
mod order;
mod pace;
mod pass;
mod prepare;
mod prove;
mod purge;
mod rebuild;
#[cfg(feature = "redis")]
mod redis_hash;
mod sets;
mod source;
mod statements;
mod sync;
mod target;
mod unopened;

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
pub(crate) use desk::Desk;
#[cfg(feature = "testing")]
pub(crate) use desk::SETTINGS;
pub(crate) use order::runner as order_runner;
pub(crate) use pass::runner as pass_runner;
