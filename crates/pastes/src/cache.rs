//! What was read lately, in memory: bytes by content, and answers by code.
//!
//! # What is true
//! - Bytes never change: content is kept for as long as there is room.
//! - An answer is repeated for `recheck` at most, and never past the paste's end. Both are counted on
//!   this process's monotonic clock from before the database was asked; no wall clock is compared.
//! - Pastes that burn are never kept.
//! - Whoever reads an answer in the second half of its time asks again beside the reading, one reader
//!   for all: what is read all the time never makes anybody wait for the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache as QuickCache;

use crate::code::ShortCode;
use crate::model::Paste;

/// An answer, and until when it may be repeated.
#[derive(Clone)]
pub struct Kept {
    paste: Arc<Paste>,
    good_until: Instant,
    ask_from: Instant,
    asked: Arc<AtomicBool>,
}

/// An answer that may be repeated.
pub struct Known {
    pub paste: Arc<Paste>,
    /// It will not last: this reader is the one to ask again.
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
