//! Counts how often each rule of a proxy or a server fired, and waits for it.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

/// Counts by rule. `changes` also goes up with every change of the rules, for tasks that wait for
/// one.
pub(crate) struct Firings<Id> {
    counts: Mutex<HashMap<Id, u64>>,
    changes: watch::Sender<u64>,
}

impl<Id> Default for Firings<Id> {
    fn default() -> Self {
        Self { counts: Mutex::default(), changes: watch::Sender::default() }
    }
}

impl<Id: Copy + Eq + std::hash::Hash> Firings<Id> {
    pub(crate) fn of(&self, rule: Id) -> u64 {
        self.lock().get(&rule).copied().unwrap_or(0)
    }

    /// Counts that a rule has taken effect.
    pub(crate) fn fire(&self, rule: Id) {
        *self.lock().entry(rule).or_default() += 1;
        self.changed();
    }

    /// Notifies waiting tasks that the rules have changed.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Waits until a rule has fired `wanted` times. The error is how often it did.
    pub(crate) async fn wait(&self, rule: Id, wanted: u64, limit: Duration) -> Result<(), u64> {
        let enough = self.until(|| self.of(rule) >= wanted);
        tokio::time::timeout(limit, enough).await.map_err(|_| self.of(rule))
    }

    /// Waits until a condition on the rules holds.
    pub(crate) async fn until(&self, holds: impl Fn() -> bool) {
        // Subscribe before looking, or a change in between would be missed.
        let mut changes = self.changes.subscribe();
        while !holds() {
            let _ = changes.changed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, u64>> {
        self.counts.lock()
    }
}
