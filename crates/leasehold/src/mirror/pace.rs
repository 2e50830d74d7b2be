//! How much may be asked of a store now. Pure: the caller brings the time.
//!
//! # What is true
//! - A store that does not answer is left alone for a while, twice as long each time. Then one caller
//!   asks; the others wait for what it finds. A call that was under way when the store was given up says
//!   nothing new when it fails, however late.
//! - A store that is slow or says that it has too much gets half as much at a time, and a quarter more
//!   after each success, up to what it was declared with.

use std::time::{Duration, Instant};

/// Never less than this at a time.
const LEAST: usize = 10;
/// What a first call asks for.
const FIRST: usize = 1000;
/// After too much was asked for.
const SHORT_WAIT: Duration = Duration::from_millis(250);
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A store that is back is noticed after this long at most. One small call now and then hurts nobody.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Documents in hand at one time, in bytes.
const ROOM: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Pace {
    size: usize,
    failures: u32,
    /// When the store was last given up.
    closed_at: Option<Instant>,
    /// Nobody asks before this.
    closed_until: Option<Instant>,
    /// Somebody is asking; if nothing is heard of it by then, somebody else may.
    probe_until: Option<Instant>,
    bytes_each: usize,
}

/// Whether to ask now, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Ask(usize),
    Wait(Duration),
}

impl Default for Pace {
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

impl Pace {
    /// `most`: what the mirror was declared with. `limit`: how long a call may take.
    pub(super) fn ask(&mut self, most: usize, limit: Duration, now: Instant) -> Leave {
        let size = self.size(most);
        match (self.closed_until, self.probe_until) {
            (None, _) => Leave::Ask(size),
            (Some(until), _) if now < until => Leave::Wait(until - now),
            (Some(_), Some(probe)) if now < probe => Leave::Wait(self.wait()),
            (Some(_), _) => {
                self.probe_until = Some(now + limit.saturating_mul(4));
                Leave::Ask(LEAST)
            }
        }
    }

    /// How much would be asked for.
    pub(super) fn size(&self, most: usize) -> usize {
        self.size.min(self.fits(most))
    }

    /// How much of `most` has room in hand at one time.
    pub(super) fn fits(&self, most: usize) -> usize {
        most.min(ROOM.checked_div(self.bytes_each).unwrap_or(most).max(LEAST))
    }

    /// True while the store is left alone.
    pub(super) fn is_closed(&self, now: Instant) -> bool {
        self.closed_until.is_some_and(|until| now < until || self.probe_until.is_some())
    }

    /// True while nobody is to ask.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.closed_until.is_some_and(|until| now < until)
    }

    /// Answers whether the store had been away.
    pub(super) fn succeeded(&mut self, most: usize) -> bool {
        let was_away = self.closed_until.is_some();
        self.failures = 0;
        self.closed_until = None;
        self.probe_until = None;
        self.size = (self.size + (self.size / 4).max(1)).min(most.max(LEAST));
        was_away
    }

    /// Whoever was let in has not asked after all: somebody else may.
    pub(super) fn unasked(&mut self) {
        self.probe_until = None;
    }

    /// Whether a call began before the store was given up: it says nothing new.
    pub(super) fn is_late(&self, asked: Instant) -> bool {
        self.closed_at.is_some_and(|closed| asked < closed)
    }

    /// Answers how long the store is left alone. `too_much`: it was slow, or said so. `asked`: when the
    /// call began.
    pub(super) fn failed(&mut self, too_much: bool, asked: Instant, now: Instant) -> Duration {
        if self.is_late(asked) {
            let until = self.closed_until.map(|until| until.saturating_duration_since(now));
            return until.unwrap_or_default().max(SHORT_WAIT);
        }
        let wait = if too_much && self.size > LEAST {
            // Less may do already: it is tried soon.
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

    /// What documents weigh: few large ones are enough for one call.
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
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.failed(false, now, now), SECOND);
        assert!(matches!(pace.ask(2500, LIMIT, now), Leave::Wait(wait) if wait == SECOND));
        assert_eq!(pace.ask(2500, LIMIT, now + SECOND), Leave::Ask(10), "one asks");
        assert!(matches!(pace.ask(2500, LIMIT, now + SECOND), Leave::Wait(_)), "and only one");
        assert!(pace.is_closed(now + SECOND));
        let fails_at = |pace: &mut Pace, at| pace.failed(false, at, at);
        assert_eq!(fails_at(&mut pace, now + SECOND), 2 * SECOND);
        assert_eq!(fails_at(&mut pace, now + 3 * SECOND), 4 * SECOND);
        let mut later = now + 7 * SECOND;
        for _ in 0..20 {
            later += fails_at(&mut pace, later);
        }
        assert_eq!(fails_at(&mut pace, later), LONGEST_WAIT);
    }

    #[test]
    fn f11_calls_that_were_under_way_together_are_one_failure() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let now = begun + LIMIT;
        assert_eq!(pace.failed(true, begun, now), SHORT_WAIT);
        for late in 1..200 {
            pace.failed(true, begun, now + late * SHORT_WAIT / 100);
        }
        assert_eq!(pace.ask(2500, LIMIT, now + 2 * SHORT_WAIT), Leave::Ask(10), "one asks");
        pace.failed(true, begun, now + 2 * SHORT_WAIT);
        let second = pace.ask(2500, LIMIT, now + 2 * SHORT_WAIT);
        assert!(matches!(second, Leave::Wait(_)), "and is still the only one");
        assert!(pace.succeeded(2500));
        pace.failed(false, begun, now + 3 * SHORT_WAIT);
        assert_eq!(pace.ask(2500, LIMIT, now + 3 * SHORT_WAIT), Leave::Ask(625), "halved once");
    }

    #[test]
    fn who_asks_and_is_never_heard_of_again_does_not_keep_the_others_away() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.failed(false, now, now);
        assert_eq!(pace.ask(2500, LIMIT, now + SECOND), Leave::Ask(10));
        assert_eq!(pace.ask(2500, LIMIT, now + 42 * SECOND), Leave::Ask(10));
    }

    #[test]
    fn who_was_let_in_and_asks_nothing_keeps_nobody_away_and_proves_nothing() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.failed(false, now, now);
        assert_eq!(pace.ask(2500, LIMIT, now + SECOND), Leave::Ask(10));
        pace.unasked();
        assert_eq!(pace.ask(2500, LIMIT, now + SECOND), Leave::Ask(10), "the next one asks");
        let asked = now + SECOND;
        assert_eq!(pace.failed(false, asked, asked), 2 * SECOND, "as if nothing had been");
    }

    #[test]
    fn f11_too_much_is_halved_and_grows_again_by_a_quarter() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(1000));
        pace.failed(true, now, now);
        assert!(pace.succeeded(2500), "it had been away");
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(625));
        assert!(!pace.succeeded(2500));
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(781));
        let mut later = now;
        for _ in 0..20 {
            later += pace.failed(true, later, later);
        }
        pace.succeeded(2500);
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(12), "never below ten");
        for _ in 0..50 {
            pace.succeeded(2500);
        }
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(2500));
        assert_eq!(pace.ask(100, LIMIT, now), Leave::Ask(100));
    }

    #[test]
    fn large_documents_are_read_few_at_a_time() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.weighed(100, 100 << 20);
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(16));
        pace.weighed(100, 100_000);
        assert_eq!(pace.ask(2500, LIMIT, now), Leave::Ask(1000));
    }
}
