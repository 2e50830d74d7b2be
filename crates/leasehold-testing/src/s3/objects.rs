//! The objects: an index in memory, and the bytes in files.
//!
//! # Invariants
//! - A change is visible to every client at once and as a whole, as S3 promises.
//! - Keys are listed in the order of their bytes. The cost of a page depends on its size and not on
//!   the number of objects.
//! - The bytes are on disk (see [`bodies`](super::bodies)), so a large bucket needs memory only for
//!   the index: some hundred bytes per object.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use s3s::crypto::{Checksum, Md5};

use super::bodies::{Bodies, Place};

/// An object as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: SystemTime,
    pub content_type: Option<String>,
    pub metadata: HashMap<String, String>,
}

/// Attributes that are sent with a body.
#[derive(Debug, Default, Clone)]
pub(super) struct Attributes {
    pub content_type: Option<String>,
    pub metadata: HashMap<String, String>,
}

/// When an object may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only<'a> {
    Always,
    IfMissing,
    IfEtag(&'a str),
}

/// One page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub objects: Vec<Object>,
    /// The common prefixes of keys up to the next delimiter.
    pub prefixes: Vec<String>,
    /// The key after which the next page begins, if there is one.
    pub next: Option<String>,
}

pub(super) struct Objects {
    index: Mutex<Index>,
}

struct Index {
    objects: BTreeMap<String, Stored>,
    bodies: Bodies,
}

struct Stored {
    object: Object,
    place: Place,
}

impl Objects {
    pub(super) fn in_dir(dir: PathBuf) -> Self {
        let index = Index { objects: BTreeMap::new(), bodies: Bodies::in_dir(dir) };
        Self { index: Mutex::new(index) }
    }

    /// Stores an object. Returns `None` if the condition is not met.
    pub(super) fn put(
        &self,
        key: &str,
        bytes: &[u8],
        attributes: Attributes,
        only: Only<'_>,
    ) -> io::Result<Option<Object>> {
        let mut index = self.lock();
        let found = index.objects.get(key).map(|stored| stored.object.etag.as_str());
        match (only, found) {
            (Only::IfMissing, Some(_)) | (Only::IfEtag(_), None) => return Ok(None),
            (Only::IfEtag(wanted), Some(found)) if wanted != found => return Ok(None),
            _ => {}
        }
        let place = index.bodies.add(bytes)?;
        let object = Object {
            key: key.to_owned(),
            size: bytes.len() as u64,
            etag: hex(&Md5::checksum(bytes)),
            modified: SystemTime::now(),
            content_type: attributes.content_type,
            metadata: attributes.metadata,
        };
        let stored = Stored { object: object.clone(), place };
        if let Some(old) = index.objects.insert(key.to_owned(), stored) {
            index.bodies.remove(old.place)?;
        }
        Ok(Some(object))
    }

    pub(super) fn head(&self, key: &str) -> Option<Object> {
        self.lock().objects.get(key).map(|stored| stored.object.clone())
    }

    pub(super) fn get(&self, key: &str) -> io::Result<Option<(Object, Bytes)>> {
        let index = self.lock();
        let Some(stored) = index.objects.get(key) else {
            return Ok(None);
        };
        Ok(Some((stored.object.clone(), index.bodies.read(stored.place)?)))
    }

    /// Deletes an object. Returns whether there was one.
    pub(super) fn remove(&self, key: &str) -> io::Result<bool> {
        let mut index = self.lock();
        match index.objects.remove(key) {
            Some(stored) => index.bodies.remove(stored.place).map(|()| true),
            None => Ok(false),
        }
    }

    pub(super) fn all(&self) -> Vec<Object> {
        self.lock().objects.values().map(|stored| stored.object.clone()).collect()
    }

    /// Moves the time of an object into the past. Returns false if there is none.
    pub(super) fn age(&self, key: &str, by: Duration) -> bool {
        let mut index = self.lock();
        let Some(stored) = index.objects.get_mut(key) else {
            return false;
        };
        stored.object.modified =
            stored.object.modified.checked_sub(by).unwrap_or(SystemTime::UNIX_EPOCH);
        true
    }

    /// Changes a byte on the disk and nothing else, as bit rot does. Returns false if there is none.
    pub(super) fn rot(&self, key: &str) -> io::Result<bool> {
        let index = self.lock();
        let Some(stored) = index.objects.get(key) else {
            return Ok(false);
        };
        let bytes = index.bodies.read(stored.place)?;
        index.bodies.overwrite(stored.place, &super::damage::flipped(&bytes))?;
        Ok(true)
    }

    pub(super) fn list(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        after: Option<&str>,
        limit: usize,
        shown: impl Fn(&str) -> bool,
    ) -> Page {
        let index = self.lock();
        let mut page = Page::default();
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let keys = index.objects.range::<str, _>((from, Bound::Unbounded));
        for (key, stored) in keys.take_while(|(key, _)| key.starts_with(prefix)) {
            let common = delimiter.and_then(|delimiter| common_prefix(key, prefix, delimiter));
            let known = common.is_some_and(|common| {
                page.prefixes.last().is_some_and(|last| last == common)
                    // A page that ended with this prefix has covered everything below it.
                    || after.is_some_and(|after| after.starts_with(common))
            });
            if known || !shown(key) {
                continue;
            }
            if page.objects.len() + page.prefixes.len() >= limit {
                let last = page.objects.last().map(|object| object.key.clone());
                page.next = last.max(page.prefixes.last().cloned());
                break;
            }
            match common {
                Some(common) => page.prefixes.push(common.to_owned()),
                None => page.objects.push(stored.object.clone()),
            }
        }
        page
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }
}

/// Returns `blobs/` for `blobs/a/1` with the prefix `b` and the delimiter `/`.
fn common_prefix<'a>(key: &'a str, prefix: &str, delimiter: &str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix)?;
    let end = prefix.len() + rest.find(delimiter)? + delimiter.len();
    key.get(..end)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
