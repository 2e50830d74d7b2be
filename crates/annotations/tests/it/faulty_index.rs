//! An index of either kind that fails when a test wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use annotations::index::{
    Hits, OpenSearch, OpenSearchSettings, Query, SearchIndex, TantivyIndex, TantivySettings,
};
use futures_util::future::BoxFuture;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Targets, Tombstone, Write,
    Written,
};
use leasehold_testing::opensearch::fresh_prefix;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fault_proxy::{Fault, FaultProxy};
use crate::index_kind::{IndexKind, TempDir};

/// Time limit of one call, on a machine that runs all other tests at the same time.
const LIMIT: Duration = Duration::from_secs(120);

/// What the service needs of an index.
trait Store: SearchIndex + Targets {}

impl<T: SearchIndex + Targets> Store for T {}

/// An index that a test can take down and start again. With `gossip` it returns every note that it has
/// for every query.
pub struct FaultyIndex {
    inner: Arc<dyn Store>,
    /// The directory of a local index, kept until the end.
    _dir: Option<TempDir>,
    /// The proxy of an index in a server.
    proxy: Option<FaultProxy>,
    down: Arc<AtomicBool>,
    gossip: AtomicBool,
    hanging: AtomicBool,
    asked: AtomicUsize,
    abandoned: AtomicUsize,
    /// The next swap waits.
    swap_waits: AtomicBool,
    at_swap: Notify,
    may_swap: Notify,
}

/// A query without an answer; counts when its caller cancels.
struct Open<'a>(&'a AtomicUsize);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl FaultyIndex {
    pub async fn open(kind: IndexKind) -> Self {
        let (inner, dir, proxy): (Arc<dyn Store>, _, _) = match kind {
            IndexKind::Tantivy => {
                let dir = TempDir::new();
                let settings = TantivySettings { limit: LIMIT, ..TantivySettings::new(dir.path()) };
                let index = TantivyIndex::open(settings).await.unwrap();
                (Arc::new(index), Some(dir), None)
            }
            IndexKind::OpenSearch => {
                let proxy = FaultProxy::open().await;
                let settings = OpenSearchSettings::new(&proxy.url, fresh_prefix());
                let settings = OpenSearchSettings { limit: LIMIT, ..settings };
                (Arc::new(OpenSearch::new(settings).unwrap()), None, Some(proxy))
            }
        };
        // Created here, because the service waits for a new index no longer than for any other.
        inner.current().await.unwrap();
        Self {
            inner,
            _dir: dir,
            proxy,
            down: Arc::default(),
            gossip: AtomicBool::new(false),
            hanging: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            swap_waits: AtomicBool::new(false),
            at_swap: Notify::new(),
            may_swap: Notify::new(),
        }
    }

    /// Makes the next swap wait for [`FaultyIndex::let_swap`].
    pub fn hold_swap(&self) {
        self.swap_waits.store(true, Ordering::SeqCst);
    }

    /// Waits until a swap is about to happen.
    pub async fn at_swap(&self) {
        self.at_swap.notified().await;
    }

    pub fn let_swap(&self) {
        self.may_swap.notify_one();
    }

    /// A server becomes unreachable; a directory returns errors.
    pub fn set_down(&self, down: bool) {
        match &self.proxy {
            Some(proxy) => proxy.hold(down.then_some(Fault::Status(503, "<html>not now</html>"))),
            None => self.down.store(down, Ordering::SeqCst),
        }
    }

    /// A server executes requests, and its responses are lost. A directory cannot fail in this way.
    pub fn set_answers_lost(&self, lost: bool) {
        if let Some(proxy) = &self.proxy {
            proxy.hold(lost.then_some(Fault::LoseAnswer));
        }
    }

    pub fn set_gossip(&self, gossip: bool) {
        self.gossip.store(gossip, Ordering::SeqCst);
    }

    /// Searches get no answer.
    pub fn set_hanging(&self, hanging: bool) {
        self.hanging.store(hanging, Ordering::SeqCst);
    }

    /// Returns false while a test makes it fail.
    pub fn is_well(&self) -> bool {
        let is_held = self.proxy.as_ref().is_some_and(FaultProxy::is_held);
        !is_held && !self.down.load(Ordering::SeqCst) && !self.hanging.load(Ordering::SeqCst)
    }

    /// Returns how many searches came.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns how many unanswered searches their callers cancelled.
    pub fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::SeqCst)
    }

    /// Returns the ids that the index itself finds, without a check of who may see them.
    pub async fn ids(&self, query: Query) -> Vec<String> {
        let found = self.inner.search(&Query { limit: 200, ..query }).await.unwrap();
        found.hits.into_iter().map(|hit| hit.id).collect()
    }

    /// Returns the digest of all documents of the index.
    pub async fn digest(&self) -> Result<Digest, TargetError> {
        let set = self.inner.open(&self.inner.current().await?).await?;
        set.digest(&Range::default()).await
    }

    /// Removes a document without the mirror's knowledge, and writes another one in its place.
    pub async fn tamper(&self, key: &str, other: Option<(i64, Value)>) {
        let name = self.inner.current().await.unwrap();
        let set = self.inner.open(&name).await.unwrap();
        if let Some(proxy) = &self.proxy {
            // Otherwise OpenSearch itself remembers the removed version for a minute.
            let settings = json!({ "index": { "gc_deletes": "0ms" } }).to_string();
            let request =
                leasehold_testing::http::client().put(format!("{}/{name}/_settings", proxy.url));
            let request = request.header("content-type", "application/json").body(settings);
            assert!(request.send().await.unwrap().status().is_success());
        }
        let key = key.to_owned();
        let put = async |version: i64, document: Option<Value>| {
            let write = Write { key: key.clone(), version, document, forced: false };
            assert_eq!(set.write(&[write]).await.unwrap(), [Ok(Written::Stored)]);
        };
        if let Some(held) = set.held(std::slice::from_ref(&key)).await.unwrap()[0] {
            let version = held.version + 1;
            put(version, None).await;
            set.forget(&[Tombstone { key: key.clone(), version }]).await.unwrap();
        }
        if let Some((version, document)) = other {
            put(version, Some(document)).await;
        }
    }

    fn up(&self) -> Result<(), TargetError> {
        up(&self.down)
    }
}

fn up(down: &AtomicBool) -> Result<(), TargetError> {
    match down.load(Ordering::SeqCst) {
        true => Err(TargetError::Down("switched off".to_owned())),
        false => Ok(()),
    }
}

impl SearchIndex for FaultyIndex {
    fn search<'a>(&'a self, query: &'a Query) -> BoxFuture<'a, Result<Hits, TargetError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.hanging.load(Ordering::SeqCst) {
                let _open = Open(&self.abandoned);
                std::future::pending::<()>().await;
            }
            self.up()?;
            match self.gossip.load(Ordering::SeqCst) {
                true => {
                    let all = Query { limit: 200, ..Query::default() };
                    self.inner.search(&all).await
                }
                false => self.inner.search(query).await,
            }
        })
    }
}

impl Targets for FaultyIndex {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        Box::pin(async move {
            self.up()?;
            self.inner.current().await
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Box::pin(async move {
            self.up()?;
            let set = self.inner.open(name).await?;
            Ok(Arc::new(FaultySet { set, down: Arc::clone(&self.down) }) as Arc<dyn Target>)
        })
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        self.inner.create()
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            if self.swap_waits.swap(false, Ordering::SeqCst) {
                self.at_swap.notify_one();
                self.may_swap.notified().await;
            }
            self.inner.swap(to).await
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.inner.remove(name)
    }
}

struct FaultySet {
    set: Arc<dyn Target>,
    down: Arc<AtomicBool>,
}

impl Target for FaultySet {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.held(keys).await
        })
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.write(writes).await
        })
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.digest(range).await
        })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.list(range, most).await
        })
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            up(&self.down)?;
            self.set.forget(deletions).await
        })
    }
}
