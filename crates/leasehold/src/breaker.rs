//! A circuit breaker: stops calling a service that fails, then lets one probe through at a time until
//! it recovers.
//!
//! # What is true
//! - Closed, every call is let through. Open, none is until the pause is over; then a single probe is,
//!   and its result closes the breaker or opens it again.
//! - After `doubt()` (a caller timed out), only one call at a time is let through. The first success
//!   restores normal operation; failures still count toward opening.
//!
//! # What can go wrong
//! - A probe is dropped without a result, such as a request whose client disconnected: the next caller
//!   becomes the probe. A turn that is never given back would keep the breaker open for ever.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Retry-after for rejected callers while a probe is in flight.
const WHILE_TRIED: Duration = Duration::from_secs(1);

/// A circuit breaker for one service.
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    of: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// One bit per call, newest lowest; 1: it failed.
    failed: u32,
    asked: u32,
    open_until: Option<Instant>,
    doubted: bool,
    tried: bool,
}

/// A permit for one call. Report its result with `tell`.
#[must_use = "a question that was never asked still has its turn"]
#[derive(Debug)]
pub struct Question<'a> {
    breaker: &'a Breaker,
    /// This call is the probe.
    tries: bool,
}

impl Breaker {
    /// Opens for `pause` when `failures` of the last `of` calls failed. `of` is at most 31.
    pub const fn new(failures: u32, of: u32, pause: Duration) -> Self {
        let state = State { failed: 0, asked: 0, open_until: None, doubted: false, tried: false };
        Self { failures, of, pause, state: Mutex::new(state) }
    }

    /// Asks for a permit. `Err`: do not call; the time after which a retry makes sense.
    pub fn ask(&self, now: Instant) -> Result<Question<'_>, Duration> {
        let mut state = self.state();
        match state.open_until {
            None if !state.doubted => Ok(Question { breaker: self, tries: false }),
            Some(until) if now < until => Err(until - now),
            _ if state.tried => Err(WHILE_TRIED),
            _ => {
                state.tried = true;
                Ok(Question { breaker: self, tries: true })
            }
        }
    }

    /// Returns true while calls are rejected, probes aside.
    pub fn is_open(&self) -> bool {
        self.state().open_until.is_some()
    }

    /// Reports that a caller stopped waiting for a reply that may still arrive.
    pub fn doubt(&self) {
        self.state().doubted = true;
    }

    /// Returns true if a reply can be expected: the breaker is closed and not in doubt.
    pub fn is_trusted(&self) -> bool {
        let state = self.state();
        state.open_until.is_none() && !state.doubted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question<'_> {
    /// Reports the result. Returns true if it opened the breaker, which was closed.
    pub fn tell(self, worked: bool, now: Instant) -> bool {
        let breaker = self.breaker;
        let mut state = breaker.state();
        if state.open_until.is_some() {
            // The call may have started before the breaker opened; its result counts like any other.
            match worked {
                true => *state = State::default(),
                false => state.open_until = Some(now + breaker.pause),
            }
            return false;
        }
        state.doubted &= !worked;
        state.failed = (state.failed << 1 | u32::from(!worked)) & ((1 << breaker.of) - 1);
        state.asked = (state.asked + 1).min(breaker.of);
        let opens = state.asked == breaker.of && state.failed.count_ones() >= breaker.failures;
        if opens {
            state.open_until = Some(now + breaker.pause);
        }
        opens
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if self.tries {
            self.breaker.state().tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(30);

    /// Makes a call and reports its result. Returns false if the breaker rejects it.
    fn ask(breaker: &Breaker, worked: bool, now: Instant) -> bool {
        breaker.ask(now).map(|question| question.tell(worked, now)).is_ok()
    }

    #[test]
    fn opens_at_half_of_ten_and_closes_when_a_try_works() {
        let (breaker, start) = (Breaker::new(5, 10, PAUSE), Instant::now());
        for call in 0..10 {
            assert!(ask(&breaker, call % 2 == 0, start), "closed at call {call}");
        }
        assert_eq!(breaker.ask(start).err(), Some(PAUSE));
        let later = start + PAUSE;
        let first = breaker.ask(later).expect("one may try");
        assert_eq!(breaker.ask(later).err(), Some(WHILE_TRIED), "and only one");
        first.tell(false, later);
        assert!(!ask(&breaker, true, later + Duration::from_secs(1)), "open again");
        assert!(ask(&breaker, true, later + PAUSE));
        assert!(!breaker.is_open());
        assert!(ask(&breaker, true, later + PAUSE) && ask(&breaker, true, later + PAUSE));
    }

    #[test]
    fn four_failures_of_ten_are_borne() {
        let (breaker, now) = (Breaker::new(5, 10, PAUSE), Instant::now());
        assert!((0..30).all(|call| ask(&breaker, call % 10 >= 4, now)));
        assert!(!breaker.is_open());
    }

    #[test]
    fn three_in_a_row_are_three_without_a_success_between_them() {
        let (breaker, now) = (Breaker::new(3, 3, PAUSE), Instant::now());
        assert!((0..30).all(|call| ask(&breaker, call % 3 == 2, now)));
        let opened = |worked| breaker.ask(now).map(|question| question.tell(worked, now));
        assert_eq!([false; 3].map(opened), [Ok(false), Ok(false), Ok(true)], "it says so once");
        assert!(breaker.is_open());
    }

    #[test]
    fn whoever_goes_away_without_an_answer_leaves_the_try_to_the_next() {
        let (breaker, now) = (Breaker::new(1, 1, PAUSE), Instant::now());
        ask(&breaker, false, now);
        let later = now + PAUSE;
        drop(breaker.ask(later).expect("one may try"));
        assert!(breaker.is_open(), "nothing was learnt");
        assert!(ask(&breaker, true, later), "or nobody could ever ask again");
    }

    #[test]
    fn in_doubt_one_asks_at_a_time_until_an_answer_comes() {
        let (breaker, now) = (Breaker::new(3, 3, PAUSE), Instant::now());
        let late = breaker.ask(now).expect("closed");
        breaker.doubt();
        assert!(!breaker.is_trusted() && !breaker.is_open());
        let trying = breaker.ask(now).expect("one may try, and needs not wait for a pause");
        assert_eq!(breaker.ask(now).err(), Some(WHILE_TRIED), "and only one");
        trying.tell(false, now);
        assert!(!breaker.is_trusted(), "a failure is no answer");
        late.tell(true, now);
        assert!(breaker.is_trusted());
        let (one, other) = (breaker.ask(now), breaker.ask(now));
        assert!(one.is_ok() && other.is_ok(), "everybody may");
        drop((one, other));
        breaker.doubt();
        assert!([false; 3].iter().all(|&worked| ask(&breaker, worked, now)), "failures count");
        assert!(breaker.is_open());
    }

    #[test]
    fn an_answer_from_before_it_opened_takes_no_turn_away() {
        let (breaker, now) = (Breaker::new(1, 1, PAUSE), Instant::now());
        let slow = breaker.ask(now).expect("closed");
        ask(&breaker, false, now);
        let trying = breaker.ask(now + PAUSE).expect("one may try");
        slow.tell(false, now);
        assert!(breaker.ask(now + PAUSE).is_err(), "somebody tries already");
        trying.tell(true, now + PAUSE);
        assert!(!breaker.is_open());
    }
}
