//! In-memory caches of recent reads: bytes by content, and lookup results by code.
//!
//! # Invariants
//! - Bytes never change: content is cached for as long as there is room.
//! - A lookup result is reused for `recheck` at most, and never past the paste's expiry. Both are
//!   measured on this process's monotonic clock from before the query was sent; no wall clocks are
//!   compared.
//! - Pastes that burn are never cached.
//! - The first reader in the second half of a result's lifetime refreshes it in the background, so that
//!   readers of a busy paste never wait for the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;

use crate::code::ShortCode;
use crate::model::Paste;

/// A lookup result, and until when it may be reused.
#[derive(Clone)]
pub struct CachedLookup {
    paste: Arc<Paste>,
    good_until: Instant,
    refresh_from: Instant,
    refreshed: Arc<AtomicBool>,
}

/// A lookup result that may be reused.
pub struct CachedPaste {
    pub paste: Arc<Paste>,
    /// It expires soon, and this reader has to refresh it.
    pub refresh: bool,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<i64, Bytes> for ByLength {
    fn weight(&self, _: &i64, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + 64
    }
}

pub struct Cache {
    contents: QuickCache<i64, Bytes, ByLength>,
    lookups: QuickCache<ShortCode, CachedLookup>,
}

impl Cache {
    pub fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / 2048).unwrap_or(usize::MAX).clamp(16, 1_000_000);
        Self {
            contents: QuickCache::with_weighter(expected, bytes, ByLength),
            lookups: QuickCache::new(expected),
        }
    }

    pub fn content(&self, content_id: i64) -> Option<Bytes> {
        self.contents.get(&content_id)
    }

    pub fn keep_content(&self, content_id: i64, bytes: &Bytes) {
        self.contents.insert(content_id, bytes.clone());
    }

    pub fn lookup(&self, code: &ShortCode, now: Instant) -> Option<CachedPaste> {
        let cached = self.lookups.get(code)?;
        if now >= cached.good_until {
            return None;
        }
        let refresh = now >= cached.refresh_from && !cached.refreshed.swap(true, Ordering::Relaxed);
        Some(CachedPaste { paste: cached.paste, refresh })
    }

    pub fn keep_lookup(&self, paste: &Arc<Paste>, asked: Instant, recheck: Duration) {
        let time = recheck.min(paste.life);
        let cached = CachedLookup {
            paste: Arc::clone(paste),
            good_until: asked + time,
            refresh_from: asked + time / 2,
            refreshed: Arc::default(),
        };
        self.lookups.insert(paste.code.clone(), cached);
    }

    pub fn forget(&self, code: &ShortCode) {
        self.lookups.remove(code);
    }
}
