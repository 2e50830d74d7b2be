//! The index of a run, with a switch: switched off, it accepts every call and answers none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annotations::index::{
    Hits, OpenSearch, OpenSearchSettings, Query, SearchIndex, TantivyIndex, TantivySettings,
};
use anyhow::{Context, Result};
use clap::ValueEnum;
use futures_util::future::BoxFuture;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Targets, Tombstone, Write,
    Written,
};
use leasehold_testing::PrivateOpenSearch;
use leasehold_testing::opensearch::fresh_prefix;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A directory of this machine
    Tantivy,
    /// OpenSearch, over HTTP
    #[value(name = "opensearch")]
    OpenSearch,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tantivy => "tantivy",
            Self::OpenSearch => "opensearch",
        }
    }
}

pub struct Store {
    targets: Arc<dyn Targets>,
    search: Arc<dyn SearchIndex>,
    switch: Arc<Switch>,
    /// Stopped when the store is dropped.
    _private: Option<PrivateOpenSearch>,
}

#[derive(Default)]
struct Switch {
    away: AtomicBool,
    back: Notify,
    /// Number of documents and deletions stored.
    stored: AtomicU64,
}

impl Switch {
    /// Blocks while the store is down, like a server that does not respond; callers have their own
    /// timeouts.
    async fn pass(&self) {
        loop {
            let back = self.back.notified();
            if !self.away.load(Ordering::SeqCst) {
                return;
            }
            back.await;
        }
    }
}

impl Store {
    pub async fn open(kind: Kind, url: Option<&str>, dir: &Path) -> Result<Self> {
        let switch = Arc::default();
        if kind == Kind::Tantivy {
            let index = TantivyIndex::open(TantivySettings::new(dir)).await?;
            let (targets, search) = (Arc::new(index.clone()), Arc::new(index));
            return Ok(Self { targets, search, switch, _private: None });
        }
        let private = match url {
            Some(_) => None,
            None => Some(
                tokio::task::spawn_blocking(PrivateOpenSearch::start)
                    .await?
                    .context("no private OpenSearch; name another one with --opensearch-url")?,
            ),
        };
        let own = private.as_ref().map(PrivateOpenSearch::url);
        let url = url.map(str::to_owned).or(own).context("no OpenSearch")?;
        let index = OpenSearch::new(OpenSearchSettings::new(url, fresh_prefix()))?;
        let (targets, search) = (Arc::new(index.clone()), Arc::new(index));
        Ok(Self { targets, search, switch, _private: private })
    }

    pub fn take_away(&self) {
        self.switch.away.store(true, Ordering::SeqCst);
    }

    pub fn restore(&self) {
        self.switch.away.store(false, Ordering::SeqCst);
        self.switch.back.notify_waiters();
    }

    /// Returns the number of documents and deletions stored so far.
    pub fn stored(&self) -> u64 {
        self.switch.stored.load(Ordering::SeqCst)
    }

    /// Removes our sets from a server that outlives the run. The scratch directory removes itself.
    pub async fn remove(&self) {
        self.restore();
        if let Ok(last) = self.targets.current().await {
            // The searched set cannot be removed: an empty one replaces it first.
            if let Ok(empty) = self.targets.create().await {
                let _ = self.targets.swap(&empty).await;
                let _ = self.targets.remove(&last).await;
            }
        }
    }
}

impl SearchIndex for Store {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.search.search(query).await
        })
    }
}

impl Targets for Store {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.targets.current().await
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            let inner = self.targets.open(name).await?;
            let set = Set { inner, switch: Arc::clone(&self.switch) };
            Ok(Arc::new(set) as Arc<dyn Target>)
        })
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        self.targets.create()
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.targets.swap(to)
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.targets.remove(name)
    }
}

struct Set {
    inner: Arc<dyn Target>,
    switch: Arc<Switch>,
}

impl Target for Set {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.inner.held(keys).await
        })
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            let answers = self.inner.write(writes).await?;
            let stored = answers.iter().filter(|answer| **answer == Ok(Written::Stored)).count();
            self.switch.stored.fetch_add(stored as u64, Ordering::SeqCst);
            Ok(answers)
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.inner.digest(range).await
        })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.inner.list(range, most).await
        })
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            self.switch.pass().await;
            self.inner.forget(deletions).await
        })
    }
}
