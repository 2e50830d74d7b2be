//! Bringing rows into the store: look, decide, write, look again.
//!
//! # What is true
//! - Only what is seen afterwards counts as done; the store's own word for a write does not.
//! - The store is asked before the table: see `compare`.

use std::sync::Arc;

use super::compare::{Outcome, Step, Want, decide, is_seen};
use super::desk::Desk;
use super::prepare::MirrorError;
use super::sets::Sets;
use super::target::{ItemError, Target, TargetError, Write};

/// A row to bring into the store.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) key: String,
    /// Written even where the store has it.
    pub(super) force: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Seen in the store, in this version or a newer one.
    Kept(Outcome),
    /// Written, and not seen yet; or changed while we were at it.
    Unseen,
    /// The set that is searched has it; the second one did not answer.
    Behind(String),
    /// Not stored; may be another time.
    Busy(String),
    /// Will never be stored as it is.
    Refused(String),
}

impl Fate {
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

impl Desk {
    /// Brings rows into every set that is written now. A row is kept when all of them have it. A second
    /// set that does not answer holds up the ends of the jobs, and nothing else.
    pub(super) async fn sync(&self, sets: &Sets, items: &[Item]) -> Result<Vec<Fate>, MirrorError> {
        let mut fates = self.sync_into(&sets.serving, items).await?;
        if let Some(second) = &sets.second {
            let others = match self.of_second(self.sync_into(second, items)).await {
                Err(MirrorError::Target(error)) => {
                    vec![Fate::Behind(format!("the second set: {error}")); items.len()]
                }
                others => others?,
            };
            for (fate, other) in fates.iter_mut().zip(others) {
                if other.weight() > fate.weight() {
                    *fate = other;
                }
            }
        }
        Ok(fates)
    }

    /// Brings rows into one set.
    pub(super) async fn sync_into(
        &self,
        target: &Arc<dyn Target>,
        items: &[Item],
    ) -> Result<Vec<Fate>, MirrorError> {
        let keys: Vec<String> = items.iter().map(|item| item.key.clone()).collect();
        let held = self.call(target.held(&keys)).await?;
        answered(held.len(), keys.len())?;
        let mut rows = self.rows(&keys).await?;
        let mut fates: Vec<Option<Fate>> = vec![None; items.len()];
        let mut plan = Vec::new();
        let mut wanted = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let (why, same_version) = match decide(rows[at].want, held[at], item.force) {
                Step::Equal(outcome) => {
                    fates[at] = Some(Fate::Kept(outcome));
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
                        fates[at] = Some(Fate::Busy(why));
                        continue;
                    }
                    // Deleted since we looked: that change has a job of its own.
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
                    Err(ItemError::Refused(why)) => fates[at] = Some(Fate::Refused(why)),
                    Err(ItemError::Busy(why)) => fates[at] = Some(Fate::Busy(why)),
                }
            }
            let keys: Vec<String> = look.iter().map(|(_, _, write)| write.key.clone()).collect();
            let held = self.call(target.held(&keys)).await?;
            answered(held.len(), keys.len())?;
            for ((at, why, write), held) in look.into_iter().zip(held) {
                if is_seen(write.version, write.document.is_none(), held) {
                    fates[at] = Some(Fate::Kept(why));
                }
            }
        }
        Ok(fates.into_iter().map(|fate| fate.unwrap_or(Fate::Unseen)).collect())
    }
}

/// A store that answers for other keys than it was asked for is not to be trusted.
pub(super) fn answered(given: usize, asked: usize) -> Result<(), TargetError> {
    if given == asked {
        return Ok(());
    }
    Err(TargetError::Down(format!("it gave {given} answers for {asked} questions")))
}
