//! Sets of documents: `target` is the interface of a store, `set_store` decides which sets are written,
//! `rebuild` makes a second one and swaps it in, `prove` fills and compares it, `order` does what operators
//! ask for.

mod failed_target;
mod order;
mod prove;
mod rebuild;
mod set_store;
mod target;

pub use rebuild::RebuildReport;
pub use target::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Targets, Tombstone, Write,
    Written,
};

pub(crate) use order::{RUN_LIMIT as ORDER_LIMIT, run as run_order};
pub(crate) use rebuild::Rebuilder;
pub(crate) use set_store::{Phase, SetStore, Sets};
