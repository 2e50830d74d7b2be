//! A breaker: stops asking an index that does not answer, and lets one question through at a time
//! until it does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open it.
const FAILURES: u32 = 3;
/// How long it stays open before one question may try.
pub const COOL_DOWN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Breaker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    failures: u32,
    open_until: Option<Instant>,
    probing: bool,
}

impl Breaker {
    /// False: do not ask. True: ask, and [`tell`](Self::tell) how it went.
    pub fn ask(&self, now: Instant) -> bool {
        let mut inner = self.lock();
        match inner.open_until {
            None => true,
            Some(until) if now < until || inner.probing => false,
            Some(_) => {
                inner.probing = true;
                true
            }
        }
    }

    pub fn tell(&self, worked: bool, now: Instant) {
        let mut inner = self.lock();
        if worked {
            *inner = Inner::default();
            return;
        }
        inner.probing = false;
        inner.failures = inner.failures.saturating_add(1);
        if inner.failures >= FAILURES {
            if inner.open_until.is_none() {
                tracing::warn!("the search index does not answer; Postgres answers alone");
            }
            inner.open_until = Some(now + COOL_DOWN);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_three_failures_and_lets_one_probe_through() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES {
            assert!(breaker.ask(start));
            breaker.tell(false, start);
        }
        assert!(!breaker.ask(start));
        let later = start + COOL_DOWN;
        assert!(breaker.ask(later), "one probe");
        assert!(!breaker.ask(later), "and only one");
        breaker.tell(false, later);
        assert!(!breaker.ask(later), "open again");
        let later = later + COOL_DOWN;
        assert!(breaker.ask(later));
        breaker.tell(true, later);
        assert!(breaker.ask(later) && breaker.ask(later), "closed");
    }

    #[test]
    fn a_success_forgets_failures() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        for call in 0..30 {
            assert!(breaker.ask(now));
            breaker.tell(call % 3 == 2, now);
        }
    }
}
