//! Brings rows into the store: read, decide, write, read again.
//!
//! # What is true
//! - A row is done only when a read has seen it in the store; the store's response to the write is not
//!   enough.
//! - The store is read before the table: see `compare`.

use std::sync::Arc;

use super::compare::{Outcome, Step, Want, decide, is_seen};
use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use super::sets::Sets;
use super::target::{ItemError, Target, TargetError, Write};

/// A row to bring into the store.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) key: String,
    /// Write it even if the store has it.
    pub(super) force: bool,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Synced {
    /// Seen in the store, in this version or a newer one.
    Kept(Outcome),
    /// Written, and not seen yet; or changed meanwhile.
    Unseen,
    /// The set that is searched has it; the second set did not answer.
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

impl MirrorRuntime {
    /// Brings rows into every set that is written now. A row is kept when all of them have it. A second
    /// set that does not answer delays only the completion of the jobs.
    pub(super) async fn sync(
        &self,
        sets: &Sets,
        items: &[Item],
    ) -> Result<Vec<Synced>, MirrorError> {
        let mut results = self.sync_into(&sets.serving, items).await?;
        if let Some(second) = &sets.second {
            let others = match self.of_second(self.sync_into(second, items)).await {
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
    pub(super) async fn sync_into(
        &self,
        target: &Arc<dyn Target>,
        items: &[Item],
    ) -> Result<Vec<Synced>, MirrorError> {
        let keys: Vec<String> = items.iter().map(|item| item.key.clone()).collect();
        let held = self.call(target.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let mut rows = self.rows(&keys).await?;
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
                    rows[at] = self.raise(&item.key, rows[at], above).await?;
                    (why, false)
                }
            };
            if matches!(rows[at].want, Want::Document(_)) {
                wanted.push(item.key.clone());
            }
            plan.push((at, why, same_version));
        }
        let mut documents = self.documents(&wanted).await?;
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
            let answers = self.call(target.write(&writes)).await?;
            answered(answers.len(), writes.len())?;
            let mut look = Vec::with_capacity(writes.len());
            for ((write, (at, why)), answer) in writes.iter().zip(written).zip(answers) {
                match answer {
                    Ok(_) => look.push((at, why, write)),
                    Err(ItemError::Refused(why)) => results[at] = Some(Synced::Refused(why)),
                    Err(ItemError::Busy(why)) => results[at] = Some(Synced::Busy(why)),
                }
            }
            let keys: Vec<String> = look.iter().map(|(_, _, write)| write.key.clone()).collect();
            let held = self.call(target.held(&keys)).await?;
            answered(held.len(), keys.len())?;
            for ((at, why, write), held) in look.into_iter().zip(held) {
                if is_seen(write.version, write.document.is_none(), held) {
                    results[at] = Some(Synced::Kept(why));
                }
            }
        }
        Ok(results.into_iter().map(|result| result.unwrap_or(Synced::Unseen)).collect())
    }
}

/// Fails if the store returned another number of results than it was asked for: such results cannot be
/// trusted.
pub(super) fn answered(given: usize, asked: usize) -> Result<(), TargetError> {
    if given == asked {
        return Ok(());
    }
    Err(TargetError::Down(format!("it gave {given} answers for {asked} questions")))
}
