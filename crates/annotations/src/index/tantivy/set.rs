//! One set of documents: a sub-directory that tantivy manages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Tombstone, Write, Written,
};
use parking_lot::Mutex;
use tantivy::{Index, IndexReader, IndexSettings, ReloadPolicy};

use super::background::BackgroundThread;
use super::directory::GroupSync;
use super::fields::Fields;
use super::root::Root;
use super::snapshot::Snapshot;
use super::top::Newest;
use super::writer::{Change, Queue, Writer};
use super::{broken, find, private, words};
use crate::index::query::{Hits, Query};

/// Documents that are copied before this task yields.
const AT_ONCE: usize = 64;

/// An open set. Clones share it.
#[derive(Clone)]
pub struct TantivySet(Arc<Inner>);

struct Inner {
    name: String,
    index: Index,
    directory: GroupSync,
    reader: IndexReader,
    fields: Fields,
    /// Columns of the last commit that was read.
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    queue: Queue,
    writer: Arc<tokio::sync::Mutex<Writer>>,
    /// `None`: another process is the writer.
    background: Option<BackgroundThread>,
    removed: AtomicBool,
    limit: Duration,
}

impl TantivySet {
    /// Opens a set. The writer creates an empty one if there is none that can be read. Blocks.
    pub fn open(root: &Root, name: &str, limit: Duration) -> Result<Self, TargetError> {
        let is_writer = root.is_writer().map_err(broken)?;
        let fields = Fields::new();
        let dir = root.set_dir(name);
        let there = dir.join("meta.json").is_file();
        let (index, directory) = match Self::read(&dir, &fields) {
            Ok(read) => read,
            Err(why) if !is_writer => return Err(why),
            Err(why) => {
                if root.has(name) {
                    root.quarantine(name).map_err(broken)?;
                }
                if there {
                    tracing::error!(
                        dir = %dir.display(),
                        "{why}; the set was moved to `broken`, and the mirror fills an empty one"
                    );
                }
                private::make_dir(&dir).map_err(broken)?;
                let directory = GroupSync::open(&dir).map_err(broken)?;
                let (schema, settings) = (fields.schema.clone(), IndexSettings::default());
                let index = Index::create(directory.clone(), schema, settings).map_err(broken)?;
                (index, directory)
            }
        };
        index.tokenizers().register(words::WORDS, words::analyzer());
        let reload = if is_writer { ReloadPolicy::Manual } else { ReloadPolicy::OnCommitWithDelay };
        let reader = index.reader_builder().reload_policy(reload).try_into().map_err(broken)?;
        let background =
            if is_writer { Some(BackgroundThread::start().map_err(broken)?) } else { None };
        Ok(Self(Arc::new(Inner {
            name: name.to_owned(),
            index,
            directory,
            reader,
            fields,
            snapshot: Mutex::new(None),
            queue: Queue::default(),
            writer: Arc::default(),
            background,
            removed: AtomicBool::new(false),
            limit,
        })))
    }

    /// Opens a set that can be trusted: it has these fields, all files, and every checksum is right.
    fn read(dir: &std::path::Path, fields: &Fields) -> Result<(Index, GroupSync), TargetError> {
        let directory = GroupSync::open(dir).map_err(broken)?;
        let index = Index::open(directory.clone()).map_err(broken)?;
        if index.schema() != fields.schema {
            return Err(TargetError::Down("the index has other fields".to_owned()));
        }
        let damaged = index.validate_checksum().map_err(broken)?;
        match damaged.iter().next() {
            None => Ok((index, directory)),
            Some(file) => Err(TargetError::Down(format!(
                "{} of {} is damaged",
                file.display(),
                dir.display()
            ))),
        }
    }

    pub fn is_writer(&self) -> bool {
        self.0.background.is_some()
    }

    /// Stops all writes to the set, and waits for merges in its directory. Blocks.
    pub fn abandon(&self) {
        self.0.removed.store(true, Ordering::SeqCst);
        self.0.writer.blocking_lock().close();
    }

    pub async fn search(&self, query: &Query) -> Result<Hits, TargetError> {
        let query = query.clone();
        self.read_by(move |inner, snapshot| {
            let newest = Newest { size: query.size(), after: query.after.clone() };
            let asked = find::question(&inner.fields, &query);
            let hits = snapshot.searcher.search(&*asked, &newest)?;
            Ok(Hits::new(hits, query.size()))
        })
        .await
    }

    /// Reads one commit on a blocking thread.
    async fn read_by<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Inner, &Snapshot) -> tantivy::Result<T> + Send + 'static,
    ) -> Result<T, TargetError> {
        let inner = Arc::clone(&self.0);
        let limit = inner.limit;
        blocking(limit, move || {
            let snapshot = inner.snapshot()?;
            read(&inner, &snapshot).map_err(broken)
        })
        .await
    }

    async fn change(&self, change: Change) -> super::writer::BatchResult {
        let inner = Arc::clone(&self.0);
        if inner.removed.load(Ordering::SeqCst) {
            return Err(removed(&inner.name));
        }
        if inner.background.is_none() {
            return Err(TargetError::Down(
                "another process writes this index; this one only reads it".to_owned(),
            ));
        }
        let limit = inner.limit;
        let mut answer = inner.queue.push(change)?;
        let work = async move {
            let mut writer = Arc::clone(&inner.writer).lock_owned().await;
            // Checked again under the lock: a new writer would create files in a directory that is being
            // removed.
            if inner.removed.load(Ordering::SeqCst) {
                return Err(removed(&inner.name));
            }
            // The previous holder of the lock may have made this change.
            if let Ok(answer) = answer.try_recv() {
                return answer;
            }
            if let Some(background) = &inner.background {
                let inner = Arc::clone(&inner);
                background.run(move || inner.work(&mut writer)).await;
            }
            let lost = || TargetError::Down("the index failed while writing".to_owned());
            answer.try_recv().unwrap_or_else(|_| Err(lost()))
        };
        tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(too_slow(limit)))
    }
}

impl Inner {
    fn snapshot(&self) -> Result<Arc<Snapshot>, TargetError> {
        let searcher = self.reader.searcher();
        let mut kept = self.snapshot.lock();
        if let Some(snapshot) = kept.as_ref()
            && snapshot.number() == searcher.generation().generation_id()
        {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = Arc::new(Snapshot::new(searcher, self.fields.key).map_err(broken)?);
        *kept = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// Makes all pending changes, and sends every caller its result.
    fn work(&self, writer: &mut Writer) {
        let waiting = self.queue.take();
        let done = self.snapshot().and_then(|before| {
            let (answers, changed) = writer
                .apply((&self.index, &self.directory), &self.fields, &before, &waiting)
                .map_err(broken)?;
            if changed {
                // Before the callers get their results: what was written must be readable.
                self.reader.reload().map_err(broken)?;
            }
            Ok(answers)
        });
        match done {
            Ok(answers) => {
                for (waiting, answer) in waiting.into_iter().zip(answers) {
                    // The receiver is gone if the caller cancelled.
                    let _ = waiting.answer.send(Ok(answer));
                }
            }
            Err(error) => {
                // The commit may have succeeded despite the error: read what is stored.
                let _ = self.reader.reload();
                for waiting in waiting {
                    let _ = waiting.answer.send(Err(error.clone()));
                }
            }
        }
    }
}

impl Target for TantivySet {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        let keys = keys.to_vec();
        Box::pin(self.read_by(move |_, snapshot| snapshot.held_all(keys)))
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move {
            if writes.is_empty() {
                return Ok(Vec::new());
            }
            let mut own = Vec::with_capacity(writes.len());
            for some in writes.chunks(AT_ONCE) {
                own.extend_from_slice(some);
                tokio::task::yield_now().await;
            }
            self.change(Change::Write(own)).await
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        let range = range.clone();
        Box::pin(self.read_by(move |_, snapshot| snapshot.digest(&range)))
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        let range = range.clone();
        Box::pin(self.read_by(move |_, snapshot| snapshot.list(&range, most)))
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            if !deletions.is_empty() {
                self.change(Change::Forget(deletions.to_vec())).await?;
            }
            Ok(())
        })
    }
}

/// Runs blocking work outside the executor. A panic, which damage can cause, becomes an error.
pub(super) async fn blocking<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, TargetError> + Send + 'static,
) -> Result<T, TargetError> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => Err(TargetError::Down(format!("the index failed: {panic}"))),
        Err(_) => Err(too_slow(limit)),
    }
}

fn removed(name: &str) -> TargetError {
    TargetError::Down(format!("the set {name} was removed"))
}

fn too_slow(limit: Duration) -> TargetError {
    TargetError::Overloaded(format!("no response within {} s", limit.as_secs()))
}
