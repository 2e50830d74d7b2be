//! Patience that ends: a body that does not arrive, and a client that does not take its answer.
//!
//! # What can go wrong
//! - A connection is closed while the client still sends, as after "too large": the system then resets
//!   it, and the client may never see the answer. So what still comes is thrown away for a moment.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::body::Late;

/// What still comes after the last answer is thrown away for so long, and so much of it.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 * 1024 * 1024;

/// A body that must have arrived some time after the first look at it.
pub struct Timed {
    body: Incoming,
    limit: Duration,
    /// Made when the body is waited for; most requests have none.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub fn body(body: Incoming, limit: Duration) -> Body {
        match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(Self { body, limit, deadline: None }),
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let limit = self.limit;
        let late =
            self.deadline.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(context);
        // Looked at first: a client that always has one more byte ready must not go on for ever.
        if late.is_ready() {
            return Poll::Ready(Some(Err(Box::new(Late))));
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

/// A connection whose other side must take what is written.
pub struct Stalling<T> {
    stream: T,
    limit: Duration,
    /// When the write that waits is given up. Kept and moved, so that slow readers cost one timer.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    /// Until when, and how much: after the last answer.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<T> Stalling<T> {
    pub fn new(stream: T, limit: Duration) -> Self {
        Self { stream, limit, deadline: None, waiting: false, lingering: None }
    }

    fn watch<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !self.waiting {
            self.waiting = true;
            deadline.as_mut().set(sleep_until(Instant::now() + limit));
        }
        match deadline.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stalling<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stalling<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let closed = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.watch(context, closed))?;
        }
        self.linger(context).map(Ok)
    }
}

impl<T: AsyncRead + Unpin> Stalling<T> {
    /// Ready when the client has closed its side too, or when it had its chance.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (end, left) =
            self.lingering.get_or_insert_with(|| (Box::pin(sleep(LINGER)), LINGER_BYTES));
        let mut thrown_away = [0; 8192];
        while *left > 0 && end.as_mut().poll(context).is_pending() {
            let mut into = ReadBuf::new(&mut thrown_away);
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
