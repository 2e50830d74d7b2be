//! A circuit breaker: stops calling a service that fails, then lets one probe through at a time until
//! it recovers.
//!
//! # Invariants
//! - Closed, every call is let through. Open, none is until the pause is over; then a single probe is,
//!   and its result closes the breaker or opens it again.
//! - After `doubt()` (a caller timed out), only one call at a time is let through. The first success
//!   restores normal operation; failures still count toward opening.
//! - A caller that computes its own pauses opens the breaker with [`BreakerPermit::fail_for`]. Calls that were
//!   under way together then count as one failure.
//!
//! # What can go wrong
//! - A probe is dropped without a result, such as a request whose client disconnected: the next caller
//!   becomes the probe. A permit that is never released would keep the breaker open for ever.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Retry-after for rejected callers while a probe is in flight.
const WHILE_PROBING: Duration = Duration::from_secs(1);

/// A circuit breaker for one service.
#[derive(Debug)]
pub struct Breaker {
    failures: u32,
    of: u32,
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Debug)]
struct BreakerState {
    /// One bit per call, newest lowest; 1: it failed.
    failed: u32,
    calls: u32,
    open_until: Option<Instant>,
    doubted: bool,
    probing: bool,
    /// How often [`BreakerPermit::fail_for`] opened it.
    openings: u64,
}

impl BreakerState {
    const CLOSED: Self =
        Self { failed: 0, calls: 0, open_until: None, doubted: false, probing: false, openings: 0 };

    /// Closes the breaker. Keeps the count of openings: without it, a call that began before the last opening
    /// would not be late any more, and its failure would open the breaker again.
    fn close(&mut self) {
        *self = Self { openings: self.openings, ..Self::CLOSED };
    }
}

/// A permit for one call. Report its result with `report`.
#[must_use = "a permit that is not used still keeps other callers from a probe"]
#[derive(Debug)]
pub struct BreakerPermit<'a> {
    breaker: &'a Breaker,
    /// This call is the probe.
    is_probe: bool,
    /// How often the breaker had been opened when the call began.
    openings: u64,
}

impl Breaker {
    /// Opens for `pause` when `failures` of the last `of` calls failed. `of` is at most 31.
    pub const fn new(failures: u32, of: u32, pause: Duration) -> Self {
        Self { failures, of, pause, state: Mutex::new(BreakerState::CLOSED) }
    }

    /// Returns a permit for one call. `Err`: do not call; the time after which a retry makes sense.
    pub fn permit(&self, now: Instant) -> Result<BreakerPermit<'_>, Duration> {
        let mut state = self.state();
        let openings = state.openings;
        match state.open_until {
            None if !state.doubted => {
                Ok(BreakerPermit { breaker: self, is_probe: false, openings })
            }
            Some(until) if now < until => Err(until - now),
            _ if state.probing => Err(WHILE_PROBING),
            _ => {
                state.probing = true;
                Ok(BreakerPermit { breaker: self, is_probe: true, openings })
            }
        }
    }

    /// Returns a permit for a call that is made in any case. Its result counts, but it is no probe: it keeps
    /// no other caller from becoming one.
    pub fn observe(&self) -> BreakerPermit<'_> {
        BreakerPermit { breaker: self, is_probe: false, openings: self.state().openings }
    }

    /// Returns for how long no call is let through, not even a probe; `None`: one is.
    pub fn cooldown(&self, now: Instant) -> Option<Duration> {
        let until = self.state().open_until.filter(|until| now < *until)?;
        Some(until - now)
    }

    /// Returns true if a probe is under way.
    pub fn is_probed(&self) -> bool {
        self.state().probing
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

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock()
    }
}

impl BreakerPermit<'_> {
    /// Reports the result. Returns true if it opened the breaker, which was closed.
    pub fn report(self, worked: bool, now: Instant) -> bool {
        let breaker = self.breaker;
        let mut state = breaker.state();
        if state.open_until.is_some() {
            // The call may have started before the breaker opened; its result counts like any other.
            match worked {
                true => state.close(),
                false => state.open_until = Some(now + breaker.pause),
            }
            return false;
        }
        state.doubted &= !worked;
        state.failed = (state.failed << 1 | u32::from(!worked)) & ((1 << breaker.of) - 1);
        state.calls = (state.calls + 1).min(breaker.of);
        let opens = state.calls == breaker.of && state.failed.count_ones() >= breaker.failures;
        if opens {
            state.open_until = Some(now + breaker.pause);
        }
        opens
    }
}

impl BreakerPermit<'_> {
    /// Returns true if this call is the probe.
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Returns true if the breaker was opened since the call began: its failure must not count again.
    pub fn is_late(&self) -> bool {
        self.openings < self.breaker.state().openings
    }

    /// Reports a success: closes the breaker. Returns true if it was open.
    pub fn succeed(self) -> bool {
        let mut state = self.breaker.state();
        let was_open = state.open_until.is_some();
        state.close();
        was_open
    }

    /// Reports a failure: opens the breaker for this pause, however many calls failed before. Does
    /// nothing if the call [is late](Self::is_late).
    pub fn fail_for(self, pause: Duration, now: Instant) {
        let mut state = self.breaker.state();
        if self.openings == state.openings {
            state.openings += 1;
            state.open_until = Some(now + pause);
        }
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.state().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(30);

    /// Makes a call and reports its result. Returns false if the breaker rejects it.
    fn attempt(breaker: &Breaker, worked: bool, now: Instant) -> bool {
        breaker.permit(now).map(|permit| permit.report(worked, now)).is_ok()
    }

    #[test]
    fn breaker_lets_one_probe_through_until_one_succeeds() {
        let (breaker, start) = (Breaker::new(5, 10, PAUSE), Instant::now());
        for call in 0..10 {
            assert!(attempt(&breaker, call % 2 == 0, start), "closed at call {call}");
        }
        assert_eq!(breaker.permit(start).err(), Some(PAUSE));
        let later = start + PAUSE;
        let first = breaker.permit(later).expect("a probe");
        assert_eq!(breaker.permit(later).err(), Some(WHILE_PROBING), "one probe at a time");
        first.report(false, later);
        assert!(!attempt(&breaker, true, later + Duration::from_secs(1)), "open again");
        assert!(attempt(&breaker, true, later + PAUSE));
        assert!(!breaker.is_open());
        assert!(attempt(&breaker, true, later + PAUSE) && attempt(&breaker, true, later + PAUSE));
    }

    #[test]
    fn four_failures_of_ten_keep_the_breaker_closed() {
        let (breaker, now) = (Breaker::new(5, 10, PAUSE), Instant::now());
        assert!((0..30).all(|call| attempt(&breaker, call % 10 >= 4, now)));
        assert!(!breaker.is_open());
    }

    #[test]
    fn three_failures_open_the_breaker_only_without_a_success_between_them() {
        let (breaker, now) = (Breaker::new(3, 3, PAUSE), Instant::now());
        assert!((0..30).all(|call| attempt(&breaker, call % 3 == 2, now)));
        let opened = |worked| breaker.permit(now).map(|permit| permit.report(worked, now));
        assert_eq!(
            [false; 3].map(opened),
            [Ok(false), Ok(false), Ok(true)],
            "only the third opens it"
        );
        assert!(breaker.is_open());
    }

    #[test]
    fn probe_that_is_dropped_without_a_result_is_left_to_the_next_caller() {
        let (breaker, now) = (Breaker::new(1, 1, PAUSE), Instant::now());
        attempt(&breaker, false, now);
        let later = now + PAUSE;
        drop(breaker.permit(later).expect("a probe"));
        assert!(breaker.is_open(), "nothing was learnt");
        assert!(attempt(&breaker, true, later), "the next caller is the probe");
    }

    #[test]
    fn half_open_breaker_lets_one_call_through_until_a_success() {
        let (breaker, now) = (Breaker::new(3, 3, PAUSE), Instant::now());
        let late = breaker.permit(now).expect("closed");
        breaker.doubt();
        assert!(!breaker.is_trusted() && !breaker.is_open());
        let probe = breaker.permit(now).expect("a probe, without a pause");
        assert_eq!(breaker.permit(now).err(), Some(WHILE_PROBING), "one probe at a time");
        probe.report(false, now);
        assert!(!breaker.is_trusted(), "a failure proves nothing");
        late.report(true, now);
        assert!(breaker.is_trusted());
        let (one, other) = (breaker.permit(now), breaker.permit(now));
        assert!(one.is_ok() && other.is_ok(), "every caller is let through");
        drop((one, other));
        breaker.doubt();
        assert!([false; 3].iter().all(|&worked| attempt(&breaker, worked, now)), "failures count");
        assert!(breaker.is_open());
    }

    #[test]
    fn result_from_before_the_opening_ends_no_probe() {
        let (breaker, now) = (Breaker::new(1, 1, PAUSE), Instant::now());
        let slow = breaker.permit(now).expect("closed");
        attempt(&breaker, false, now);
        let probe = breaker.permit(now + PAUSE).expect("a probe");
        slow.report(false, now);
        assert!(breaker.permit(now + PAUSE).is_err(), "a probe is under way");
        probe.report(true, now + PAUSE);
        assert!(!breaker.is_open());
    }

    #[test]
    fn concurrent_failures_open_the_breaker_once() {
        let (breaker, now) = (Breaker::new(1, 1, PAUSE), Instant::now());
        let (first, second) = (breaker.observe(), breaker.permit(now).expect("closed"));
        first.fail_for(PAUSE, now);
        assert_eq!(breaker.cooldown(now), Some(PAUSE));
        assert!(second.is_late());
        second.fail_for(100 * PAUSE, now);
        assert_eq!(breaker.cooldown(now), Some(PAUSE), "its failure is no news");
        let (late, later) = (breaker.observe(), now + PAUSE);
        assert!(breaker.permit(later).expect("a probe").succeed(), "it was open");
        assert_eq!((breaker.cooldown(later), breaker.is_probed()), (None, false));
        assert!(!late.is_late(), "it began after the breaker was opened");
        late.fail_for(PAUSE, later);
        assert!(breaker.is_open());
    }
}
