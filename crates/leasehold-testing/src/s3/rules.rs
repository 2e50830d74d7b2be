//! The rules in force, and how often they fired.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::call::Call;
use super::rule::{Fault, Rule};
use crate::firings::Firings;

/// Identifies a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// A rule that did not fire in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the rule fired {fired} times instead of {wanted} within {} s: does the code under test use this \
     server, and do operation and key fit?", .limit.as_secs()
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
}

#[derive(Default)]
struct Inner {
    next: u64,
    in_force: Vec<InForce>,
}

struct InForce {
    id: RuleId,
    rule: Rule,
    /// How many requests matched it.
    seen: u64,
}

/// The rules that apply to one request.
pub(super) struct Met {
    pub fault: Option<(RuleId, Fault, String)>,
    pub hidden: Vec<(RuleId, String)>,
}

impl Rules {
    pub(super) fn add(&self, rule: Rule) -> RuleId {
        let mut inner = self.lock();
        inner.next += 1;
        let id = RuleId(inner.next);
        inner.in_force.push(InForce { id, rule, seen: 0 });
        id
    }

    pub(super) fn remove(&self, id: RuleId) {
        self.lock().in_force.retain(|known| known.id != id);
        self.firings.changed();
    }

    pub(super) fn clear(&self) {
        self.lock().in_force.clear();
        self.firings.changed();
    }

    /// Counts this request for every rule that it matches, up to the one that fires.
    pub(super) fn meet(&self, call: &Call) -> Met {
        let mut met = Met { fault: None, hidden: Vec::new() };
        for known in &mut self.lock().in_force {
            let on = &known.rule.on;
            if known.rule.fault == Fault::HideKeys {
                // Its key selects keys in the response, not the prefix of the request.
                if call.op == super::call::Op::List {
                    met.hidden.push((known.id, on.key_part().to_owned()));
                }
                continue;
            }
            if met.fault.is_some() || !on.fits(call) {
                continue;
            }
            known.seen += 1;
            let nth = known.seen.saturating_sub(known.rule.skip);
            if nth >= 1 && nth <= known.rule.times {
                met.fault = Some((known.id, known.rule.fault, on.key_part().to_owned()));
            }
        }
        met
    }

    /// Counts that a rule has taken effect.
    pub(super) fn fire(&self, id: RuleId) {
        self.firings.fire(id);
    }

    pub(super) fn fired(&self, id: RuleId) -> u64 {
        self.firings.of(id)
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
        let gone = || !self.lock().in_force.iter().any(|known| known.id == id);
        self.firings.until(gone).await;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}
