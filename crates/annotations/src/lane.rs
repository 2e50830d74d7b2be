//! Priorities of index jobs: changes by users first, then bulk operations. Deferred jobs are behind both, by the
//! engine's own order.

use std::ops::RangeInclusive;

/// The priority of the job of a save.
pub(crate) const SAVE: i32 = 1;

/// The priorities that a re-index may have: after saves, so that users do not wait for it.
pub const REINDEX_PRIORITIES: RangeInclusive<i32> = SAVE + 1..=999_999;
