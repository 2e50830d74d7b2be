//! Memory for request bodies and responses: bounded in total and per client.
//!
//! # Invariants
//! - All clients together hold at most the budget, one client at most its share: an eighth. So a client
//!   that stalls leaves seven eighths to the others.
//! - A response holds its memory until its last piece was handed to the connection: see
//!   [`hold_memory`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::BodyError;
use crate::limits::client_key;

/// Memory is handed out in pieces of this size.
pub(crate) const PIECE: usize = 16 * 1024;
/// One client holds at most this part of a budget.
const SHARE: usize = 8;
/// Bytes of a response that are handed to the connection at a time.
const SLICE: usize = 64 * 1024;
/// Number of known clients at which those that hold nothing are pruned.
const PRUNE_AT: usize = 256;

/// Memory that all connections share.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    all: Arc<Semaphore>,
    share: usize,
    clients: Mutex<Clients>,
}

struct Clients {
    known: HashMap<IpAddr, Weak<Semaphore>>,
    prune_at: usize,
}

/// The part of a budget that one client may use.
#[derive(Clone)]
pub struct Share {
    all: Arc<Semaphore>,
    /// `None`: the client is unknown, so only the total budget applies.
    own: Option<Arc<Semaphore>>,
}

/// Reserved memory. It returns to the budget when this is dropped.
#[derive(Default)]
pub struct MemoryPermit {
    all: Option<OwnedSemaphorePermit>,
    own: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Self::with_share(bytes, 0)
    }

    /// Creates a budget whose shares are at least `least` bytes: the largest body that one client may
    /// send.
    pub fn with_share(bytes: usize, least: usize) -> Self {
        let pieces = (bytes / PIECE).clamp(1, Semaphore::MAX_PERMITS);
        let share = (pieces / SHARE).max(least.div_ceil(PIECE)).clamp(1, pieces);
        let clients = Clients { known: HashMap::new(), prune_at: PRUNE_AT };
        let all = Arc::new(Semaphore::new(pieces));
        Self(Arc::new(Inner { all, share, clients: Mutex::new(clients) }))
    }

    /// Returns the share of this client.
    pub fn of(&self, client: Option<IpAddr>) -> Share {
        let own = client.map(|client| self.0.client(client_key(client)));
        Share { all: Arc::clone(&self.0.all), own }
    }
}

impl Inner {
    /// Returns what is left of a client's share. Clients that hold nothing are pruned, so memory is
    /// bounded by the number of those that hold some.
    fn client(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.known.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        if clients.known.len() >= clients.prune_at {
            clients.known.retain(|_, known| known.strong_count() > 0);
            clients.prune_at = (clients.known.len() * 2).max(PRUNE_AT);
        }
        let fresh = Arc::new(Semaphore::new(self.share));
        clients.known.insert(client, Arc::downgrade(&fresh));
        fresh
    }
}

impl Share {
    /// Makes sure that the permit holds `bytes` bytes.
    pub(crate) fn grow(&self, permit: &mut MemoryPermit, bytes: usize) -> Result<(), BodyError> {
        let has = permit.all.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(PIECE).saturating_sub(has);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| BodyError::Busy)?;
        let more = |from: &Arc<Semaphore>| {
            Arc::clone(from).try_acquire_many_owned(missing).map_err(|_| BodyError::Busy)
        };
        let own = self.own.as_ref().map(more).transpose()?;
        let all = more(&self.all)?;
        add(&mut permit.all, Some(all));
        add(&mut permit.own, own);
        Ok(())
    }

    /// Holds `bytes` bytes. Waits up to `limit` for other requests to return memory, then fails with
    /// [`BodyError::Busy`]. So does a request for more than the client's share or the total budget.
    pub async fn hold(&self, bytes: usize, limit: Duration) -> Result<MemoryPermit, BodyError> {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).map_err(|_| BodyError::Busy)?;
        let holding = async {
            // The client's own share first: a request that waits for it must not take from other
            // clients.
            let own = match &self.own {
                Some(own) => Some(Arc::clone(own).acquire_many_owned(pieces).await),
                None => None,
            };
            let all = Arc::clone(&self.all).acquire_many_owned(pieces).await;
            let own = own.transpose().map_err(|_| BodyError::Busy)?;
            Ok(MemoryPermit { all: Some(all.map_err(|_| BodyError::Busy)?), own })
        };
        tokio::time::timeout(limit, holding).await.unwrap_or(Err(BodyError::Busy))
    }
}

fn add(permit: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (permit, more) {
        (Some(permit), Some(more)) => permit.merge(more),
        (permit @ None, more) => *permit = more,
        (Some(_), None) => {}
    }
}

impl MemoryPermit {
    /// Returns everything beyond `bytes` bytes to the budget.
    pub fn shrink(&mut self, bytes: usize) {
        let pieces = bytes.div_ceil(PIECE);
        for permit in [&mut self.all, &mut self.own].into_iter().flatten() {
            let extra = permit.num_permits().saturating_sub(pieces);
            drop(permit.split(extra));
        }
    }
}

/// Makes a response hold memory until the client has taken all but the last piece.
pub fn hold_memory(response: Response, mut permit: MemoryPermit) -> Response {
    if permit.all.is_none() {
        return response;
    }
    if let Some(bytes) = response.body().size_hint().exact() {
        permit.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    response.map(|body| Body::new(HeldBody { body, rest: Bytes::new(), _held: permit }))
}

/// A body that is handed out in slices. In one piece it would belong to the connection at once, and its
/// memory would return to the budget while the connection still holds the bytes for a slow client.
struct HeldBody {
    body: Body,
    rest: Bytes,
    _held: MemoryPermit,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        let slice = match self.rest.len() <= SLICE {
            // A copy: a slice would keep the whole response in memory.
            true => Bytes::copy_from_slice(&std::mem::take(&mut self.rest)),
            false => self.rest.split_to(SLICE),
        };
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    const SOON: Duration = Duration::from_millis(5);
    const ONE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const OTHER: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    #[tokio::test]
    async fn h22_client_holds_at_most_an_eighth_of_the_budget() {
        let budget = Budget::new(16 * PIECE);
        let first = budget.of(ONE).hold(2 * PIECE, SOON).await.ok();
        assert!(first.is_some());
        let mut more = MemoryPermit::default();
        assert!(matches!(budget.of(ONE).grow(&mut more, 1), Err(BodyError::Busy)));
        assert!(matches!(budget.of(ONE).hold(1, SOON).await, Err(BodyError::Busy)));
        assert!(budget.of(OTHER).hold(2 * PIECE, SOON).await.is_ok());
        drop(first);
        assert!(budget.of(ONE).grow(&mut more, 2 * PIECE).is_ok());
    }

    #[tokio::test]
    async fn h22_share_has_room_for_the_largest_body() {
        let budget = Budget::with_share(16 * PIECE, 5 * PIECE);
        assert!(budget.of(ONE).hold(5 * PIECE, SOON).await.is_ok());
        assert!(matches!(budget.of(ONE).hold(6 * PIECE, SOON).await, Err(BodyError::Busy)));
    }

    #[tokio::test]
    async fn h22_refused_client_takes_nothing_from_the_budget() {
        let budget = Budget::new(8 * PIECE);
        let all: Vec<MemoryPermit> = {
            let mut all = Vec::new();
            for last in 0..8 {
                let client = Some(IpAddr::from([198, 51, 100, last]));
                all.extend(budget.of(client).hold(PIECE, SOON).await.ok());
            }
            all
        };
        assert_eq!(all.len(), 8);
        let mut permit = MemoryPermit::default();
        assert!(budget.of(ONE).grow(&mut permit, 1).is_err());
        drop(all);
        assert!(budget.of(ONE).grow(&mut permit, 1).is_ok(), "its own share was returned");
    }

    #[test]
    fn h22_budget_forgets_clients_that_hold_nothing() {
        let budget = Budget::new(PIECE);
        for number in 0..10_000_u32 {
            drop(budget.of(Some(IpAddr::from(number.to_be_bytes()))));
        }
        let clients = budget.0.clients.lock();
        assert!(clients.known.len() <= PRUNE_AT, "{}", clients.known.len());
    }

    #[tokio::test]
    async fn h22_response_returns_its_memory_with_its_last_piece() {
        let budget = Budget::new(64 * PIECE);
        let permit = budget.of(None).hold(64 * PIECE, SOON).await.expect("all of it");
        let text = vec![b'x'; 3 * SLICE];
        let response = hold_memory(Response::new(Body::from(text.clone())), permit);
        assert_eq!(budget.0.all.available_permits(), 64 - 3 * SLICE / PIECE, "what it needs");
        let mut body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(3 * SLICE as u64));
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            assert!(data.len() <= SLICE);
            assert!(budget.0.all.available_permits() < 64);
            seen.extend_from_slice(&data);
        }
        drop(body);
        assert_eq!(seen, text);
        assert_eq!(budget.0.all.available_permits(), 64);
    }
}
