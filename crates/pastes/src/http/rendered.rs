//! Pages that were made lately, so that colouring a text is done once and not for every reader.
//!
//! # What is true
//! - A page is looked up only after the service said that the paste may be read: what is kept here
//!   decides nothing.
//! - A page is kept for one wording of its time left ("in 3 hours"), so that no reader sees an old one.
//! - Memory is bounded by bytes. So is the work: a few pages are made at a time, each once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use tokio::sync::Semaphore;

use super::errors::Failure;
use super::view;
use crate::code::ShortCode;
use crate::model::Paste;

/// Pages that are made at the same time.
const MAKERS: usize = 2;
/// How long a reader waits for a page that somebody else's request is making.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Rendered {
    pages: Cache<Key, Bytes, Weight>,
    makers: Semaphore,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    code: ShortCode,
    content_id: i64,
    wording: u64,
}

/// The same without a copy of the code, to look with.
#[derive(Hash)]
struct Look<'a> {
    code: &'a ShortCode,
    content_id: i64,
    wording: u64,
}

impl Equivalent<Key> for Look<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.content_id == key.content_id && self.wording == key.wording && *self.code == key.code
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Bytes> for Weight {
    fn weight(&self, _: &Key, page: &Bytes) -> u64 {
        page.len() as u64 + 200
    }
}

impl Rendered {
    pub fn new(bytes: u64) -> Self {
        let pages = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 65_536);
        Self { pages: Cache::with_weighter(pages, bytes, Weight), makers: Semaphore::new(MAKERS) }
    }

    /// The page of a paste that may be read.
    pub async fn page(&self, base_url: &str, paste: &Arc<Paste>) -> Result<Bytes, Failure> {
        let look = Look {
            code: &paste.code,
            content_id: paste.content_id,
            wording: view::wording(paste.life),
        };
        if let Some(page) = self.pages.get(&look) {
            return Ok(page);
        }
        let key =
            Key { code: paste.code.clone(), content_id: look.content_id, wording: look.wording };
        let guard = match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => return Ok(page),
            Err(guard) => guard,
        };
        let page = self.make(base_url, paste).await?;
        // Somebody cleared the place meanwhile: the page is good all the same.
        let _ = guard.insert(page.clone());
        Ok(page)
    }

    /// Makes a page that is for one reader only, or for the first one.
    async fn make(&self, base_url: &str, paste: &Arc<Paste>) -> Result<Bytes, Failure> {
        let (base_url, paste) = (base_url.to_owned(), Arc::clone(paste));
        self.work(move || view::paste(&base_url, &paste, None)).await
    }

    /// Runs the making of a page where it keeps no connection waiting.
    pub async fn work(
        &self,
        make: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Bytes, Failure> {
        let place = tokio::time::timeout(PATIENCE, self.makers.acquire()).await;
        let _place = place.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?;
        let made = tokio::task::spawn_blocking(make).await;
        made.map(Bytes::from).map_err(|_| Failure::Broken)
    }
}
