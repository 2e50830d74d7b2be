//! Waits: how long to wait before the next try, the same for attempts of jobs and for calls of the engine.
//!
//! # Invariants
//! - Every wait has jitter: callers that failed together, or started together, do not try again together.
//! - A wait has a longest value. When to stop trying is the caller's decision.

use std::time::Duration;

/// The wait before a session is opened again: 40 ms at first, doubling to 1.5 s, a third longer or shorter. A
/// fleet that lost its server does not reconnect at once, and none of its workers waits longer than 2 s.
pub const RECONNECT: Backoff =
    Backoff::doubling(Duration::from_millis(40), Duration::from_millis(1500))
        .jitter(Jitter::Share(1.0 / 3.0));

/// The wait between attempts.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Backoff, Jitter};
///
/// let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)).jitter(Jitter::None);
/// let mut waits = backoff.waits();
/// assert_eq!(waits.next_wait(), Duration::from_secs(1));
/// assert_eq!(waits.next_wait(), Duration::from_secs(2));
/// waits.reset(); // after a success
/// assert_eq!(waits.next_wait(), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Backoff {
    /// The wait after the first failure.
    pub base: Duration,
    /// The longest wait, before its jitter.
    pub cap: Duration,
    /// How much each wait varies.
    pub jitter: Jitter,
}

/// How much a wait varies.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Jitter {
    /// Not at all: for one caller that has nothing to avoid.
    None,
    /// By a share of the wait either way, such as 0.2.
    Share(f64),
    /// By a fixed time either way.
    Fixed(Duration),
}

impl Backoff {
    /// Doubles from `base` to `cap`, with 20 % jitter either way.
    pub const fn doubling(base: Duration, cap: Duration) -> Self {
        Self { base, cap, jitter: Jitter::Share(0.2) }
    }

    /// Sets how much each wait varies. Default: 20 % either way.
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Returns how long to wait after attempt number `attempts` failed. `chance` is in 0..=1.
    pub fn wait_after(&self, attempts: i32, chance: f64) -> Duration {
        let doublings = u32::try_from(attempts.clamp(1, 32) - 1).unwrap_or(0);
        let wait = self.base.saturating_mul(2u32.saturating_pow(doublings)).min(self.cap);
        let swing = match self.jitter {
            Jitter::None => return wait,
            Jitter::Share(share) => wait.mul_f64(share.clamp(0.0, 1.0)),
            Jitter::Fixed(time) => time.min(wait),
        };
        (wait + swing.mul_f64(2.0 * chance.clamp(0.0, 1.0))).saturating_sub(swing)
    }

    /// Returns how long to wait after attempt number `attempts` failed, with its jitter.
    pub fn random_wait(&self, attempts: i32) -> Duration {
        self.wait_after(attempts, rand::random())
    }

    /// Returns the waits of one caller, from the first on.
    pub const fn waits(self) -> Waits {
        Waits { backoff: self, failures: 0 }
    }
}

/// The waits of one caller that tries again: each longer than the one before, until a success.
#[derive(Clone, Debug)]
pub struct Waits {
    backoff: Backoff,
    failures: i32,
}

impl Waits {
    /// Returns how long to wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.random_wait(self.failures)
    }

    /// Starts again with the first wait, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns the interval, shortened by up to a fifth at random: a fleet that started together must not act
/// together.
pub fn jitter(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.8..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10));
        let middle: Vec<_> =
            (1..=6).map(|attempt| backoff.wait_after(attempt, 0.5).as_secs()).collect();
        assert_eq!(middle, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn g8_waits_are_spread_within_the_bounds_of_their_jitter() {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60))
            .jitter(Jitter::Fixed(Duration::from_millis(200)));
        assert_eq!(backoff.wait_after(1, 0.0), Duration::from_millis(800));
        assert_eq!(backoff.wait_after(1, 1.0), Duration::from_millis(1200));
    }

    #[test]
    fn huge_attempt_number_does_not_overflow() {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3600));
        assert!(backoff.wait_after(i32::MAX, 1.0) <= Duration::from_secs(4320));
    }

    #[test]
    fn waits_begin_anew_after_a_success() {
        let backoff = Backoff::doubling(Duration::from_millis(1), Duration::from_millis(100));
        let mut waits = backoff.jitter(Jitter::None).waits();
        let mut next = || waits.next_wait().as_millis();
        assert_eq!([(); 9].map(|()| next()), [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        waits.reset();
        assert_eq!(waits.next_wait(), backoff.base);
    }

    #[test]
    fn reconnect_waits_at_most_two_seconds() {
        let longest = RECONNECT.wait_after(i32::MAX, 1.0);
        assert!(longest <= Duration::from_secs(2), "{longest:?}");
    }

    #[test]
    fn jitter_shortens_an_interval_by_a_fifth_at_most() {
        let second = Duration::from_secs(1);
        let spread: Vec<Duration> = (0..100).map(|_| jitter(second)).collect();
        assert!(spread.iter().all(|wait| (second.mul_f64(0.8)..=second).contains(wait)));
        assert!(spread.iter().any(|wait| *wait != spread[0]), "they differ");
    }
}
