//! Mirrors: a second store that is kept equal to rows of Postgres, and proven so.

mod fingerprint;
mod target;

pub use fingerprint::fingerprint;
pub use target::{
    Digest, Held, ItemError, Range, Target, TargetError, Targets, Tombstone, Write, Written,
};
