//! Mirrors: a second store that is kept equal to rows of Postgres, and proven equal.
//!
//! A row of the user's table has a key and a version that only grows. A change commits together with a
//! job. A pass reads what the store holds, writes what is missing, reads again, and completes the job
//! only when the store is *seen* to hold that version or a newer one. A check compares all rows, in
//! both directions, all the time.
//!
//! # In reading order
//! `declare` holds what a mirror is, `sync` brings rows into the store, `check` compares everything,
//! `sets` knows the store and its sets. `runtime` puts them together, and `service` runs them in a worker.
//!
//! This folder uses only what the crate offers to every program: `tests/outside` compiles it as one.
//!
//! # Invariants
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

mod check;
mod declare;
mod runtime;
mod service;
mod sets;
mod sync;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

pub use check::{CheckReport, fingerprint};
pub use declare::{Mirror, MirrorError, trigger_names};
pub use service::MirrorService;
pub use sets::{
    Digest, ItemError, Range, RebuildReport, StoredVersion, Target, TargetError, Targets,
    Tombstone, Write, Written,
};
pub use sync::{DirectWriter, Outcome as MirrorOutcome};
