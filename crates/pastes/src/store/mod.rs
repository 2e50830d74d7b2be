//! Where the bytes of uploaded pastes are: a local directory, or any server that speaks S3.
//!
//! # Invariants
//! - Bytes count as stored only after they were read back with the right length and SHA-256.
//! - Bytes with the wrong hash are never served.
//! - Nothing here retries: the queue does, with its own backoff and limits.
//!
//! # What can go wrong
//! - A put was applied and its response lost: the next attempt finds the object and checks it.
//! - The store is down: reads fail fast for a while (see [`Breaker`]), uploads wait in the queue.

mod files;
mod key;
mod s3;

use std::collections::HashSet;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use leasehold::breaker::Breaker;
use leasehold::duration;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use sha2::{Digest, Sha256};

pub use key::ObjectKey;
pub use s3::S3Settings;

use crate::error::StartError;

/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// Reads stop if half of the last ten failed; after this time one read probes the store.
const BREAKER_OPEN: Duration = Duration::from_secs(30);
/// How many puts of one batch run at once.
const PUTS_AT_ONCE: usize = 16;
/// The object that says which database the store belongs to.
const ID_KEY: &str = "leasehold-pastes-store-id";
/// The longest id that is read.
const LONGEST_ID: usize = 200;

/// The object store.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    objects: Arc<dyn ObjectStore>,
    /// The prefix of `s3_url`.
    url: String,
    /// The folder of a local store: its files are written and removed directly.
    folder: Option<PathBuf>,
    breaker: Breaker,
    /// Not used before it has been compared with the database: see [`crate::store_id`].
    closed: AtomicBool,
}

/// A weak handle, for tasks that must not keep the store alive.
pub(crate) struct WeakStore(Weak<Inner>);

impl WeakStore {
    pub(crate) fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(Store)
    }
}

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no such object")]
    Missing,
    #[error("the object does not have the bytes that were sent: {0}")]
    WrongBytes(String),
    #[error("the store does not respond; trying again in {}", duration::compact(*.0))]
    Open(Duration),
    #[error("no response within {}", duration::compact(CALL_LIMIT))]
    TimedOut,
    #[error("the store has not been compared with the database yet")]
    NotCompared,
    #[error("{0}")]
    Failed(String),
}

impl Store {
    /// Keeps objects as files below `folder`, which is created if missing. Only this system user can
    /// read what is created here. Files and their folders are synced to disk before an upload counts.
    pub fn local(folder: &FsPath) -> Result<Self, StartError> {
        let bad = |error: &dyn std::fmt::Display| {
            StartError::Store(format!("folder {}: {error}", folder.display()))
        };
        files::make_folder(folder).map_err(|error| bad(&error))?;
        let folder = folder.canonicalize().map_err(|error| bad(&error))?;
        let objects = LocalFileSystem::new_with_prefix(&folder)
            .map_err(|error| bad(&error))?
            .with_fsync(true);
        let url = format!("file://{}", folder.display());
        Ok(Self::new(Arc::new(objects), url, Some(folder)))
    }

    fn new(objects: Arc<dyn ObjectStore>, url: String, folder: Option<PathBuf>) -> Self {
        let breaker = Breaker::new(5, 10, BREAKER_OPEN);
        let closed = AtomicBool::new(false);
        Self(Arc::new(Inner { objects, url, folder, breaker, closed }))
    }

    /// Returns where the store is: the prefix of the addresses of its objects.
    pub fn location(&self) -> &str {
        &self.0.url
    }

    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.0))
    }

    /// Refuses every call until [`Self::open`].
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) {
        self.0.closed.store(false, Ordering::Release);
    }

    fn check_open(&self) -> Result<(), StoreError> {
        match self.0.closed.load(Ordering::Acquire) {
            true => Err(StoreError::NotCompared),
            false => Ok(()),
        }
    }

    /// Returns the id of the database that the store belongs to, or `None` if no database has used it
    /// yet.
    pub(crate) async fn read_id(&self) -> Result<Option<String>, StoreError> {
        match self.fetch(&Path::from(ID_KEY)).await {
            Ok(bytes) => {
                let id = bytes.get(..bytes.len().min(LONGEST_ID)).unwrap_or_default();
                Ok(Some(String::from_utf8_lossy(id).trim().to_owned()))
            }
            Err(StoreError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Assigns the store to a database. Read the id again afterwards: another database may have been
    /// faster.
    pub(crate) async fn write_id(&self, id: &str) -> Result<(), StoreError> {
        let (path, bytes) = (Path::from(ID_KEY), Bytes::from(format!("{id}\n")));
        if let Some(folder) = self.0.folder.clone() {
            let write = move || vec![files::write_once(&folder.join(ID_KEY), &bytes)];
            return on_files(1, write).await.pop().unwrap_or(Ok(()));
        }
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let body = || PutPayload::from(bytes.clone());
        match limited(self.0.objects.put_opts(&path, body(), create)).await? {
            Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
            // A server without conditional writes.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                limited(self.0.objects.put(&path, body())).await?.map_err(failed)?;
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the address of an object, as in `s3_url`.
    pub fn url(&self, key: &ObjectKey) -> String {
        format!("{}/{key}", self.0.url)
    }

    /// Stores many objects and reads them back. Returns one result per object, in order.
    pub async fn put_all(&self, objects: Vec<(ObjectKey, Bytes)>) -> Vec<Result<(), StoreError>> {
        if self.check_open().is_err() {
            return objects.iter().map(|_| Err(StoreError::NotCompared)).collect();
        }
        if let Some(folder) = self.0.folder.clone() {
            return on_files(objects.len(), move || files::put(&folder, &objects)).await;
        }
        let puts: Vec<_> = objects
            .into_iter()
            .map(|(key, bytes)| {
                let store = self.clone();
                async move { store.put_verified(&key, &bytes).await }
            })
            .collect();
        futures_util::stream::iter(puts).buffered(PUTS_AT_ONCE).collect().await
    }

    /// Stores the bytes and reads them back. Does not overwrite an object that already has the right
    /// bytes, so that a late retry never touches what readers use.
    pub async fn put_verified(&self, key: &ObjectKey, bytes: &Bytes) -> Result<(), StoreError> {
        self.check_open()?;
        let path = Path::from(key.to_string());
        let body = || PutPayload::from(bytes.clone());
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match limited(self.0.objects.put_opts(&path, body(), create)).await? {
            Ok(_) => {}
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match self.verify(&path, &key.content_hash, bytes.len()).await {
                    Err(StoreError::WrongBytes(why)) => {
                        tracing::warn!(%key, why, "an object does not have the right bytes; writing it again");
                        limited(self.0.objects.put(&path, body())).await?.map_err(failed)?;
                    }
                    verified => return verified,
                }
            }
            // A server without conditional writes.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                limited(self.0.objects.put(&path, body())).await?.map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.verify(&path, &key.content_hash, bytes.len()).await
    }

    /// Checks that an object exists with the right bytes.
    pub async fn check(&self, key: &ObjectKey, size: usize) -> Result<(), StoreError> {
        self.verify(&Path::from(key.to_string()), &key.content_hash, size).await
    }

    async fn verify(&self, path: &Path, hash: &str, size: usize) -> Result<(), StoreError> {
        let bytes = self.fetch(path).await?;
        verified(&bytes, hash, size)
    }

    /// Returns the bytes of an object, checked. Does not call a store that keeps failing.
    pub async fn get(&self, key: &ObjectKey, size: usize) -> Result<Bytes, StoreError> {
        self.check_open()?;
        let permit = self.0.breaker.permit(Instant::now()).map_err(StoreError::Open)?;
        let path = Path::from(key.to_string());
        let fetched = self.fetch(&path).await.and_then(|bytes| {
            verified(&bytes, &key.content_hash, size)?;
            Ok(bytes)
        });
        // A missing object is a valid response, not a failure.
        let worked = matches!(fetched, Ok(_) | Err(StoreError::Missing));
        if permit.report(worked, Instant::now()) {
            tracing::warn!(
                "half of the last ten reads failed; reads do not use the store for 30 s"
            );
        }
        fetched
    }

    async fn fetch(&self, path: &Path) -> Result<Bytes, StoreError> {
        let fetch = async { self.0.objects.get(path).await?.bytes().await };
        match limited(fetch).await? {
            Ok(bytes) => Ok(bytes),
            Err(Error::NotFound { .. }) => Err(StoreError::Missing),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes objects, up to 1,000 per call to the store. Returns one result per object, in order; a
    /// missing object counts as deleted.
    pub async fn delete_many(&self, keys: Vec<ObjectKey>) -> Vec<Result<(), StoreError>> {
        if self.check_open().is_err() {
            return keys.iter().map(|_| Err(StoreError::NotCompared)).collect();
        }
        match self.0.folder.clone() {
            Some(folder) => on_files(keys.len(), move || files::delete(&folder, &keys)).await,
            None => self.delete_objects(keys).await,
        }
    }

    async fn delete_objects(&self, keys: Vec<ObjectKey>) -> Vec<Result<(), StoreError>> {
        let paths: Vec<Path> = keys.iter().map(|key| Path::from(key.to_string())).collect();
        let requested: Vec<_> = paths.iter().cloned().map(Ok).collect();
        let requested = futures_util::stream::iter(requested).boxed();
        let mut stream = self.0.objects.delete_stream(requested);
        // One error can cover a whole call, so only objects that the store reports as deleted count.
        let (mut deleted, mut why) =
            (HashSet::new(), String::from("the store did not report it as deleted"));
        let deleting = async {
            while let Some(result) = stream.next().await {
                match result {
                    Ok(path) => drop(deleted.insert(path)),
                    Err(Error::NotFound { path, .. }) => drop(deleted.insert(Path::from(path))),
                    Err(error) => why = failed(error).to_string(),
                }
            }
        };
        let timed_out = tokio::time::timeout(CALL_LIMIT * 2, deleting).await.is_err();
        let result = |path| match deleted.contains(path) {
            true => Ok(()),
            false if timed_out => Err(StoreError::TimedOut),
            false => Err(StoreError::Failed(why.clone())),
        };
        paths.iter().map(result).collect()
    }

    /// Lists all objects, in no order. A listing may be late or incomplete: callers must not conclude
    /// anything from what it lacks.
    pub fn list(&self) -> BoxStream<'static, Result<Listing, StoreError>> {
        if let Err(error) = self.check_open() {
            return futures_util::stream::iter([Err(error)]).boxed();
        }
        let stream = self.0.objects.list(Some(&Path::from(key::PREFIX)));
        let listing = stream.map(|entry| {
            let meta = entry.map_err(failed)?;
            let changed_at = jiff::Timestamp::from_second(meta.last_modified.timestamp());
            Ok(Listing {
                key: meta.location.to_string(),
                changed_at: changed_at.unwrap_or(jiff::Timestamp::MAX),
            })
        });
        listing.boxed()
    }

    pub fn breaker(&self) -> &Breaker {
        &self.0.breaker
    }
}

/// An object as the store lists it.
#[derive(Clone, Debug)]
pub struct Listing {
    pub key: String,
    pub changed_at: jiff::Timestamp,
}

/// Runs file work on a thread that may block.
async fn on_files<F>(count: usize, work: F) -> Vec<Result<(), StoreError>>
where
    F: FnOnce() -> Vec<Result<(), StoreError>> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        (0..count).map(|_| Err(StoreError::Failed(error.to_string()))).collect()
    })
}

/// Returns the SHA-256 of bytes, in hex.
pub fn hash_of(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn verified(bytes: &Bytes, hash: &str, size: usize) -> Result<(), StoreError> {
    if bytes.len() != size {
        return Err(StoreError::WrongBytes(format!("{} bytes instead of {size}", bytes.len())));
    }
    let found = hash_of(bytes);
    if found != hash {
        return Err(StoreError::WrongBytes(format!("SHA-256 {found} instead of {hash}")));
    }
    Ok(())
}

async fn limited<T>(call: impl Future<Output = T>) -> Result<T, StoreError> {
    tokio::time::timeout(CALL_LIMIT, call).await.map_err(|_| StoreError::TimedOut)
}

fn failed(error: Error) -> StoreError {
    // The beginning says what failed; the rest is the whole response of the server.
    StoreError::Failed(error.to_string().chars().take(500).collect())
}
