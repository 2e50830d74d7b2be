//! Changes to a set, one batch after another.
//!
//! # Invariants
//! - Versions are compared and written under one lock, so that of two writes of a key the newer one
//!   stays, whichever came first.
//! - A caller gets its result after the commit that has the change: it is on disk, and searches see it.
//! - Callers that meet at the lock share one commit: the one that gets the lock makes the changes of
//!   all.
//!
//! # What can go wrong
//! - The disk is full, or a commit fails: every caller gets an error, and the next batch begins with a
//!   new writer at the last commit.
//! - Callers time out while the disk hangs: the queue is bounded, and further changes are refused.

use std::collections::HashMap;

use jiff::Timestamp;
use leasehold::mirror::{ItemError, StoredVersion, TargetError, Tombstone, Write, Written};
use parking_lot::Mutex;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy};
use tantivy::{Index, IndexWriter, Term};
use tokio::sync::oneshot;

use super::directory::GroupSync;
use super::fields::Fields;
use super::snapshot::Snapshot;
use crate::index::document::Checked;

/// The result of each write of one caller.
pub type WriteResults = Vec<Result<Written, ItemError>>;
pub type BatchResult = Result<WriteResults, TargetError>;

/// A segment is written when it has grown to this, or at a commit.
const MEMORY: usize = 32 << 20;
/// Documents that may wait for the lock.
const WAITING: usize = 50_000;
/// A segment is merged again when this part of it is old copies.
const OLD_COPIES: f32 = 0.3;

pub enum Change {
    Write(Vec<Write>),
    Forget(Vec<Tombstone>),
}

impl Change {
    fn len(&self) -> usize {
        match self {
            Self::Write(writes) => writes.len(),
            Self::Forget(deletions) => deletions.len(),
        }
    }

    fn keys(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Write(writes) => Box::new(writes.iter().map(|write| write.key.as_str())),
            Self::Forget(deletions) => Box::new(deletions.iter().map(|gone| gone.key.as_str())),
        }
    }
}

pub struct Waiting {
    pub change: Change,
    pub answer: oneshot::Sender<BatchResult>,
}

/// Changes that wait for the lock.
#[derive(Default)]
pub struct Queue(Mutex<Vec<Waiting>>);

impl Queue {
    pub fn push(&self, change: Change) -> Result<oneshot::Receiver<BatchResult>, TargetError> {
        let mut waiting = self.0.lock();
        let before: usize = waiting.iter().map(|waiting| waiting.change.len()).sum();
        if before > 0 && before + change.len() > WAITING {
            return Err(TargetError::Overloaded(format!("{before} documents wait to be written")));
        }
        let (answer, receiver) = oneshot::channel();
        waiting.push(Waiting { change, answer });
        Ok(receiver)
    }

    pub fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The writer of a set; its lock serializes all changes.
#[derive(Default)]
pub struct Writer {
    /// `None`: not open. Also after a failure: what it had not committed must not slip into the next
    /// commit, where a key would then have two copies.
    open: Option<IndexWriter>,
}

impl Writer {
    /// Waits for running merges: they would create files after the set was removed.
    pub fn close(&mut self) {
        if let Some(writer) = self.open.take()
            && let Err(error) = writer.wait_merging_threads()
        {
            tracing::debug!(%error, "a merge failed in a set that is being removed");
        }
    }

    /// Makes the changes in one commit. Returns true if there was something to commit.
    pub fn apply(
        &mut self,
        (index, directory): (&Index, &GroupSync),
        fields: &Fields,
        before: &Snapshot,
        changes: &[Waiting],
    ) -> tantivy::Result<(Vec<WriteResults>, bool)> {
        let mut writer = match self.open.take() {
            Some(writer) => writer,
            None => {
                directory.begin();
                open(index)?
            }
        };
        let mut held: HashMap<&str, Option<StoredVersion>> = HashMap::new();
        for key in changes.iter().flat_map(|waiting| waiting.change.keys()) {
            if !held.contains_key(key) {
                held.insert(key, before.held(key)?);
            }
        }
        let mut batch = Batch { writer: &writer, fields, held, changed: false };
        let mut answers = Vec::with_capacity(changes.len());
        for waiting in changes {
            answers.push(match &waiting.change {
                Change::Write(writes) => writes
                    .iter()
                    .map(|write| batch.write(write))
                    .collect::<tantivy::Result<Vec<_>>>()?,
                Change::Forget(deletions) => {
                    deletions.iter().for_each(|gone| batch.forget(gone));
                    Vec::new()
                }
            });
        }
        let changed = batch.changed;
        if changed {
            writer.commit()?;
        }
        self.open = Some(writer);
        Ok((answers, changed))
    }
}

struct Batch<'a> {
    writer: &'a IndexWriter,
    fields: &'a Fields,
    held: HashMap<&'a str, Option<StoredVersion>>,
    changed: bool,
}

impl<'a> Batch<'a> {
    fn write(&mut self, write: &'a Write) -> tantivy::Result<Result<Written, ItemError>> {
        let checked = match Checked::new(write) {
            Ok(checked) => checked,
            Err(refused) => return Ok(Err(refused)),
        };
        let before = self.held.get(checked.key).copied().flatten();
        if !is_newer(before, &checked) {
            return Ok(Ok(Written::Newer));
        }
        self.remove(checked.key, before);
        let now = Timestamp::now().as_microsecond();
        self.writer.add_document(self.fields.document(&checked, now))?;
        self.changed = true;
        let held = StoredVersion { version: checked.version, deleted: checked.document.is_none() };
        self.held.insert(&write.key, Some(held));
        Ok(Ok(Written::Stored))
    }

    fn forget(&mut self, gone: &'a Tombstone) {
        let before = self.held.get(gone.key.as_str()).copied().flatten();
        if before.is_some_and(|held| held.deleted && held.version <= gone.version) {
            self.remove(&gone.key, before);
            self.held.insert(&gone.key, None);
        }
    }

    /// Deletes the old copy of a key, which would otherwise stay beside the new one.
    fn remove(&mut self, key: &str, before: Option<StoredVersion>) {
        // Every deletion searches all segments, so skip keys that are in none.
        if before.is_some() {
            self.writer.delete_term(Term::from_field_text(self.fields.key, key));
            self.changed = true;
        }
    }
}

/// Returns whether a write changes what is there.
fn is_newer(before: Option<StoredVersion>, write: &Checked<'_>) -> bool {
    before.is_none_or(|held| {
        write.version > held.version || (write.forced && write.version == held.version)
    })
}

fn open(index: &Index) -> tantivy::Result<IndexWriter> {
    let options = IndexWriterOptions::builder()
        .num_worker_threads(1)
        .memory_budget_per_thread(MEMORY)
        .num_merge_threads(1)
        .build();
    let writer = index.writer_with_options(options)?;
    let mut policy = LogMergePolicy::default();
    policy.set_del_docs_ratio_before_merge(OLD_COPIES);
    writer.set_merge_policy(Box::new(policy));
    Ok(writer)
}
