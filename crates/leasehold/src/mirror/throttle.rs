//! Limits what is asked of a store. Pure: the caller passes the time.
//!
//! # What is true
//! - A store that does not answer gets no calls for a while, twice as long after each failure. Then one
//!   caller probes it; the others wait for the result. A call that began before the store was closed
//!   changes nothing when it fails, however late.
//! - A store that is slow or reports overload gets half as many rows per call, and a quarter more after
//!   each success, up to the declared batch.

use std::time::{Duration, Instant};

/// The fewest rows per call.
const LEAST: usize = 10;
/// The rows of a first call.
const FIRST: usize = 1000;
/// The wait after a call that asked for too much.
const SHORT_WAIT: Duration = Duration::from_millis(250);
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest time until a store that is back is noticed. One small call per 30 s costs little.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The most bytes of documents in memory at one time.
const ROOM: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct StoreThrottle {
    size: usize,
    failures: u32,
    /// When the store was last closed.
    closed_at: Option<Instant>,
    /// No call before this.
    closed_until: Option<Instant>,
    /// A probe is under way; without a result by this time, another caller may probe.
    probe_until: Option<Instant>,
    bytes_each: usize,
}

/// Whether to call the store now, and with how many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Granted(usize),
    RetryAfter(Duration),
}

impl Default for StoreThrottle {
    fn default() -> Self {
        Self {
            size: FIRST,
            failures: 0,
            closed_at: None,
            closed_until: None,
            probe_until: None,
            bytes_each: 0,
        }
    }
}

impl StoreThrottle {
    /// Decides whether to call the store. `most`: the declared batch. `limit`: the timeout of a call.
    pub(super) fn ask(&mut self, most: usize, limit: Duration, now: Instant) -> Permit {
        let size = self.size(most);
        match (self.closed_until, self.probe_until) {
            (None, _) => Permit::Granted(size),
            (Some(until), _) if now < until => Permit::RetryAfter(until - now),
            (Some(_), Some(probe)) if now < probe => Permit::RetryAfter(self.wait()),
            (Some(_), _) => {
                self.probe_until = Some(now + limit.saturating_mul(4));
                Permit::Granted(LEAST)
            }
        }
    }

    /// Returns with how many rows the store would be called.
    pub(super) fn size(&self, most: usize) -> usize {
        self.size.min(self.fits(most))
    }

    /// Returns how many of `most` documents fit into memory at one time.
    pub(super) fn fits(&self, most: usize) -> usize {
        most.min(ROOM.checked_div(self.bytes_each).unwrap_or(most).max(LEAST))
    }

    /// Returns true while the store is closed, or a probe is under way.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        self.closed_until.is_some_and(|until| now < until || self.probe_until.is_some())
    }

    /// Returns true while no caller may ask, not even as a probe.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.closed_until.is_some_and(|until| now < until)
    }

    /// Records a success. Returns whether the store had been closed.
    pub(super) fn succeeded(&mut self, most: usize) -> bool {
        let was_away = self.closed_until.is_some();
        self.failures = 0;
        self.closed_until = None;
        self.probe_until = None;
        self.size = (self.size + (self.size / 4).max(1)).min(most.max(LEAST));
        was_away
    }

    /// The caller that was let in made no call: another one may probe.
    pub(super) fn unasked(&mut self) {
        self.probe_until = None;
    }

    /// Returns whether a call began before the store was closed: its failure is no news.
    pub(super) fn is_late(&self, asked: Instant) -> bool {
        self.closed_at.is_some_and(|closed| asked < closed)
    }

    /// Records a failure and returns how long the store is closed. `too_much`: it was slow, or reported
    /// overload. `asked`: when the call began.
    pub(super) fn failed(&mut self, too_much: bool, asked: Instant, now: Instant) -> Duration {
        if self.is_late(asked) {
            let until = self.closed_until.map(|until| until.saturating_duration_since(now));
            return until.unwrap_or_default().max(SHORT_WAIT);
        }
        let wait = if too_much && self.size > LEAST {
            // A smaller call may succeed, so retry soon.
            self.size = (self.size / 2).max(LEAST);
            SHORT_WAIT
        } else {
            let wait = self.wait();
            self.failures = self.failures.saturating_add(1);
            wait
        };
        self.closed_at = Some(now);
        self.closed_until = Some(now + wait);
        self.probe_until = None;
        wait
    }

    /// Records the size of documents: a call with large ones takes fewer.
    pub(super) fn weighed(&mut self, documents: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(documents) {
            self.bytes_each = each.max(1);
        }
    }

    fn wait(&self) -> Duration {
        FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn f11_a_store_that_is_away_is_asked_by_one_at_a_time_and_ever_less_often() {
        let (mut throttle, now) = (StoreThrottle::default(), Instant::now());
        assert_eq!(throttle.failed(false, now, now), SECOND);
        assert!(
            matches!(throttle.ask(2500, LIMIT, now), Permit::RetryAfter(wait) if wait == SECOND)
        );
        assert_eq!(throttle.ask(2500, LIMIT, now + SECOND), Permit::Granted(10), "one asks");
        assert!(
            matches!(throttle.ask(2500, LIMIT, now + SECOND), Permit::RetryAfter(_)),
            "and only one"
        );
        assert!(throttle.is_closed(now + SECOND));
        let fails_at = |throttle: &mut StoreThrottle, at| throttle.failed(false, at, at);
        assert_eq!(fails_at(&mut throttle, now + SECOND), 2 * SECOND);
        assert_eq!(fails_at(&mut throttle, now + 3 * SECOND), 4 * SECOND);
        let mut later = now + 7 * SECOND;
        for _ in 0..20 {
            later += fails_at(&mut throttle, later);
        }
        assert_eq!(fails_at(&mut throttle, later), LONGEST_WAIT);
    }

    #[test]
    fn f11_calls_that_were_under_way_together_are_one_failure() {
        let (mut throttle, begun) = (StoreThrottle::default(), Instant::now());
        let now = begun + LIMIT;
        assert_eq!(throttle.failed(true, begun, now), SHORT_WAIT);
        for late in 1..200 {
            throttle.failed(true, begun, now + late * SHORT_WAIT / 100);
        }
        assert_eq!(
            throttle.ask(2500, LIMIT, now + 2 * SHORT_WAIT),
            Permit::Granted(10),
            "one asks"
        );
        throttle.failed(true, begun, now + 2 * SHORT_WAIT);
        let second = throttle.ask(2500, LIMIT, now + 2 * SHORT_WAIT);
        assert!(matches!(second, Permit::RetryAfter(_)), "and is still the only one");
        assert!(throttle.succeeded(2500));
        throttle.failed(false, begun, now + 3 * SHORT_WAIT);
        assert_eq!(
            throttle.ask(2500, LIMIT, now + 3 * SHORT_WAIT),
            Permit::Granted(625),
            "halved once"
        );
    }

    #[test]
    fn who_asks_and_is_never_heard_of_again_does_not_keep_the_others_away() {
        let (mut throttle, now) = (StoreThrottle::default(), Instant::now());
        throttle.failed(false, now, now);
        assert_eq!(throttle.ask(2500, LIMIT, now + SECOND), Permit::Granted(10));
        assert_eq!(throttle.ask(2500, LIMIT, now + 42 * SECOND), Permit::Granted(10));
    }

    #[test]
    fn who_was_let_in_and_asks_nothing_keeps_nobody_away_and_proves_nothing() {
        let (mut throttle, now) = (StoreThrottle::default(), Instant::now());
        throttle.failed(false, now, now);
        assert_eq!(throttle.ask(2500, LIMIT, now + SECOND), Permit::Granted(10));
        throttle.unasked();
        assert_eq!(
            throttle.ask(2500, LIMIT, now + SECOND),
            Permit::Granted(10),
            "the next one asks"
        );
        let asked = now + SECOND;
        assert_eq!(throttle.failed(false, asked, asked), 2 * SECOND, "as if nothing had been");
    }

    #[test]
    fn f11_too_much_is_halved_and_grows_again_by_a_quarter() {
        let (mut throttle, now) = (StoreThrottle::default(), Instant::now());
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(1000));
        throttle.failed(true, now, now);
        assert!(throttle.succeeded(2500), "it had been away");
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(625));
        assert!(!throttle.succeeded(2500));
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(781));
        let mut later = now;
        for _ in 0..20 {
            later += throttle.failed(true, later, later);
        }
        throttle.succeeded(2500);
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(12), "never below ten");
        for _ in 0..50 {
            throttle.succeeded(2500);
        }
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(2500));
        assert_eq!(throttle.ask(100, LIMIT, now), Permit::Granted(100));
    }

    #[test]
    fn large_documents_are_read_few_at_a_time() {
        let (mut throttle, now) = (StoreThrottle::default(), Instant::now());
        throttle.weighed(100, 100 << 20);
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(16));
        throttle.weighed(100, 100_000);
        assert_eq!(throttle.ask(2500, LIMIT, now), Permit::Granted(1000));
    }
}
