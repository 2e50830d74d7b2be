//! A store for mirrors, in this process, with faults on demand.
//!
//! # What is true
//! - It keeps versions and deletions as a real store must: what is newer stays, a deletion is a version.
//! - Every write that it took is remembered in order, so that a test can ask whether a version ever fell.
//! - It is a tool for tests, beside the real stores and never instead of them.
//!
//! Faults stay until they are taken back: see [`Faults`]. Things that happen once are methods:
//! [`ScriptedTarget::land`], [`ScriptedTarget::refresh`], [`ScriptedTarget::rewind`].

mod answer;
mod sets;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold::mirror::{Held, ItemError, Write, Written};
use serde_json::Value;

pub use sets::ScriptedTargets;

/// What is wrong with the store, until it is taken back.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Every call fails at once.
    pub down: bool,
    /// Every call takes so long.
    pub slow: Option<Duration>,
    /// Calls for more keys than this are told that it is too much.
    pub at_most: Option<usize>,
    /// Writes are taken, answered with an error, and land when [`ScriptedTarget::land`] is called.
    pub delay_writes: bool,
    /// Every write is applied, and applied once more when [`ScriptedTarget::land`] is called.
    pub duplicate_writes: bool,
    /// Writes land and their answer is lost.
    pub lose_answers: bool,
    /// What is written is not shown before [`ScriptedTarget::refresh`].
    pub lag: bool,
    /// Documents that are not stored, and why.
    pub items: HashMap<String, ItemError>,
    /// Deletions are forgotten by themselves after this time, as some stores do.
    pub forget_after: Option<Duration>,
    /// What comes last stays, whatever its version: a store that is no good for mirrors.
    pub ignore_versions: bool,
}

/// One call, with the number of keys it was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Held(usize),
    Write(usize),
    Digest,
    List,
    Forget(usize),
}

/// Everything that was stored at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot(BTreeMap<String, Stored>);

#[derive(Clone, Debug)]
struct Stored {
    version: i64,
    /// `None`: a deletion.
    document: Option<Value>,
    at: Instant,
}

/// A store in this process. Clones are the same store.
#[derive(Clone, Default)]
pub struct ScriptedTarget(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    stored: BTreeMap<String, Stored>,
    /// What is shown while `lag` is on.
    shown: Option<BTreeMap<String, Stored>>,
    faults: Faults,
    delayed: Vec<Write>,
    log: Vec<Operation>,
    /// Every write that was taken: key, version, whether it was a deletion.
    taken: Vec<(String, i64, bool)>,
}

impl ScriptedTarget {
    pub fn new() -> Self {
        Self::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is wrong with it.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut inner = self.inner();
        change(&mut inner.faults);
        if inner.faults.lag {
            if inner.shown.is_none() {
                inner.shown = Some(inner.stored.clone());
            }
        } else {
            inner.shown = None;
        }
    }

    /// Lets delayed writes land, in the order in which they came or the other way round. Says how many.
    pub fn land(&self, reversed: bool) -> usize {
        let mut inner = self.inner();
        let mut delayed = std::mem::take(&mut inner.delayed);
        if reversed {
            delayed.reverse();
        }
        for write in &delayed {
            inner.apply(write);
        }
        delayed.len()
    }

    /// How many writes are on their way.
    pub fn delayed(&self) -> usize {
        self.inner().delayed.len()
    }

    /// What was written is shown.
    pub fn refresh(&self) {
        let mut inner = self.inner();
        inner.shown = inner.faults.lag.then(|| inner.stored.clone());
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.inner().stored.clone())
    }

    /// Everything is as it was then.
    pub fn rewind(&self, to: &Snapshot) {
        self.inner().stored = to.0.clone();
    }

    /// Puts something there behind the mirror's back; without a document it is removed.
    pub fn tamper(&self, key: &str, version: i64, document: Option<Value>) {
        let mut inner = self.inner();
        match document {
            Some(document) => {
                let stored = Stored { version, document: Some(document), at: Instant::now() };
                inner.stored.insert(key.to_owned(), stored);
            }
            None => drop(inner.stored.remove(key)),
        }
    }

    /// The living documents: key, version, document.
    pub fn documents(&self) -> Vec<(String, i64, Value)> {
        let inner = self.inner();
        let living = |(key, stored): (&String, &Stored)| {
            Some((key.clone(), stored.version, stored.document.clone()?))
        };
        inner.stored.iter().filter_map(living).collect()
    }

    /// What is under a key, faults aside.
    pub fn find(&self, key: &str) -> Option<Held> {
        self.inner().stored.get(key).map(Stored::held)
    }

    /// How many deletions are remembered.
    pub fn deletions(&self) -> usize {
        self.inner().stored.values().filter(|stored| stored.document.is_none()).count()
    }

    /// Every call so far.
    pub fn log(&self) -> Vec<Operation> {
        self.inner().log.clone()
    }

    /// The versions that were taken under a key, in order; true: a deletion.
    pub fn history(&self, key: &str) -> Vec<(i64, bool)> {
        let taken = &self.inner().taken;
        taken
            .iter()
            .filter(|(of, ..)| of == key)
            .map(|(_, version, gone)| (*version, *gone))
            .collect()
    }

    /// Keys whose version ever fell. A store that was rewound has some, and that is no fault of a mirror.
    pub fn fallen(&self) -> Vec<String> {
        let inner = self.inner();
        let mut highest: HashMap<&str, i64> = HashMap::new();
        let mut fallen = Vec::new();
        for (key, version, _) in &inner.taken {
            let last = highest.entry(key).or_insert(*version);
            if *version < *last {
                fallen.push(key.clone());
            }
            *last = *version;
        }
        fallen
    }
}

impl Stored {
    fn held(&self) -> Held {
        Held { version: self.version, deleted: self.document.is_none() }
    }
}

impl Inner {
    fn apply(&mut self, write: &Write) -> Written {
        self.forget_old();
        let newer = self.stored.get(&write.key).is_some_and(|stored| {
            stored.version > write.version || (stored.version == write.version && !write.forced)
        });
        if newer && !self.faults.ignore_versions {
            return Written::Newer;
        }
        let (version, document) = (write.version, write.document.clone());
        self.taken.push((write.key.clone(), version, document.is_none()));
        self.stored.insert(write.key.clone(), Stored { version, document, at: Instant::now() });
        Written::Stored
    }

    fn forget_old(&mut self) {
        if let Some(after) = self.faults.forget_after {
            self.stored
                .retain(|_, stored| stored.document.is_some() || stored.at.elapsed() < after);
        }
    }

    fn shown(&self) -> &BTreeMap<String, Stored> {
        self.shown.as_ref().unwrap_or(&self.stored)
    }
}
