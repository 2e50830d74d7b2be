//! Cache of rendered pages, so that a text is highlighted once and not for every reader.
//!
//! # Invariants
//! - A page is looked up only after the service decided that the paste may be read: the cache decides
//!   nothing.
//! - A page is cached per paste and per time left as the page shows it ("in 3 hours"), so that no reader
//!   sees an outdated one, nor that of an earlier paste of the same name.
//! - Memory is bounded by bytes. Work is bounded, too: at most `HIGHLIGHTERS` pages are highlighted at a
//!   time, each once, and one at a time per address. Work that continues after its reader left still
//!   counts.
//! - No reader waits for the highlighting of other pages: if all permits are taken, the page is plain.
//! - Readers of one page wait for each other only while it is being highlighted, and for `SAME_PAGE` at
//!   most: a request without a permit does not stop other requests from highlighting the page.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold::duration;
use leasehold_http::limits::client_key;
use leasehold_http::problems::CommonProblem;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use uuid::Uuid;

use super::view;
use crate::highlight::Colours;
use crate::model::Paste;

/// How many pages are highlighted at the same time.
const HIGHLIGHTERS: usize = 2;
/// How many plain pages are rendered at the same time. Each takes milliseconds.
const PLAIN_RENDERERS: usize = 8;
/// Addresses are hashed into this many slots; one page per slot is highlighted at a time.
const SLOTS: usize = 256;
/// How long a reader waits for a page that another request of the same address renders.
const OWN_SLOT: Duration = Duration::from_secs(2);
/// How long a reader waits for another request that highlights the same page.
const SAME_PAGE: Duration = Duration::from_secs(2);
/// The page cache has this many parts: a page must fit into one of them.
const SHARDS: usize = 2;
/// How long a reader waits for a permit to render a plain page.
const TIMEOUT: Duration = Duration::from_secs(10);

pub struct Rendered {
    pages: Cache<Key, Bytes, Weight>,
    highlighters: Arc<Semaphore>,
    plain: Arc<Semaphore>,
    slots: Vec<Arc<Semaphore>>,
    /// Randomly seeded, so that a client cannot choose whose slot it shares.
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    paste: Uuid,
    /// The time left, as the page rounds it.
    life: Duration,
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
struct Permits {
    _highlighter: OwnedSemaphorePermit,
    _slot: Slot,
}

impl Rendered {
    pub fn new(bytes: u64) -> Self {
        let pages = usize::try_from(bytes / 16_384).unwrap_or(usize::MAX).clamp(16, 65_536);
        Self {
            pages: cache(pages, bytes),
            highlighters: Arc::new(Semaphore::new(HIGHLIGHTERS)),
            plain: Arc::new(Semaphore::new(PLAIN_RENDERERS)),
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
    ) -> Result<Bytes, CommonProblem> {
        let key = Key { paste: paste.paste_id, life: duration::round(paste.life) };
        if let Some(page) = self.pages.get(&key) {
            return Ok(page);
        }
        let (base_url, paste) = (base_url.to_owned(), Arc::clone(paste));
        let render = move |colours| view::paste(&base_url, &paste, colours);
        // The guard comes after the slot and is kept only with all permits: a request that
        // waits for it waits for a page that is being highlighted, not for the slot of another address.
        let Ok(slot) = self.own_slot(client).await else {
            return Ok(self.plain(render).await?.into());
        };
        let guard = self.pages.get_value_or_guard_async(&key);
        let guard = match tokio::time::timeout(SAME_PAGE, guard).await {
            Ok(Ok(page)) => return Ok(page),
            Ok(Err(guard)) => guard,
            Err(_) => return Ok(self.plain(render).await?.into()),
        };
        let Some(permits) = self.permits(slot) else {
            drop(guard);
            return Ok(self.plain(render).await?.into());
        };
        let page: Bytes = highlighted(permits, render).await?.into();
        // If the entry was removed meanwhile, the page is still valid.
        let _ = guard.insert(page.clone());
        Ok(page)
    }

    /// Renders on a blocking thread: highlighted if there is a permit for it, plain otherwise.
    pub async fn work<T: Send + 'static>(
        &self,
        client: Option<IpAddr>,
        render: impl FnOnce(Colours) -> T + Send + 'static,
    ) -> Result<T, CommonProblem> {
        match self.own_slot(client).await.ok().and_then(|slot| self.permits(slot)) {
            Some(permits) => highlighted(permits, render).await,
            None => self.plain(render).await,
        }
    }

    async fn plain<T: Send + 'static>(
        &self,
        render: impl FnOnce(Colours) -> T + Send + 'static,
    ) -> Result<T, CommonProblem> {
        let permit = Arc::clone(&self.plain).acquire_owned();
        let permit = tokio::time::timeout(TIMEOUT, permit).await;
        let permit = permit.map_err(|_| CommonProblem::Busy)?.map_err(|_| CommonProblem::Busy)?;
        blocking(permit, || render(Colours::NoneFree)).await
    }

    /// Waits for the slot of this address; an unknown address has none. Fails if another request of
    /// the address has the slot for too long.
    async fn own_slot(&self, client: Option<IpAddr>) -> Result<Slot, Elapsed> {
        let Some(slot) = client.and_then(|client| self.slot(client)) else { return Ok(None) };
        // A semaphore that is never closed gives a permit.
        tokio::time::timeout(OWN_SLOT, slot.acquire_owned()).await.map(Result::ok)
    }

    /// Returns permits to highlight a page, or `None` to render it plain.
    fn permits(&self, slot: Slot) -> Option<Permits> {
        let highlighter = Arc::clone(&self.highlighters).try_acquire_owned().ok()?;
        Some(Permits { _highlighter: highlighter, _slot: slot })
    }

    fn slot(&self, client: IpAddr) -> Option<Arc<Semaphore>> {
        let hash = self.hasher.hash_one(client_key(client));
        let at = usize::try_from(hash % SLOTS as u64).ok()?;
        self.slots.get(at).cloned()
    }
}

async fn highlighted<T: Send + 'static>(
    permits: Permits,
    render: impl FnOnce(Colours) -> T + Send + 'static,
) -> Result<T, CommonProblem> {
    blocking(permits, || render(Colours::Wanted)).await
}

/// Runs work on a blocking thread. The permit moves into the work, which continues if its reader
/// leaves.
async fn blocking<T: Send + 'static>(
    permit: impl Send + 'static,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CommonProblem> {
    let working = move || {
        let done = work();
        drop(permit);
        done
    };
    tokio::task::spawn_blocking(working).await.map_err(|_| CommonProblem::Defect)
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
        let rendering = tokio::spawn(async move {
            let render = move |_| {
                let _ = begin.send(());
                let _ = ended.recv();
            };
            rendered.work(Some(client), render).await.expect("a page");
        });
        begun.await.expect("it begins");
        (rendering, end)
    }

    async fn colours(rendered: &Rendered, client: IpAddr) -> Colours {
        rendered.work(Some(client), |colours| colours).await.expect("a page")
    }

    #[tokio::test]
    async fn e27_page_is_plain_if_no_permit_is_free() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let all = addresses(&rendered, HIGHLIGHTERS + 1);
        let mut rendering = Vec::new();
        for address in &all[..HIGHLIGHTERS] {
            rendering.push(slow(&rendered, *address).await);
        }
        assert_eq!(colours(&rendered, all[HIGHLIGHTERS]).await, Colours::NoneFree);
        rendering.pop();
        until_free(&rendered, 1).await;
        assert_eq!(colours(&rendered, all[HIGHLIGHTERS]).await, Colours::Wanted);
    }

    #[tokio::test]
    async fn e27_address_highlights_one_page_at_a_time() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let all = addresses(&rendered, 2);
        let first = slow(&rendered, all[0]).await;
        assert_eq!(colours(&rendered, all[0]).await, Colours::NoneFree);
        assert_eq!(colours(&rendered, all[1]).await, Colours::Wanted, "others are not held up");
        drop(first);
        until_free(&rendered, HIGHLIGHTERS).await;
        assert_eq!(colours(&rendered, all[0]).await, Colours::Wanted);
    }

    #[tokio::test]
    async fn e27_work_counts_until_its_end_if_its_reader_disconnects() {
        let rendered = Arc::new(Rendered::new(1 << 20));
        let address = IpAddr::from([192, 0, 2, 1]);
        let (rendering, end) = slow(&rendered, address).await;
        rendering.abort();
        assert!(rendering.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(rendered.highlighters.available_permits(), HIGHLIGHTERS - 1);
        assert_eq!(colours(&rendered, address).await, Colours::NoneFree);
        drop(end);
        until_free(&rendered, HIGHLIGHTERS).await;
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
    async fn e27_page_does_not_wait_for_the_slot_of_another_address() {
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
        assert!(is_coloured(&shown) && took < OWN_SLOT / 2, "{took:?}");
        let (shown, _) = waiting.await.expect("a page");
        assert!(!is_coloured(&shown), "its slot is still taken");
        drop(busy);
    }

    #[tokio::test]
    async fn e27_page_is_plain_if_another_request_never_finishes_it() {
        let rendered = Rendered::new(1 << 20);
        let key = Key { paste: paste().paste_id, life: duration::round(paste().life) };
        let guard = rendered.pages.get_value_or_guard_async(&key).await;
        assert!(guard.is_err());
        let (shown, took) = page(&rendered, IpAddr::from([192, 0, 2, 1])).await;
        assert!(!is_coloured(&shown) && took < Duration::from_secs(20), "{took:?}");
        drop(guard);
    }

    #[tokio::test]
    async fn e27_largest_page_is_cached() {
        let rendered = Rendered::new(32 << 20);
        let key = Key { paste: paste().paste_id, life: Duration::ZERO };
        rendered.pages.insert(key, vec![b'x'; view::largest_page(usize::MAX)].into());
        assert!(rendered.pages.get(&key).is_some());
    }

    /// Waits until `count` pages could be highlighted.
    async fn until_free(rendered: &Rendered, count: usize) {
        let count = u32::try_from(count).expect("a few");
        let permits = rendered.highlighters.acquire_many(count);
        let permits = tokio::time::timeout(Duration::from_secs(60), permits).await;
        drop(permits.expect("they end").expect("open"));
    }
}
