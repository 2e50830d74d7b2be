//! An index in a local directory, by tantivy: it needs no server.
//!
//! # Invariants
//! - One process writes at a time. Another one that opens the directory reads it, follows what the first
//!   one commits, and becomes the writer when the first one has ended.
//! - A write that was acknowledged is on disk, and the next search sees it.
//! - A swap is the rename of one small file.
//! - No other user of the machine can read the index: directories have mode 700, files 600.
//! - The writer decides which set is searched: a search in a directory without a set fails, and creates
//!   none. Such a set would stay empty while another one is filled.
//!
//! # What can go wrong
//! - The directory is lost or damaged: the damaged set is moved to `broken`, an empty one takes its
//!   name, and the mirror's check fills it again.
//! - A file is damaged while the set is open: the call fails, and the next start detects it.

mod background;
mod directory;
mod fields;
mod find;
mod handle;
mod private;
mod root;
mod set;
mod snapshot;
mod top;
mod words;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::mirror::{Target, TargetError, Targets};
use parking_lot::Mutex;

use super::SearchIndex;
use super::query::{Hits, Query};
use handle::Handle;
pub use private::is_open_to_others;
use root::Root;
pub use set::TantivySet;
use set::blocking;

/// The settings of an index in a directory.
#[derive(Clone, Debug)]
pub struct TantivySettings {
    /// Created if it does not exist.
    pub dir: PathBuf,
    /// Time limit of one call. Longer: calls wait for a slow disk. Shorter: callers learn sooner that it
    /// is slow; what they sent may still be written.
    ///
    /// Default: 30 s.
    pub limit: Duration,
    /// Whether this process may become the writer. False for a process that runs no index jobs: it would
    /// keep out those that do.
    ///
    /// Default: true.
    pub may_write: bool,
}

impl TantivySettings {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), limit: Duration::from_secs(30), may_write: true }
    }
}

/// An index in a directory. Clones share it.
#[derive(Clone)]
pub struct TantivyIndex(Arc<Inner>);

struct Inner {
    root: Root,
    limit: Duration,
    open: Mutex<HashMap<String, TantivySet>>,
    /// A caller that still has one of these must not create it again.
    removed: Mutex<HashSet<String>>,
}

impl TantivyIndex {
    /// Opens the directory, and the set that is searched if there is one.
    pub async fn open(settings: TantivySettings) -> Result<Self, TargetError> {
        let TantivySettings { dir, limit, may_write } = settings;
        // Checksums of a large index take a while.
        let longest = limit.max(Duration::from_secs(600));
        blocking(longest, move || {
            let root = Root::open(dir, may_write).map_err(broken)?;
            let (open, removed) = (Mutex::default(), Mutex::default());
            let inner = Inner { root, limit, open, removed };
            if let Some(name) = inner.root.current().map_err(broken)? {
                inner.set(&name)?;
            }
            Ok(Self(Arc::new(inner)))
        })
        .await
    }

    /// Returns whether this process is the writer. Only the writer runs index jobs.
    pub fn is_writer(&self) -> bool {
        self.0.root.is_writer().unwrap_or(false)
    }

    /// Returns the identity of the index, independent of its place. The writer of a new index creates
    /// it; `None`: not yet.
    pub async fn identity(&self) -> Result<Option<String>, TargetError> {
        self.run(|inner| inner.root.identity().map_err(broken)).await
    }

    /// Returns a set by its name.
    pub async fn set(&self, name: &str) -> Result<TantivySet, TargetError> {
        if let Some(set) = self.0.ready(name)? {
            return Ok(set);
        }
        let name = name.to_owned();
        self.run(move |inner| inner.set(&name)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, TargetError> + Send + 'static,
    ) -> Result<T, TargetError> {
        let inner = Arc::clone(&self.0);
        blocking(inner.limit, move || work(&inner)).await
    }
}

impl Inner {
    /// Returns the name of the current set. The writer creates one if there is none.
    fn current(&self) -> Result<String, TargetError> {
        if let Some(name) = self.root.current().map_err(broken)? {
            return Ok(name);
        }
        if !self.root.is_writer().map_err(broken)? {
            return Err(TargetError::Down("another process creates the index".to_owned()));
        }
        let name = match self.root.newest_name().map_err(broken)? {
            Some(newest) => newest,
            None => self.root.fresh_name().map_err(broken)?,
        };
        self.set(&name)?;
        self.root.point(&name).map_err(broken)?;
        Ok(name)
    }

    fn searched(&self) -> Result<TantivySet, TargetError> {
        match self.root.current().map_err(broken)? {
            Some(name) => self.set(&name),
            None => Err(TargetError::Down("the index has no set yet".to_owned())),
        }
    }

    /// Returns a set if it is already open. Does not wait while another set is being opened.
    fn ready(&self, name: &str) -> Result<Option<TantivySet>, TargetError> {
        let is_writer = self.root.is_writer().map_err(broken)?;
        let Some(open) = self.open.try_lock() else { return Ok(None) };
        // A set that was opened for reading, before this process became the writer, must be opened
        // again.
        Ok(open.get(name).filter(|set| set.is_writer() == is_writer).cloned())
    }

    fn set(&self, name: &str) -> Result<TantivySet, TargetError> {
        if !root::is_name(name) {
            return Err(TargetError::Down(format!("there is no set {name:?}")));
        }
        let is_writer = self.root.is_writer().map_err(broken)?;
        let mut open = self.open.lock();
        if let Some(set) = open.get(name).filter(|set| set.is_writer() == is_writer) {
            return Ok(set.clone());
        }
        if self.removed.lock().contains(name) {
            return Err(TargetError::Down(format!("the set {name} was removed")));
        }
        open.remove(name);
        let set = TantivySet::open(&self.root, name, self.limit)?;
        open.insert(name.to_owned(), set.clone());
        Ok(set)
    }

    fn is_writer(&self) -> Result<bool, TargetError> {
        self.root.is_writer().map_err(broken)
    }

    fn must_write(&self) -> Result<(), TargetError> {
        if self.is_writer()? {
            return Ok(());
        }
        Err(TargetError::Down("another process writes this index".to_owned()))
    }
}

impl Targets for TantivyIndex {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(self.run(Inner::current))
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Box::pin(async move {
            self.set(name).await?;
            let name = name.to_owned();
            let handle = Handle { index: self.clone(), name: name.clone() };
            // If the directory was lost, the writer still knows the name of the current set.
            self.run(move |inner| {
                if inner.root.current().map_err(broken)?.is_none() && inner.is_writer()? {
                    inner.root.point(&name).map_err(broken)?;
                }
                Ok(())
            })
            .await?;
            Ok(Arc::new(handle) as Arc<dyn Target>)
        })
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(self.run(|inner| {
            inner.must_write()?;
            let name = inner.root.fresh_name().map_err(broken)?;
            inner.set(&name)?;
            Ok(name)
        }))
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        let to = to.to_owned();
        Box::pin(self.run(move |inner| {
            inner.must_write()?;
            if !root::is_name(&to) || !inner.root.has(&to) {
                return Err(TargetError::Down(format!("there is no set {to:?}")));
            }
            // Opened first: if it cannot be read, the swap fails, and not the searches.
            inner.set(&to)?;
            inner.root.point(&to).map_err(broken)
        }))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        let name = name.to_owned();
        Box::pin(self.run(move |inner| {
            inner.must_write()?;
            if !root::is_name(&name) {
                return Ok(());
            }
            if inner.root.current().map_err(broken)?.as_deref() == Some(name.as_str()) {
                return Err(TargetError::Down(format!(
                    "searches use the set {name}; swap to another one before you remove it"
                )));
            }
            inner.removed.lock().insert(name.clone());
            let open = inner.open.lock().remove(&name);
            if let Some(set) = open {
                set.abandon();
            }
            inner.root.remove(&name).map_err(broken)
        }))
    }
}

impl SearchIndex for TantivyIndex {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        Box::pin(async move {
            let set = self.run(Inner::searched).await?;
            set.search(query).await
        })
    }
}

fn broken(error: impl std::fmt::Display) -> TargetError {
    TargetError::Down(error.to_string())
}
