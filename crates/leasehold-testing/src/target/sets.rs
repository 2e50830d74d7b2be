//! A store that can have a second set of documents.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use leasehold::mirror::{Target, TargetError, Targets};
use parking_lot::{Mutex, MutexGuard};

use super::ScriptedTarget;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TargetError>> + Send + 'a>>;

/// Sets of documents in this process, of which one is searched. Clones are the same store.
#[derive(Clone)]
pub struct ScriptedTargets(Arc<Mutex<Inner>>);

struct Inner {
    sets: BTreeMap<String, ScriptedTarget>,
    current: String,
    made: usize,
    swaps_fail: bool,
    down: bool,
    unanswered: usize,
}

impl Default for ScriptedTargets {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptedTargets {
    /// Creates one set, named `set-1`.
    pub fn new() -> Self {
        let current = "set-1".to_owned();
        let sets = BTreeMap::from([(current.clone(), ScriptedTarget::new())]);
        let (swaps_fail, down, unanswered) = (false, false, 0);
        Self(Arc::new(Mutex::new(Inner { sets, current, made: 1, swaps_fail, down, unanswered })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Returns the set of that name.
    pub fn set(&self, name: &str) -> Option<ScriptedTarget> {
        self.inner().sets.get(name).cloned()
    }

    /// Returns the set that is searched.
    pub fn searched(&self) -> ScriptedTarget {
        let inner = self.inner();
        inner.sets.get(&inner.current).cloned().unwrap_or_default()
    }

    pub fn names(&self) -> Vec<String> {
        self.inner().sets.keys().cloned().collect()
    }

    /// Loses everything: there is one empty set, under a new name. A client that still has an old set
    /// open gets errors.
    pub fn lose_everything(&self) {
        let mut inner = self.inner();
        inner.sets.values().for_each(|set| set.faults(|faults| faults.down = true));
        inner.made += 1;
        inner.current = format!("set-{}", inner.made);
        inner.sets = BTreeMap::from([(inner.current.clone(), ScriptedTarget::new())]);
    }

    /// Makes every call to every set fail, until it is called with `false`.
    pub fn set_down(&self, down: bool) {
        let mut inner = self.inner();
        inner.down = down;
        inner.sets.values().for_each(|set| set.faults(|faults| faults.down = down));
    }

    /// Returns how often a client asked about the sets while the store was down.
    pub fn unanswered(&self) -> usize {
        self.inner().unanswered
    }

    fn up(&self) -> Result<MutexGuard<'_, Inner>, TargetError> {
        let mut inner = self.inner();
        if inner.down {
            inner.unanswered += 1;
            return Err(TargetError::Down("the script has set the store down".to_owned()));
        }
        Ok(inner)
    }

    /// Makes swaps fail, until it is called with `false`.
    pub fn refuse_swaps(&self, refuse: bool) {
        self.inner().swaps_fail = refuse;
    }
}

fn unknown(name: &str) -> TargetError {
    TargetError::Down(format!("there is no set {name}"))
}

impl Targets for ScriptedTargets {
    fn current(&self) -> Answer<'_, String> {
        Box::pin(async move { Ok(self.up()?.current.clone()) })
    }

    fn open<'a>(&'a self, name: &'a str) -> Answer<'a, Arc<dyn Target>> {
        Box::pin(async move {
            let set = self.up()?.sets.get(name).cloned().ok_or_else(|| unknown(name))?;
            Ok(Arc::new(set) as Arc<dyn Target>)
        })
    }

    fn create(&self) -> Answer<'_, String> {
        Box::pin(async move {
            let mut inner = self.up()?;
            inner.made += 1;
            let name = format!("set-{}", inner.made);
            inner.sets.insert(name.clone(), ScriptedTarget::new());
            Ok(name)
        })
    }

    fn swap<'a>(&'a self, to: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut inner = self.up()?;
            if inner.swaps_fail {
                return Err(TargetError::Down("swaps are refused".to_owned()));
            }
            if !inner.sets.contains_key(to) {
                return Err(unknown(to));
            }
            inner.current = to.to_owned();
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut inner = self.up()?;
            if inner.current != name {
                inner.sets.remove(name);
            }
            Ok(())
        })
    }
}
