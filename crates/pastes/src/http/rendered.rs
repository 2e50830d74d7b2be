//! Cache of rendered pages, so that a text is highlighted once and not for every reader.
//!
//! # What is true
//! - A page is looked up only after the service decided that the paste may be read: the cache decides
//!   nothing.
//! - A page is cached per paste and per wording of its time left ("in 3 hours"), so that no reader sees
//!   an outdated one, nor that of an earlier paste of the same name.
//! - Memory is bounded by bytes. Work is bounded, too: at most `MAKERS` pages are highlighted at a
//!   time, each once, and one at a time per address. Work that continues after its reader left still
//!   counts.
//! - No reader waits for the highlighting of other pages: if all permits are taken, the page is plain.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_http::limits::one_client;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::errors::Failure;
use super::view;
use crate::highlight::Colours;
use crate::model::Paste;

/// How many pages are highlighted at the same time.
const MAKERS: usize = 2;
/// How many plain pages are rendered at the same time. Each takes milliseconds.
const PLAIN_MAKERS: usize = 8;
/// Addresses are hashed into this many slots; one page per slot is highlighted at a time.
const SLOTS: usize = 256;
/// How long a reader waits for a page that another request of the same address renders.
const OWN_TURN: Duration = Duration::from_secs(2);
/// How long a reader waits for a permit to render a plain page.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct Rendered {
    pages: Cache<Key, Bytes, Weight>,
    makers: Arc<Semaphore>,
    plain: Arc<Semaphore>,
    slots: Vec<Arc<Semaphore>>,
    /// Randomly seeded, so that a client cannot choose whose slot it shares.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    paste: Uuid,
    wording: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Bytes> for Weight {
    fn weight(&self, _: &Key, page: &Bytes) -> u64 {
        page.len() as u64 + 200
    }
}

/// Permits for highlighting one page, held until the work is done.
struct Place {
    _maker: OwnedSemaphorePermit,
    _slot: Option<OwnedSemaphorePermit>,
}

impl Rendered {
    pub fn new(bytes: u64) -> Self {
        let pages = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 65_536);
        Self {
            pages: Cache::with_weighter(pages, bytes, Weight),
            makers: Arc::new(Semaphore::new(MAKERS)),
            plain: Arc::new(Semaphore::new(PLAIN_MAKERS)),
            slots: (0..SLOTS).map(|_| Arc::new(Semaphore::new(1))).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Returns the page of a paste that may be read, for a reader at this address.
    pub async fn page(
        &self,
        base_url: &str,
        paste: &Arc<Paste>,
        client: Option<IpAddr>,
    ) -> Result<Bytes, Failure> {
        let key = Key { paste: paste.paste_id, wording: view::wording(paste.life) };
        if let Some(page) = self.pages.get(&key) {
            return Ok(page);
        }
        let guard = match self.pages.get_value_or_guard_async(&key).await {
            Ok(page) => return Ok(page),
            Err(guard) => guard,
        };
        let (base_url, paste) = (base_url.to_owned(), Arc::clone(paste));
        let (page, colours) =
            self.work(client, move |colours| view::paste(&base_url, &paste, colours)).await?;
        if colours == Colours::Wanted {
            // If the entry was removed meanwhile, the page is still valid.
            let _ = guard.insert(page.clone());
        }
        Ok(page)
    }

    /// Renders a page on a blocking thread: highlighted if there is a permit for it, plain otherwise.
    pub async fn work(
        &self,
        client: Option<IpAddr>,
        make: impl FnOnce(Colours) -> String + Send + 'static,
    ) -> Result<(Bytes, Colours), Failure> {
        let made = match self.place(client).await {
            Some(place) => {
                // The permits move into the work, which continues if its reader leaves.
                let coloured = move || {
                    let page = make(Colours::Wanted);
                    drop(place);
                    page
                };
                (tokio::task::spawn_blocking(coloured).await, Colours::Wanted)
            }
            None => {
                let turn = Arc::clone(&self.plain).acquire_owned();
                let turn = tokio::time::timeout(TIMEOUT, turn).await;
                let turn = turn.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?;
                let plain = move || {
                    let page = make(Colours::NoneFree);
                    drop(turn);
                    page
                };
                (tokio::task::spawn_blocking(plain).await, Colours::NoneFree)
            }
        };
        let (page, colours) = made;
        Ok((page.map_err(|_| Failure::Broken)?.into(), colours))
    }

    /// Returns permits to highlight a page, or `None` to render it plain.
    async fn place(&self, client: Option<IpAddr>) -> Option<Place> {
        let slot = match client.and_then(|client| self.slot(client)) {
            Some(slot) => {
                Some(tokio::time::timeout(OWN_TURN, slot.acquire_owned()).await.ok()?.ok()?)
            }
            None => None,
        };
        let maker = Arc::clone(&self.makers).try_acquire_owned().ok()?;
        Some(Place { _maker: maker, _slot: slot })
    }

    fn slot(&self, client: IpAddr) -> Option<Arc<Semaphore>> {
        let hash = self.hasher.hash_one(one_client(client));
        let at = usize::try_from(hash % SLOTS as u64).ok()?;
        self.slots.get(at).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Returns addresses that share no slot.
    fn addresses(rendered: &Rendered, count: usize) -> Vec<IpAddr> {
        let mut found: Vec<IpAddr> = Vec::new();
        for last in 0..=255 {
            let address = IpAddr::from([192, 0, 2, last]);
            let slot = |address: &IpAddr| rendered.slot(*address).map(|slot| Arc::as_ptr(&slot));
            if found.len() < count && found.iter().all(|other| slot(other) != slot(&address)) {
                found.push(address);
            }
        }
        assert_eq!(found.len(), count);
        found
    }

    /// Starts to render a page that finishes when the sender is dropped. Returns once it has begun.
    async fn slow(
        rendered: &Arc<Rendered>,
        client: IpAddr,
    ) -> (tokio::task::JoinHandle<()>, mpsc::Sender<()>) {
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let rendered = Arc::clone(rendered);
        let making = tokio::spawn(async move {
            let make = move |_| {
                let _ = begin.send(());
                let _ = ended.recv();
                String::new()
            };
            rendered.work(Some(client), make).await.map(drop).expect("a page");
        });
        begun.await.expect("it begins");
        (making, end)
    }

    async fn colours(rendered: &Rendered, client: IpAddr) -> Colours {
        rendered.work(Some(client), |_| String::new()).await.expect("a page").1
    }

    #[tokio::test]
    async fn e27_page_comes_without_colours_when_no_maker_is_free() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let all = addresses(&rendered, MAKERS + 1);
        let mut making = Vec::new();
        for address in &all[..MAKERS] {
            making.push(slow(&rendered, *address).await);
        }
        assert_eq!(colours(&rendered, all[MAKERS]).await, Colours::NoneFree);
        making.pop();
        until_free(&rendered, 1).await;
        assert_eq!(colours(&rendered, all[MAKERS]).await, Colours::Wanted);
    }

    #[tokio::test]
    async fn e27_address_has_one_page_in_the_making() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let all = addresses(&rendered, 2);
        let first = slow(&rendered, all[0]).await;
        assert_eq!(colours(&rendered, all[0]).await, Colours::NoneFree);
        assert_eq!(colours(&rendered, all[1]).await, Colours::Wanted, "others are not held up");
        drop(first);
        until_free(&rendered, MAKERS).await;
        assert_eq!(colours(&rendered, all[0]).await, Colours::Wanted);
    }

    #[tokio::test]
    async fn e27_work_counts_until_its_end_when_its_reader_has_left() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let address = IpAddr::from([192, 0, 2, 1]);
        let (making, end) = slow(&rendered, address).await;
        making.abort();
        assert!(making.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(rendered.makers.available_permits(), MAKERS - 1);
        assert_eq!(colours(&rendered, address).await, Colours::NoneFree);
        drop(end);
        until_free(&rendered, MAKERS).await;
    }

    /// Waits until `count` pages could be highlighted.
    async fn until_free(rendered: &Rendered, count: usize) {
        let count = u32::try_from(count).expect("a few");
        let places = rendered.makers.acquire_many(count);
        let places = tokio::time::timeout(Duration::from_secs(60), places).await;
        drop(places.expect("they end").expect("open"));
    }
}
