//! The interface of a store.
//!
//! # Invariants
//! - A document never goes back to an older version: [`Target::write`] keeps what is newer.
//! - A deletion is a document too, with a version: a slow write of an older version that arrives after
//!   it changes nothing. It is forgotten only much later, by [`Target::forget`].
//! - [`Target::held`] returns what a read by key would find now, whether or not a search finds it yet.

use std::sync::Arc;

use futures_util::future::BoxFuture;

/// A store that mirrors rows of Postgres. Every call has its own timeout.
pub trait Target: Send + Sync + 'static {
    /// Returns what the store has under these keys, in their order, deletions included.
    fn held<'a>(
        &'a self,
        keys: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Option<StoredVersion>>, TargetError>>;

    /// Writes documents and deletions; returns one result per write, in their order. What the store has
    /// in the same version or a newer one stays as it is.
    fn write<'a>(
        &'a self,
        writes: &'a [Write],
    ) -> BoxFuture<'a, Result<Vec<Result<Written, ItemError>>, TargetError>>;

    /// Returns the digest of the living documents of a range. Sees everything that was written before.
    fn digest<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Digest, TargetError>>;

    /// Returns up to `most` keys of a range in byte order, with what is held, deletions included.
    fn list<'a>(
        &'a self,
        range: &'a Range,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<(String, StoredVersion)>, TargetError>>;

    /// Forgets deletions, unless something newer is there.
    fn forget<'a>(&'a self, deletions: &'a [Tombstone]) -> BoxFuture<'a, Result<(), TargetError>>;
}

/// A store that can have a second set of documents beside the one that is searched.
pub trait Targets: Send + Sync + 'static {
    /// Returns the name of the set that is searched now.
    fn current(&self) -> BoxFuture<'_, Result<String, TargetError>>;
    /// Opens a set by its name. Fails if there is none.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Target>, TargetError>>;
    /// Creates an empty set and returns its name.
    fn create(&self) -> BoxFuture<'_, Result<String, TargetError>>;
    /// Switches searches to another set, atomically.
    fn swap<'a>(&'a self, to: &'a str) -> BoxFuture<'a, Result<(), TargetError>>;
    /// Removes a set that is not searched. Removing a set that does not exist succeeds.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TargetError>>;
}

/// What the store holds under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// The version of the row that was written.
    pub version: i64,
    /// True: a deletion, which is kept as a tombstone.
    pub deleted: bool,
}

/// A document to store, or a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The key of the row, as text.
    pub key: String,
    /// The version of the row.
    pub version: i64,
    /// `None`: a deletion.
    pub document: Option<serde_json::Value>,
    /// Replaces what the store has in the same version, too: a document or a deletion.
    pub forced: bool,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// The store has the document or the deletion now.
    Stored,
    /// The store has this version or a newer one.
    Newer,
}

/// Why one document was not stored. The others were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// Will never be stored as it is.
    #[error("refused: {0}")]
    Refused(String),
    /// A retry may succeed.
    #[error("not stored: {0}")]
    Busy(String),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Too much at once: send less.
    #[error("the store is overloaded: {0}")]
    Overloaded(String),
    /// Not reachable, or broken. Whether anything was written is unknown.
    #[error("the store does not respond: {0}")]
    Down(String),
}

/// A range of keys in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The last key before the range; `None`: from the first one.
    pub after: Option<String>,
    /// The last key of the range; `None`: to the end.
    pub to: Option<String>,
}

impl Range {
    /// Returns true if the key is in the range.
    pub fn contains(&self, key: &str) -> bool {
        self.after.as_deref().is_none_or(|after| key > after)
            && self.to.as_deref().is_none_or(|to| key <= to)
    }
}

/// The number of living documents of a range, and the sums of their fingerprints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Living documents.
    pub count: u64,
    /// The sum of the first halves of their fingerprints.
    pub a: u64,
    /// The sum of the second halves.
    pub b: u64,
}

impl Digest {
    /// Adds one document.
    pub fn add(&mut self, key: &str, version: i64) {
        let (a, b) = crate::mirror::fingerprint(key, version);
        self.count += 1;
        self.a += u64::from(a);
        self.b += u64::from(b);
    }
}

/// A deletion that may be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The key of the row, as text.
    pub key: String,
    /// The version of the deletion.
    pub version: i64,
}
