//! Stores that stop at a barrier, so that a test can act in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::mirror::{
    Digest, ItemError, Range, StoredVersion, Target, TargetError, Targets, Tombstone, Write,
    Written,
};
use leasehold_testing::{ScriptedTarget, ScriptedTargets};
use tokio::sync::Notify;

/// A point where a call stops until the test opens it.
#[derive(Default)]
pub struct Barrier {
    reached: Notify,
    open: Notify,
}

impl Barrier {
    async fn stop(&self) {
        self.reached.notify_one();
        self.open.notified().await;
    }

    pub async fn reached(&self) {
        let reached = self.reached.notified();
        tokio::time::timeout(Duration::from_secs(60), reached)
            .await
            .expect("a call reaches the barrier");
    }

    pub fn open(&self) {
        self.open.notify_one();
    }
}

/// The calls that a store can stop at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Held,
    Digest,
}

/// A store that stops before it executes call number `at` of this kind, counted from 0.
pub struct StopsAt {
    store: ScriptedTarget,
    call: Call,
    at: usize,
    asked: AtomicUsize,
    barrier: Arc<Barrier>,
}

impl StopsAt {
    pub fn new(store: &ScriptedTarget, call: Call, at: usize) -> (Arc<Self>, Arc<Barrier>) {
        let barrier = Arc::new(Barrier::default());
        let (store, asked) = (store.clone(), AtomicUsize::new(0));
        let stops = Self { store, call, at, asked, barrier: Arc::clone(&barrier) };
        (Arc::new(stops), barrier)
    }

    async fn comes(&self, call: Call) {
        if call == self.call && self.asked.fetch_add(1, Ordering::SeqCst) == self.at {
            self.barrier.stop().await;
        }
    }
}

impl Target for StopsAt {
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>> {
        Box::pin(async move {
            self.comes(Call::Held).await;
            self.store.held(keys).await
        })
    }

    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>> {
        self.store.write(writes)
    }

    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>> {
        Box::pin(async move {
            self.comes(Call::Digest).await;
            self.store.digest(range).await
        })
    }

    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>> {
        self.store.list(range, most)
    }

    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>> {
        self.store.forget(deletions)
    }
}

/// A store that stops before it swaps.
pub struct StopsAtSwap {
    pub store: ScriptedTargets,
    pub barrier: Arc<Barrier>,
}

impl Targets for StopsAtSwap {
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        self.store.current()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>> {
        Targets::open(&self.store, name)
    }

    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>> {
        self.store.create()
    }

    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            self.barrier.stop().await;
            self.store.swap(to).await
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.store.remove(name)
    }
}
