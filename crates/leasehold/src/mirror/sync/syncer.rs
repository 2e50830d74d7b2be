//! Brings rows into the store: read, decide, write, read again.
//!
//! # Invariants
//! - A row is done only when a read has seen it in the store; the store's response to the write is not
//!   enough.
//! - The store is read before the table: see `compare`.

use std::sync::Arc;

use super::compare::{Outcome, Step, Want, decide, is_seen};
use super::source::Source;
use super::store_calls::{StoreCalls, answered};
use crate::mirror::MirrorError;
use crate::mirror::sets::{ItemError, SetStore, Sets, Target, Write};

/// A row to bring into the store.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: String,
    /// Write it even if the store has it.
    pub(crate) force: bool,
}

/// The result of bringing one row into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    /// Seen in the store, in this version or a newer one.
    Kept(Outcome),
    /// Written, and not seen yet; or changed meanwhile.
    Unseen,
    /// The set that is searched has it; the second set did not respond.
    Behind(String),
    /// Not stored; a retry may succeed.
    Busy(String),
    /// Will never be stored as it is.
    Refused(String),
}

impl Synced {
    fn weight(&self) -> u8 {
        match self {
            Self::Kept(_) => 0,
            Self::Behind(_) => 1,
            Self::Unseen => 2,
            Self::Busy(_) => 3,
            Self::Refused(_) => 4,
        }
    }
}

/// Brings rows into sets.
pub(crate) struct Syncer {
    source: Arc<Source>,
    calls: Arc<StoreCalls>,
    sets: Arc<SetStore>,
}

impl Syncer {
    pub(crate) fn new(source: &Arc<Source>, calls: &Arc<StoreCalls>, sets: &Arc<SetStore>) -> Self {
        Self { source: Arc::clone(source), calls: Arc::clone(calls), sets: Arc::clone(sets) }
    }

    /// Brings rows into every set that is written now. A row is kept when all of them have it. A second
    /// set that does not respond delays only the completion of the jobs.
    pub(crate) async fn sync(
        &self,
        sets: &Sets,
        items: &[Item],
    ) -> Result<Vec<Synced>, MirrorError> {
        let mut results = self.sync_into(&sets.serving, items).await?;
        if let Some(second) = &sets.second {
            let others = match self.sets.of_second(self.sync_into(second, items)).await {
                Err(MirrorError::Target(error)) => {
                    vec![Synced::Behind(format!("the second set: {error}")); items.len()]
                }
                others => others?,
            };
            for (result, other) in results.iter_mut().zip(others) {
                if other.weight() > result.weight() {
                    *result = other;
                }
            }
        }
        Ok(results)
    }

    /// Brings rows into one set.
    pub(crate) async fn sync_into(
        &self,
        target: &Arc<dyn Target>,
        items: &[Item],
    ) -> Result<Vec<Synced>, MirrorError> {
        let keys: Vec<String> = items.iter().map(|item| item.key.clone()).collect();
        let held = self.calls.call(target.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let mut rows = self.source.rows(&keys).await?;
        let mut results: Vec<Option<Synced>> = vec![None; items.len()];
        let mut plan = Vec::new();
        let mut wanted = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let (why, same_version) = match decide(rows[at].want, held[at], item.force) {
                Step::Equal(outcome) => {
                    results[at] = Some(Synced::Kept(outcome));
                    continue;
                }
                Step::Write { why, same_version } => (why, same_version),
                Step::Raise { above, why } => {
                    rows[at] = self.source.raise(&item.key, rows[at], above).await?;
                    (why, false)
                }
            };
            if matches!(rows[at].want, Want::Document(_)) {
                wanted.push(item.key.clone());
            }
            plan.push((at, why, same_version));
        }
        let mut documents = self.source.documents(&wanted).await?;
        let mut writes = Vec::with_capacity(plan.len());
        let mut written = Vec::with_capacity(plan.len());
        for (at, why, forced) in plan {
            let key = keys[at].clone();
            let write = match rows[at].want {
                Want::Document(_) => match documents.remove(&key) {
                    Some(Ok((version, document))) => {
                        Write { key, version, document: Some(document), forced }
                    }
                    Some(Err(why)) => {
                        results[at] = Some(Synced::Busy(why));
                        continue;
                    }
                    // Deleted since it was read: that change has its own job.
                    None => continue,
                },
                Want::Gone(Some(version)) => Write { key, version, document: None, forced },
                Want::Gone(None) => continue,
            };
            writes.push(write);
            written.push((at, why));
        }
        if !writes.is_empty() {
            let answers = self.calls.call(target.write(&writes)).await?;
            answered(answers.len(), writes.len())?;
            let mut sent = Vec::with_capacity(writes.len());
            for ((write, (at, why)), answer) in writes.iter().zip(written).zip(answers) {
                match answer {
                    Ok(_) => sent.push((at, why, write)),
                    Err(ItemError::Refused(why)) => results[at] = Some(Synced::Refused(why)),
                    Err(ItemError::Busy(why)) => results[at] = Some(Synced::Busy(why)),
                }
            }
            let keys: Vec<String> = sent.iter().map(|(_, _, write)| write.key.clone()).collect();
            let held = self.calls.call(target.held(&keys)).await?;
            answered(held.len(), keys.len())?;
            for ((at, why, write), held) in sent.into_iter().zip(held) {
                if is_seen(write.version, write.document.is_none(), held) {
                    results[at] = Some(Synced::Kept(why));
                }
            }
        }
        Ok(results.into_iter().map(|result| result.unwrap_or(Synced::Unseen)).collect())
    }
}
