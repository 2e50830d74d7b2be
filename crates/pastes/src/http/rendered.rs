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
//! - Readers of one page wait for each other only while it is being highlighted, and for `SAME_PAGE` at
//!   most: a request that has no permit yet keeps no other request from highlighting the page.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_http::limits::one_client;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
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
/// How long a reader waits for another request that highlights the same page.
const SAME_PAGE: Duration = Duration::from_secs(2);
/// The page cache has this many parts: a page must fit into one of them.
const SHARDS: usize = 2;
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

/// The permit of an address; `None` for a reader without a known one.
type Slot = Option<OwnedSemaphorePermit>;

/// Permits for highlighting one page, held until the work is done.
struct Place {
    _maker: OwnedSemaphorePermit,
    _slot: Slot,
}

impl Rendered {
    pub fn new(bytes: u64) -> Self {
        let pages = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 65_536);
        Self {
            pages: cache(pages, bytes),
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
        let (base_url, paste) = (base_url.to_owned(), Arc::clone(paste));
        let make = move |colours| view::paste(&base_url, &paste, colours);
        // The guard comes after the slot and is kept only with all permits: a request that
        // waits for it waits for a page that is being highlighted, not for another address's turn.
        let Ok(slot) = self.own_turn(client).await else {
            return Ok(self.plain(make).await?.into());
        };
        let guard = self.pages.get_value_or_guard_async(&key);
        let guard = match tokio::time::timeout(SAME_PAGE, guard).await {
            Ok(Ok(page)) => return Ok(page),
            Ok(Err(guard)) => guard,
            Err(_) => return Ok(self.plain(make).await?.into()),
        };
        let Some(place) = self.place(slot) else {
            drop(guard);
            return Ok(self.plain(make).await?.into());
        };
        let page: Bytes = highlighted(place, make).await?.into();
        // If the entry was removed meanwhile, the page is still valid.
        let _ = guard.insert(page.clone());
        Ok(page)
    }

    /// Renders on a blocking thread: highlighted if there is a permit for it, plain otherwise.
    pub async fn work<T: Send + 'static>(
        &self,
        client: Option<IpAddr>,
        make: impl FnOnce(Colours) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        match self.own_turn(client).await.ok().and_then(|slot| self.place(slot)) {
            Some(place) => highlighted(place, make).await,
            None => self.plain(make).await,
        }
    }

    async fn plain<T: Send + 'static>(
        &self,
        make: impl FnOnce(Colours) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = Arc::clone(&self.plain).acquire_owned();
        let turn = tokio::time::timeout(TIMEOUT, turn).await;
        let turn = turn.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?;
        blocking(turn, || make(Colours::NoneFree)).await
    }

    /// Waits for the slot of this address; an unknown address has none. Fails if another request of
    /// the address has the slot for too long.
    async fn own_turn(&self, client: Option<IpAddr>) -> Result<Slot, Elapsed> {
        let Some(slot) = client.and_then(|client| self.slot(client)) else { return Ok(None) };
        // A semaphore that is never closed gives a permit.
        tokio::time::timeout(OWN_TURN, slot.acquire_owned()).await.map(Result::ok)
    }

    /// Returns permits to highlight a page, or `None` to render it plain.
    fn place(&self, slot: Slot) -> Option<Place> {
        let maker = Arc::clone(&self.makers).try_acquire_owned().ok()?;
        Some(Place { _maker: maker, _slot: slot })
    }

    fn slot(&self, client: IpAddr) -> Option<Arc<Semaphore>> {
        let hash = self.hasher.hash_one(one_client(client));
        let at = usize::try_from(hash % SLOTS as u64).ok()?;
        self.slots.get(at).cloned()
    }
}

async fn highlighted<T: Send + 'static>(
    place: Place,
    make: impl FnOnce(Colours) -> T + Send + 'static,
) -> Result<T, Failure> {
    blocking(place, || make(Colours::Wanted)).await
}

/// Runs work on a blocking thread. The permit moves into the work, which continues if its reader
/// leaves.
async fn blocking<T: Send + 'static>(
    permit: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let working = move || {
        let made = work();
        drop(permit);
        made
    };
    tokio::task::spawn_blocking(working).await.map_err(|_| Failure::Broken)
}

fn cache(pages: usize, bytes: u64) -> Cache<Key, Bytes, Weight> {
    let mut options = OptionsBuilder::new();
    options.estimated_items_capacity(pages).weight_capacity(bytes).shards(SHARDS);
    match options.build() {
        Ok(options) => Cache::with_options(
            options,
            Weight,
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        ),
        Err(_) => Cache::with_weighter(pages, bytes, Weight),
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
            };
            rendered.work(Some(client), make).await.expect("a page");
        });
        begun.await.expect("it begins");
        (making, end)
    }

    async fn colours(rendered: &Rendered, client: IpAddr) -> Colours {
        rendered.work(Some(client), |colours| colours).await.expect("a page")
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

    /// Returns a paste whose page says whether it was highlighted.
    fn paste() -> Arc<Paste> {
        Arc::new(Paste {
            code: "abc".parse().expect("a code"),
            paste_id: Uuid::from_u128(7),
            content: Bytes::from_static(b"let x = 1;"),
            language: Some("rust".to_owned()),
            created_at: jiff::Timestamp::UNIX_EPOCH,
            expires_at: jiff::Timestamp::MAX,
            life: Duration::from_secs(86_400),
            content_id: 1,
        })
    }

    async fn page(rendered: &Rendered, client: IpAddr) -> (Bytes, Duration) {
        let asked = std::time::Instant::now();
        let page = rendered.page("", &paste(), Some(client)).await.expect("a page");
        (page, asked.elapsed())
    }

    fn is_coloured(page: &Bytes) -> bool {
        page.windows(5).any(|part| part == b"t-kwd")
    }

    #[tokio::test]
    async fn e27_page_does_not_wait_for_an_address_that_has_no_slot_free() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let all = addresses(&rendered, 2);
        // The grammar is loaded before anything is measured.
        let warm = Rendered::new(1 << 20);
        assert!(is_coloured(&page(&warm, all[0]).await.0));
        let busy = slow(&rendered, all[0]).await;
        let waiting = {
            let (rendered, address) = (Arc::clone(&rendered), all[0]);
            tokio::spawn(async move { page(&rendered, address).await })
        };
        // Let it wait for its slot.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (shown, took) = page(&rendered, all[1]).await;
        assert!(is_coloured(&shown) && took < OWN_TURN / 2, "{took:?}");
        let (shown, _) = waiting.await.expect("a page");
        assert!(!is_coloured(&shown), "its slot is still taken");
        drop(busy);
    }

    #[tokio::test]
    async fn e27_page_that_another_request_never_finishes_comes_without_colours() {
        let rendered = Rendered::new(1 << 20);
        let key = Key { paste: paste().paste_id, wording: view::wording(paste().life) };
        let guard = rendered.pages.get_value_or_guard_async(&key).await;
        assert!(guard.is_err());
        let (shown, took) = page(&rendered, IpAddr::from([192, 0, 2, 1])).await;
        assert!(!is_coloured(&shown) && took < Duration::from_secs(20), "{took:?}");
        drop(guard);
    }

    #[tokio::test]
    async fn e27_largest_page_is_cached() {
        let rendered = Rendered::new(32 << 20);
        let key = Key { paste: paste().paste_id, wording: 0 };
        rendered.pages.insert(key, vec![b'x'; view::largest_page(usize::MAX)].into());
        assert!(rendered.pages.get(&key).is_some());
    }

    /// Waits until `count` pages could be highlighted.
    async fn until_free(rendered: &Rendered, count: usize) {
        let count = u32::try_from(count).expect("a few");
        let places = rendered.makers.acquire_many(count);
        let places = tokio::time::timeout(Duration::from_secs(60), places).await;
        drop(places.expect("they end").expect("open"));
    }
}
