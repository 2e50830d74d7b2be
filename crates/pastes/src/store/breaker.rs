//! A breaker: stops asking a store that does not answer, and tries again after a while.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How many of the last calls are looked at.
const WINDOW: u32 = 10;
/// How long it stays open.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// Opens when half of the last ten calls failed; lets one call through after thirty seconds and
/// closes again when that one succeeds.
#[derive(Debug)]
pub struct Breaker {
    inner: Mutex<Inner>,
    cool_down: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    /// One bit a call, newest lowest; 1: failed.
    failures: u32,
    calls: u32,
    open_until: Option<Instant>,
    probing: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { inner: Mutex::default(), cool_down: COOL_DOWN }
    }
}

impl Breaker {
    /// `Err`: do not call; how long until it is worth trying.
    pub fn ask(&self, now: Instant) -> Result<(), Duration> {
        let mut inner = self.lock();
        match inner.open_until {
            None => Ok(()),
            Some(until) if now < until => Err(until - now),
            Some(_) if inner.probing => Err(Duration::from_secs(1)),
            Some(_) => {
                inner.probing = true;
                Ok(())
            }
        }
    }

    /// Tells how a call went. A missing object is an answer, not a failure.
    pub fn tell(&self, worked: bool, now: Instant) {
        let mut inner = self.lock();
        if inner.open_until.is_some() {
            inner.probing = false;
            if worked {
                *inner = Inner::default();
            } else {
                inner.open_until = Some(now + self.cool_down);
            }
            return;
        }
        inner.failures = (inner.failures << 1 | u32::from(!worked)) & ((1 << WINDOW) - 1);
        inner.calls = (inner.calls + 1).min(WINDOW);
        if inner.calls == WINDOW && inner.failures.count_ones() * 2 >= WINDOW {
            inner.open_until = Some(now + self.cool_down);
            tracing::warn!("the store fails half of the reads; not asking it for a while");
        }
    }

    pub fn is_open(&self) -> bool {
        self.lock().open_until.is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_at_half_of_ten_and_closes_after_a_probe() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for call in 0..10 {
            assert!(breaker.ask(start).is_ok(), "closed at call {call}");
            breaker.tell(call % 2 == 0, start);
        }
        assert_eq!(breaker.ask(start), Err(COOL_DOWN));
        let later = start + COOL_DOWN;
        assert!(breaker.ask(later).is_ok(), "one probe");
        assert!(breaker.ask(later).is_err(), "and only one");
        breaker.tell(false, later);
        assert!(breaker.ask(later + Duration::from_secs(1)).is_err(), "open again");
        let later = later + COOL_DOWN;
        assert!(breaker.ask(later).is_ok());
        breaker.tell(true, later);
        assert!(!breaker.is_open());
    }

    #[test]
    fn four_failures_of_ten_are_borne() {
        let breaker = Breaker::default();
        let now = Instant::now();
        for call in 0..30 {
            assert!(breaker.ask(now).is_ok());
            breaker.tell(call % 10 >= 4, now);
        }
        assert!(!breaker.is_open());
    }
}
