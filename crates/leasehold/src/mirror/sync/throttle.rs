//! Limits what is asked of a store: whether it may be called now, and with how many rows. Pure: the caller
//! passes the time.
//!
//! # Invariants
//! - A store that does not respond gets no calls for a while, twice as long after each failure. Then one
//!   caller probes it; the others wait for the result. A call that began before the store was closed
//!   changes nothing when it fails, however late.
//! - A store that is slow or reports overload gets half as many rows per call, and a quarter more after
//!   each success, up to the declared claim size.
//! - A permit that is dropped without a result proves nothing, and lets the next caller probe.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::breaker::{Breaker, BreakerPermit};
use crate::{Backoff, Jitter};

/// The fewest rows per call.
const LEAST: usize = 10;
/// The rows of a first call.
const FIRST: usize = 1000;
/// The wait after a call that asked for too much.
const SHORT_WAIT: Duration = Duration::from_millis(250);
/// The wait after a failure: 1 s at first. At most 30 s pass until a store that is back is noticed; one small
/// call per 30 s costs little.
const WAIT: Backoff =
    Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30)).jitter(Jitter::None);
/// The most bytes of documents in memory at one time.
const ROOM: usize = 16 << 20;

/// What the tasks of this process know about one set of a store.
#[derive(Debug)]
pub(crate) struct StoreThrottle {
    breaker: Breaker,
    size: Mutex<Size>,
}

#[derive(Debug)]
struct Size {
    /// Rows per call.
    rows: usize,
    /// Consecutive failures that were not about the number of rows.
    failures: i32,
    bytes_each: usize,
}

impl Size {
    fn wait(&self) -> Duration {
        WAIT.wait_after(self.failures.saturating_add(1), 0.0)
    }

    fn fits(&self, most: usize) -> usize {
        most.min(ROOM.checked_div(self.bytes_each).unwrap_or(most).max(LEAST))
    }
}

/// A permit for one call. Report its result; dropping it means that no call was made.
#[must_use = "a permit that is not used keeps others from probing the store"]
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    throttle: &'a StoreThrottle,
    call: BreakerPermit<'a>,
    rows: usize,
}

/// What a failed call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// How long the store gets no calls.
    pub(crate) wait: Duration,
    /// False: the store was closed already when the call failed.
    pub(crate) is_news: bool,
}

impl Default for StoreThrottle {
    fn default() -> Self {
        Self {
            // Every failure opens it; `Permit::failed` computes the pause.
            breaker: Breaker::new(1, 1, WAIT.base),
            size: Mutex::new(Size { rows: FIRST, failures: 0, bytes_each: 0 }),
        }
    }
}

impl StoreThrottle {
    /// Asks for a permit for a call with up to `most` rows. `Err`: do not call; retry after this time.
    pub(crate) fn ask(&self, most: usize, now: Instant) -> Result<Permit<'_>, Duration> {
        match self.breaker.permit(now) {
            Ok(call) => {
                let rows = if call.is_probe() { LEAST } else { self.rows(most) };
                Ok(Permit { throttle: self, call, rows })
            }
            // A probe is under way. If it fails, the store is closed for this time.
            Err(_) if self.breaker.cooldown(now).is_none() => Err(self.size().wait()),
            Err(wait) => Err(wait),
        }
    }

    /// Returns a permit for a call that is made whether or not the store answers others: its result
    /// counts, but it does not keep a pass from probing the store.
    pub(crate) fn observe(&self) -> Permit<'_> {
        Permit { throttle: self, call: self.breaker.observe(), rows: 0 }
    }

    /// Returns with how many rows the store would be called.
    pub(crate) fn rows(&self, most: usize) -> usize {
        let size = self.size();
        size.rows.min(size.fits(most))
    }

    /// Returns how many of `most` documents fit into memory at one time.
    pub(crate) fn fits(&self, most: usize) -> usize {
        self.size().fits(most)
    }

    /// Returns true while the store is closed, or a probe is under way.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        self.is_cooling_down(now) || (self.breaker.is_open() && self.breaker.is_probed())
    }

    /// Returns true while no caller may ask, not even as a probe.
    pub(crate) fn is_cooling_down(&self, now: Instant) -> bool {
        self.breaker.cooldown(now).is_some()
    }

    /// Records the size of documents: a call with large ones takes fewer.
    pub(crate) fn weighed(&self, documents: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(documents) {
            self.size().bytes_each = each.max(1);
        }
    }

    fn size(&self) -> MutexGuard<'_, Size> {
        self.size.lock()
    }
}

impl Permit<'_> {
    /// Returns the most rows of the call.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Records a success. `most`: the declared claim size. Returns true if the store had been closed.
    pub(crate) fn succeeded(self, most: usize) -> bool {
        let mut size = self.throttle.size();
        size.failures = 0;
        size.rows = (size.rows + (size.rows / 4).max(1)).min(most.max(LEAST));
        self.call.succeed()
    }

    /// Records a failure. `too_much`: the store was slow, or reported overload.
    pub(crate) fn failed(self, too_much: bool, now: Instant) -> Closed {
        // Locked until the breaker is open: calls that fail together must not count twice.
        let mut size = self.throttle.size();
        if self.call.is_late() {
            let cooldown = self.throttle.breaker.cooldown(now).unwrap_or_default();
            return Closed { wait: cooldown.max(SHORT_WAIT), is_news: false };
        }
        let wait = if too_much && size.rows > LEAST {
            // A smaller call may succeed, so retry soon.
            size.rows = (size.rows / 2).max(LEAST);
            SHORT_WAIT
        } else {
            let wait = size.wait();
            size.failures = size.failures.saturating_add(1);
            wait
        };
        self.call.fail_for(wait, now);
        Closed { wait, is_news: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Makes a call that fails.
    fn fail(throttle: &StoreThrottle, too_much: bool, at: Instant) -> Duration {
        throttle.ask(2500, at).expect("a permit").failed(too_much, at).wait
    }

    /// Makes a call that succeeds. Returns true if the store had been closed.
    fn succeed(throttle: &StoreThrottle, at: Instant) -> bool {
        throttle.ask(2500, at).expect("a permit").succeeded(2500)
    }

    /// Returns how many rows a call may have, without making one.
    fn rows(throttle: &StoreThrottle, most: usize, at: Instant) -> usize {
        throttle.ask(most, at).expect("a permit").rows()
    }

    #[test]
    fn f11_closed_store_gets_one_probe_at_a_time_after_growing_waits() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        assert_eq!(fail(&throttle, false, now), SECOND);
        assert_eq!(throttle.ask(2500, now).err(), Some(SECOND));
        let probe = throttle.ask(2500, now + SECOND).expect("one probes");
        assert_eq!(probe.rows(), LEAST);
        assert!(throttle.is_closed(now + SECOND));
        let next = throttle.ask(2500, now + SECOND).err();
        assert_eq!(next, Some(2 * SECOND), "the others wait as long as they will if it fails");
        assert_eq!(probe.failed(false, now + SECOND).wait, 2 * SECOND);
        assert_eq!(fail(&throttle, false, now + 3 * SECOND), 4 * SECOND);
        let mut later = now + 7 * SECOND;
        for _ in 0..20 {
            later += fail(&throttle, false, later);
        }
        assert_eq!(fail(&throttle, false, later), WAIT.cap);
    }

    #[test]
    fn f11_calls_that_were_under_way_together_are_one_failure() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        let mut under_way: Vec<_> =
            (0..200).map(|_| throttle.ask(2500, now).expect("open")).collect();
        let (late, last) = (under_way.split_off(2), under_way.pop().expect("one"));
        let first = under_way.pop().expect("one").failed(true, now);
        assert_eq!(first, Closed { wait: SHORT_WAIT, is_news: true });
        for permit in late {
            assert!(!permit.failed(true, now).is_news);
        }
        let later = now + SHORT_WAIT;
        let probe = throttle.ask(2500, later).expect("one probes");
        last.failed(true, later);
        assert!(throttle.ask(2500, later).is_err(), "the probe is still the only one");
        let late = throttle.observe();
        assert!(probe.succeeded(2500));
        assert_eq!(rows(&throttle, 2500, later), 625, "halved once");
        assert!(late.failed(false, later).is_news, "it began after the store was closed");
    }

    #[test]
    fn permit_that_is_dropped_proves_nothing_and_lets_the_next_caller_probe() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        fail(&throttle, false, now);
        let later = now + SECOND;
        drop(throttle.ask(2500, later).expect("a probe"));
        assert_eq!(rows(&throttle, 2500, later), LEAST, "the next one is the probe");
        assert_eq!(fail(&throttle, false, later), 2 * SECOND, "as if there had been no permit");
    }

    #[test]
    fn f11_observer_takes_no_probe_and_its_result_counts() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        fail(&throttle, false, now);
        let later = now + SECOND;
        let observer = throttle.observe();
        assert_eq!(rows(&throttle, 2500, later), LEAST, "a pass may probe meanwhile");
        assert!(observer.succeeded(2500), "the store had been closed");
        assert!(!throttle.is_closed(later));
    }

    #[test]
    fn f11_calls_are_halved_when_they_are_too_much_and_grow_again_by_a_quarter() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        assert_eq!(rows(&throttle, 2500, now), 1000);
        let mut later = now + fail(&throttle, true, now);
        assert!(succeed(&throttle, later), "it had been closed");
        assert_eq!(rows(&throttle, 2500, later), 625);
        assert!(!succeed(&throttle, later));
        assert_eq!(rows(&throttle, 2500, later), 781);
        for _ in 0..20 {
            later += fail(&throttle, true, later);
        }
        succeed(&throttle, later);
        assert_eq!(rows(&throttle, 2500, later), 12, "never below ten");
        for _ in 0..50 {
            succeed(&throttle, later);
        }
        assert_eq!(rows(&throttle, 2500, later), 2500);
        assert_eq!(rows(&throttle, 100, later), 100);
    }

    #[test]
    fn large_documents_are_read_few_at_a_time() {
        let (throttle, now) = (StoreThrottle::default(), Instant::now());
        throttle.weighed(100, 100 << 20);
        assert_eq!(rows(&throttle, 2500, now), 16);
        throttle.weighed(100, 100_000);
        assert_eq!(rows(&throttle, 2500, now), 1000);
    }
}
