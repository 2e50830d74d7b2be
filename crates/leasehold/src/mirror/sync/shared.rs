//! What all tasks of this process that work on one mirror know about its store. Clones of a [`Mirror`]
//! share it.
//!
//! [`Mirror`]: crate::mirror::Mirror

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bulk::Bulk;
use super::throttle::StoreThrottle;

/// A change by a user within this window keeps bulk work throttled.
const INTERACTIVE_WINDOW: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct Shared {
    /// For the set that is searched.
    pub(crate) throttle: StoreThrottle,
    /// The second set has its own throttle: writes to the set that is searched do not wait for it.
    pub(crate) second: StoreThrottle,
    pub(crate) bulk: Bulk,
    /// Keys that the direct path left to the jobs.
    pub(crate) dropped: AtomicU64,
    /// Keys that the direct path wrote.
    pub(crate) direct: AtomicU64,
    /// When this process last saw a change that is not bulk work.
    live: Mutex<Option<Instant>>,
}

impl Shared {
    /// Records a change that is not bulk work.
    pub(crate) fn seen_live(&self) {
        *self.live.lock() = Some(Instant::now());
    }

    /// Returns whether users have changed rows within the last two minutes.
    pub(crate) fn is_live(&self) -> bool {
        self.live.lock().is_some_and(|at| at.elapsed() < INTERACTIVE_WINDOW)
    }
}
