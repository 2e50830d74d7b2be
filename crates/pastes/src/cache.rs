//! In-memory caches of recent reads: bytes by content, and lookup results by code.
//!
//! # What is true
//! - Bytes never change: content is kept for as long as there is room.
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
pub struct Kept {
    paste: Arc<Paste>,
    good_until: Instant,
    ask_from: Instant,
    asked: Arc<AtomicBool>,
}

/// A lookup result that may be reused.
pub struct Known {
    pub paste: Arc<Paste>,
    /// It expires soon, and this reader has to refresh it.
    pub ask_again: bool,
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
    answers: QuickCache<ShortCode, Kept>,
}

impl Cache {
    pub fn new(bytes: u64) -> Self {
        let expected = usize::try_from(bytes / 2048).unwrap_or(usize::MAX).clamp(16, 1_000_000);
        Self {
            contents: QuickCache::with_weighter(expected, bytes, ByLength),
            answers: QuickCache::new(expected),
        }
    }

    pub fn content(&self, content_id: i64) -> Option<Bytes> {
        self.contents.get(&content_id)
    }

    pub fn keep_content(&self, content_id: i64, bytes: &Bytes) {
        self.contents.insert(content_id, bytes.clone());
    }

    pub fn answer(&self, code: &ShortCode, now: Instant) -> Option<Known> {
        let kept = self.answers.get(code)?;
        if now >= kept.good_until {
            return None;
        }
        let ask_again = now >= kept.ask_from && !kept.asked.swap(true, Ordering::Relaxed);
        Some(Known { paste: kept.paste, ask_again })
    }

    pub fn keep_answer(&self, paste: &Arc<Paste>, asked: Instant, recheck: Duration) {
        let time = recheck.min(paste.life);
        let kept = Kept {
            paste: Arc::clone(paste),
            good_until: asked + time,
            ask_from: asked + time / 2,
            asked: Arc::default(),
        };
        self.answers.insert(paste.code.clone(), kept);
    }

    pub fn forget(&self, code: &ShortCode) {
        self.answers.remove(code);
    }
}
