//! Drops a future at every point at which it can be dropped.
//!
//! A `select!`, a timeout or a client that hangs up drops a future wherever it happens to wait. Code
//! that holds a transaction, a pooled connection or a half-written message at that point must leave
//! nothing behind. This module runs the same work again and again, and drops it after its first wait,
//! its second, and so on, until it completes.
//!
//! ```no_run
//! # async fn test(database: leasehold_testing::TestDatabase) {
//! use leasehold_testing::cancel::for_each_poll;
//! let points = for_each_poll(
//!     async |_n| database.connect().await, // not part of what is dropped
//!     async |client| client.batch_execute("select 1").await,
//!     async |n, ended| match ended {
//!         Some(result) => assert!(result.is_ok()),
//!         None => { /* dropped after n waits: look for what it left behind */ }
//!     },
//! )
//! .await;
//! assert!(points > 1, "nothing was ever dropped in the middle");
//! # }
//! ```
//!
//! # Invariants
//! - `n` = 0 drops the future before it is polled at all.
//! - A wait is a poll that returns `Pending`. Their number may differ from run to run, as packets
//!   arrive together or apart; each run is dropped after its nth wait, or completes.
//!
//! # What can go wrong
//! - Work that never ends would run for ever: after [`MAX_POLLS`] waits the test fails.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// More waits than any single call should have.
pub const MAX_POLLS: u64 = 1_000;

/// Runs `work` on what `prepare` returns and drops it after its nth wait, for n = 0, 1, 2 … until it
/// completes. After each run, `check` gets n and, of the last run, its result. Returns the n of the
/// last run.
///
/// Panics if the work does not complete within [`MAX_POLLS`] waits.
#[expect(clippy::panic, reason = "the test fails here")]
pub async fn for_each_poll<S, T>(
    prepare: impl AsyncFn(u64) -> S,
    work: impl AsyncFn(S) -> T,
    check: impl AsyncFn(u64, Option<T>),
) -> u64 {
    for n in 0..=MAX_POLLS {
        let ended = drop_after(n, work(prepare(n).await)).await;
        let is_last = ended.is_some();
        check(n, ended).await;
        if is_last {
            return n;
        }
    }
    panic!("the work did not end within {MAX_POLLS} waits; does it end at all?");
}

/// Runs a future and drops it after its nth wait. Returns `None` if it was dropped.
pub async fn drop_after<F: Future>(n: u64, work: F) -> Option<F::Output> {
    if n == 0 {
        return None;
    }
    let mut work = pin!(work);
    let mut waits = 0;
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            waits += 1;
            if waits < n { Poll::Pending } else { Poll::Ready(None) }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn for_each_poll_drops_at_every_wait_and_completes_last() {
        let steps = Cell::new(0);
        let seen = RefCell::new(Vec::new());
        let last = for_each_poll(
            async |_| steps.set(0),
            async |()| {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                    steps.set(steps.get() + 1);
                }
                "whole"
            },
            async |n, ended| seen.borrow_mut().push((n, steps.get(), ended)),
        )
        .await;
        // Three waits: dropped before any, after the first, the second, the third; then the end.
        let whole = (4, 3, Some("whole"));
        let expected = vec![(0, 0, None), (1, 0, None), (2, 1, None), (3, 2, None), whole];
        assert_eq!((last, seen.into_inner()), (4, expected));
    }

    #[tokio::test]
    async fn for_each_poll_drops_the_work_before_the_check() {
        struct Held<'a>(&'a Cell<bool>);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        let held = Cell::new(false);
        for_each_poll(
            async |_| {},
            async |()| {
                held.set(true);
                let _held = Held(&held);
                tokio::task::yield_now().await;
            },
            async |n, _| assert!(!held.get(), "still held after {n}"),
        )
        .await;
    }

    #[tokio::test]
    #[should_panic(expected = "did not end")]
    async fn for_each_poll_panics_on_endless_work() {
        let for_ever = async |()| {
            loop {
                tokio::task::yield_now().await;
            }
        };
        for_each_poll(async |_| {}, for_ever, async |_, _: Option<()>| {}).await;
    }
}
