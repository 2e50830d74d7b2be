//! A store for mirrors, in this process, with faults on demand.
//!
//! # Invariants
//! - It keeps versions and deletions as a real store must: the newer version stays, and a deletion is
//!   a version.
//! - It records every accepted write in order, so that a test can check whether a version ever
//!   decreased.
//! - It is a tool for tests, beside the real stores and never instead of them.
//!
//! Faults stay until the test clears them: see [`Faults`]. One-time events are methods:
//! [`ScriptedTarget::land`], [`ScriptedTarget::refresh`], [`ScriptedTarget::rewind`].

mod answer;
mod sets;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::mirror::{ItemError, StoredVersion, Write, Written};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

pub use sets::ScriptedTargets;

/// Faults of the store, in force until the test clears them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Faults {
    /// Every call fails at once.
    pub down: bool,
    /// Every call takes this long.
    pub slow: Option<Duration>,
    /// Calls with more keys than this fail as overloaded.
    pub at_most: Option<usize>,
    /// Writes are accepted but return an error; they land when [`ScriptedTarget::land`] is called.
    pub delay_writes: bool,
    /// Every write is applied, and applied once more when [`ScriptedTarget::land`] is called.
    pub duplicate_writes: bool,
    /// Writes land, but their response is lost.
    pub lose_answers: bool,
    /// Reads do not show writes before [`ScriptedTarget::refresh`].
    pub lag: bool,
    /// Documents that are refused, and why.
    pub items: HashMap<String, ItemError>,
    /// The store forgets deletions by itself after this time, as some stores do.
    pub forget_after: Option<Duration>,
    /// The last write wins, of any version: a store that is unfit for mirrors.
    pub ignore_versions: bool,
}

/// One call, with its number of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    Held(usize),
    Write(usize),
    Digest,
    List,
    Forget(usize),
}

/// The content of the store at one moment.
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
    /// What reads show while `lag` is on.
    shown: Option<BTreeMap<String, Stored>>,
    faults: Faults,
    delayed: Vec<Write>,
    log: Vec<Operation>,
    /// Every accepted write: key, version, whether it was a deletion.
    taken: Vec<(String, i64, bool)>,
}

impl ScriptedTarget {
    pub fn new() -> Self {
        Self::default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Changes the faults.
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

    /// Lets delayed writes land, in their order or reversed. Returns how many.
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

    /// Returns how many writes are delayed.
    pub fn delayed(&self) -> usize {
        self.inner().delayed.len()
    }

    /// Makes reads show everything written so far.
    pub fn refresh(&self) {
        let mut inner = self.inner();
        inner.shown = inner.faults.lag.then(|| inner.stored.clone());
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.inner().stored.clone())
    }

    /// Restores the content of a snapshot.
    pub fn rewind(&self, to: &Snapshot) {
        self.inner().stored = to.0.clone();
    }

    /// Stores a document directly, bypassing the mirror; without a document, removes the key.
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

    /// Returns the documents that are not deleted: key, version, document.
    pub fn documents(&self) -> Vec<(String, i64, Value)> {
        let inner = self.inner();
        let living = |(key, stored): (&String, &Stored)| {
            Some((key.clone(), stored.version, stored.document.clone()?))
        };
        inner.stored.iter().filter_map(living).collect()
    }

    /// Returns what is stored under a key, ignoring faults.
    pub fn find(&self, key: &str) -> Option<StoredVersion> {
        self.inner().stored.get(key).map(Stored::held)
    }

    /// Returns how many deletions are remembered.
    pub fn deletions(&self) -> usize {
        self.inner().stored.values().filter(|stored| stored.document.is_none()).count()
    }

    /// Returns every call so far.
    pub fn log(&self) -> Vec<Operation> {
        self.inner().log.clone()
    }

    /// Returns the versions accepted under a key, in order; true: a deletion.
    pub fn history(&self, key: &str) -> Vec<(i64, bool)> {
        let taken = &self.inner().taken;
        taken
            .iter()
            .filter(|(of, ..)| of == key)
            .map(|(_, version, gone)| (*version, *gone))
            .collect()
    }

    /// Returns keys whose version ever decreased. A rewound store has some, and that is no fault of a
    /// mirror.
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
    fn held(&self) -> StoredVersion {
        StoredVersion { version: self.version, deleted: self.document.is_none() }
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
