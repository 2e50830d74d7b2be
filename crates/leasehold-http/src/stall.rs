//! Deadlines: for a body that does not arrive, and for a client that reads its response too slowly.
//!
//! # What can go wrong
//! - A connection is closed while the client still sends, as after "too large": the system then
//!   resets it, and the client may never see the response. So incoming bytes are read and dropped for a
//!   second.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::body::BodyTimeout;
use crate::server::ServerLimits;

/// How long incoming bytes are read and dropped after the last response, and how many at most.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// A body that must arrive within `limit` of the first poll.
pub struct TimedBody {
    body: Incoming,
    limit: Duration,
    /// Set at the first poll; most requests have no body.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl TimedBody {
    pub fn wrap(body: Incoming, limit: Duration) -> Body {
        match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(Self { body, limit, deadline: None }),
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let limit = self.limit;
        let late =
            self.deadline.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context);
        // Checked first: otherwise a client that always has one more byte ready could send for ever.
        if late.is_ready() {
            return Poll::Ready(Some(Err(Box::new(BodyTimeout))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Counts the responses of a connection: each has its own time limit.
#[derive(Clone, Default)]
pub struct ResponseCount(Arc<AtomicU64>);

impl ResponseCount {
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Measures how a client reads its responses: at a minimum speed, and each within a time limit. Only
/// time spent waiting for the client counts, so a response that we produce slowly costs it nothing.
struct ReadSpeed {
    limit: Duration,
    /// Bytes that the client must read per `limit` of waiting.
    least: u64,
    response_limit: Duration,
    waiting_since: Option<Instant>,
    /// Time waited since the speed was checked last, and the bytes that the client read.
    waited: Duration,
    read: u64,
    /// The response that is being sent, and the time waited in it.
    response: u64,
    waited_in_response: Duration,
}

impl ReadSpeed {
    fn new(limits: &ServerLimits) -> Self {
        let least = (limits.stall.as_secs_f64() * f64::from(limits.least_speed)) as u64;
        Self {
            limit: limits.stall,
            least: least.max(1),
            response_limit: limits.response,
            waiting_since: None,
            waited: Duration::ZERO,
            read: 0,
            response: 0,
            waited_in_response: Duration::ZERO,
        }
    }

    /// Adds the time waited until `now`, while response number `response` is being sent.
    fn add_wait(&mut self, now: Instant, response: u64) {
        if let Some(since) = self.waiting_since.take() {
            let waited = now.saturating_duration_since(since);
            self.waited += waited;
            self.waited_in_response += waited;
        }
        if response != self.response {
            self.response = response;
            self.waited_in_response = Duration::ZERO;
        }
    }

    fn add_bytes(&mut self, bytes: usize) {
        self.read = self.read.saturating_add(bytes as u64);
    }

    /// Starts to wait for the client at `now`. Returns when to check its speed next at the latest, or
    /// `None` if it is too slow.
    fn begin_wait(&mut self, now: Instant) -> Option<Instant> {
        if self.waited_in_response >= self.response_limit {
            return None;
        }
        if self.waited >= self.limit {
            if self.read < self.least {
                return None;
            }
            (self.waited, self.read) = (Duration::ZERO, 0);
        }
        self.waiting_since = Some(now);
        Some(now + (self.limit - self.waited).min(self.response_limit - self.waited_in_response))
    }
}

/// A connection whose client must read what is written.
pub struct TimedWrites<T> {
    stream: T,
    speed: ReadSpeed,
    responses: ResponseCount,
    /// When the speed is checked next. Reused, so that a slow reader costs one timer.
    deadline: Option<Pin<Box<Sleep>>>,
    /// After the last response: until when, and how many bytes, to discard.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<T> TimedWrites<T> {
    pub fn new(stream: T, limits: &ServerLimits, responses: ResponseCount) -> Self {
        Self { stream, speed: ReadSpeed::new(limits), responses, deadline: None, lingering: None }
    }

    fn watch<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
        bytes: impl FnOnce(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        let now = Instant::now();
        self.speed.add_wait(now, self.responses.0.load(Ordering::Relaxed));
        if let Poll::Ready(Ok(done)) = &written {
            self.speed.add_bytes(bytes(done));
        }
        if written.is_ready() {
            return written;
        }
        let Some(until) = self.speed.begin_wait(now) else {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        };
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep_until(until)));
        deadline.as_mut().reset(until);
        // If the deadline has passed already, wake up at once and check again.
        if deadline.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedWrites<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedWrites<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(context, written, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let closed = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.watch(context, closed, |()| 0))?;
        }
        self.linger(context).map(Ok)
    }
}

impl<T: AsyncRead + Unpin> TimedWrites<T> {
    /// Ready when the client has closed its side too, or when `LINGER` or `LINGER_BYTES` is used up.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (end, left) =
            self.lingering.get_or_insert_with(|| (Box::pin(sleep(LINGER)), LINGER_BYTES));
        let mut sink = [0; 8192];
        while *left > 0 && end.as_mut().poll(context).is_pending() {
            let mut into = ReadBuf::new(&mut sink);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut into)) {
                Ok(()) if !into.filled().is_empty() => {
                    *left = left.saturating_sub(into.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the second, of 200, in which a client is cut off that takes `bytes` per second, with a
    /// new response every `response_seconds`.
    fn lasts(limits: &ServerLimits, bytes: usize, response_seconds: u64) -> Option<u64> {
        let (mut speed, start) = (ReadSpeed::new(limits), Instant::now());
        for second in 0..200 {
            let now = start + Duration::from_secs(second);
            speed.add_wait(now, second / response_seconds);
            speed.add_bytes(bytes);
            if speed.begin_wait(now).is_none() {
                return Some(second);
            }
        }
        None
    }

    fn limits() -> ServerLimits {
        ServerLimits { least_speed: 100, ..ServerLimits::default() }
    }

    #[test]
    fn h22_client_below_the_least_speed_is_cut_off() {
        assert_eq!(lasts(&limits(), 20, 1000), Some(30));
        assert_eq!(lasts(&limits(), 0, 1000), Some(30));
        assert_eq!(lasts(&limits(), 20, 10), Some(30), "with ever new responses too");
        assert_eq!(lasts(&limits(), 200, 1000), None, "a client that is fast enough stays");
    }

    #[test]
    fn h22_response_has_a_time_limit_however_fast_it_is_read() {
        let limits = ServerLimits { response: Duration::from_secs(90), ..limits() };
        assert_eq!(lasts(&limits, 200, 1000), Some(90));
        assert_eq!(lasts(&limits, 200, 80), None, "each response has its own time");
    }

    #[test]
    fn h22_only_time_spent_waiting_for_the_client_counts() {
        let (mut speed, start) = (ReadSpeed::new(&limits()), Instant::now());
        for hour in 0..100 {
            let now = start + Duration::from_secs(3600 * hour);
            speed.add_wait(now, 1);
            assert!(speed.begin_wait(now).is_some());
            // 100 ms later it has read one byte; then nothing is sent for an hour.
            speed.add_wait(now + Duration::from_millis(100), 1);
            speed.add_bytes(1);
        }
    }
}
