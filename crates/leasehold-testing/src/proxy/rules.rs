//! The rules in force, and how often they fired.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::rule::{AtStatement, Rule, Weather, When};
use crate::firings::Firings;

/// Identifies a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// A rule that did not fire in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the rule fired {fired} times instead of {wanted} within {} s: does the code under test go \
     through the proxy, and does the statement contain the text?", .limit.as_secs()
)]
pub struct NotFired {
    pub fired: u64,
    pub wanted: u64,
    limit: Duration,
}

#[derive(Default)]
pub(super) struct Rules {
    inner: Mutex<Inner>,
    firings: Firings<RuleId>,
    resets: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    in_force: Vec<(RuleId, Rule, u64)>,
    connections: usize,
}

impl Rules {
    pub(super) fn add(&self, rule: Rule) -> RuleId {
        let mut inner = self.lock();
        inner.next += 1;
        let id = RuleId(inner.next);
        inner.in_force.push((id, rule, 0));
        self.changed(inner);
        id
    }

    pub(super) fn remove(&self, id: RuleId) {
        let mut inner = self.lock();
        inner.in_force.retain(|(known, _, _)| *known != id);
        self.changed(inner);
    }

    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        inner.in_force.clear();
        self.changed(inner);
    }

    pub(super) fn reset_all(&self) -> usize {
        let connections = self.connections();
        self.resets.send_modify(|count| *count += 1);
        connections
    }

    pub(super) fn resets(&self) -> watch::Receiver<u64> {
        self.resets.subscribe()
    }

    pub(super) fn connections(&self) -> usize {
        self.lock().connections
    }

    pub(super) fn connected(&self) {
        self.lock().connections += 1;
    }

    pub(super) fn disconnected(&self) {
        self.lock().connections -= 1;
    }

    pub(super) fn fired(&self, id: RuleId) -> u64 {
        self.firings.of(id)
    }

    /// Counts that a rule has taken effect.
    pub(super) fn fire(&self, id: RuleId) {
        self.firings.fire(id);
    }

    pub(super) async fn wait_fired(
        &self,
        id: RuleId,
        wanted: u64,
        limit: Duration,
    ) -> Result<(), NotFired> {
        let waited = self.firings.wait(id, wanted, limit).await;
        waited.map_err(|fired| NotFired { fired, wanted, limit })
    }

    /// Waits until a rule is no longer in force.
    pub(super) async fn until_removed(&self, id: RuleId) {
        let gone = || !self.lock().in_force.iter().any(|(known, _, _)| *known == id);
        self.firings.until(gone).await;
    }

    pub(super) fn at_statement(&self, sql: &str) -> Vec<(RuleId, AtStatement)> {
        self.take(|when| match when {
            When::Statement(text, what) if sql.contains(text.as_str()) => Some(*what),
            _ => None,
        })
    }

    pub(super) fn at_commit(&self) -> Option<RuleId> {
        self.take_one(|when| matches!(when, When::Committed))
    }

    pub(super) fn at_client_message(&self, count: u64) -> Option<RuleId> {
        self.take_one(|when| matches!(when, When::ClientMessage(nth) if *nth == count))
    }

    pub(super) fn at_server_message(&self, count: u64) -> Option<RuleId> {
        self.take_one(|when| matches!(when, When::ServerMessage(nth) if *nth == count))
    }

    pub(super) fn at_connecting(&self) -> Option<RuleId> {
        self.take_one(|when| matches!(when, When::Connecting))
    }

    pub(super) fn delay(&self) -> Option<(RuleId, Duration)> {
        let delays = self.take(|when| match when {
            When::Traffic(Weather::Delay(by)) => Some(*by),
            _ => None,
        });
        delays.into_iter().next()
    }

    pub(super) fn throttle(&self) -> Option<(RuleId, u64)> {
        let limits = self.take(|when| match when {
            When::Traffic(Weather::Throttle(bytes)) => Some(*bytes),
            _ => None,
        });
        limits.into_iter().min_by_key(|(_, bytes)| *bytes)
    }

    pub(super) fn blackhole(&self) -> Option<RuleId> {
        self.take_one(|when| matches!(when, When::Traffic(Weather::Blackhole)))
    }

    fn take_one(&self, fits: impl Fn(&When) -> bool) -> Option<RuleId> {
        self.take(|when| fits(when).then_some(())).into_iter().next().map(|(id, ())| id)
    }

    /// Returns the rules that fire on this occasion. Occasions are counted under the lock, so that
    /// only one of two connections gets the last firing of a rule.
    fn take<T>(&self, fits: impl Fn(&When) -> Option<T>) -> Vec<(RuleId, T)> {
        let mut inner = self.lock();
        let mut taken = Vec::new();
        for (id, rule, occasions) in &mut inner.in_force {
            let Some(what) = fits(&rule.when) else {
                continue;
            };
            *occasions += 1;
            if *occasions > rule.skip && *occasions - rule.skip <= rule.times {
                taken.push((*id, what));
            }
        }
        taken
    }

    fn changed(&self, inner: MutexGuard<'_, Inner>) {
        drop(inner);
        self.firings.changed();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}
