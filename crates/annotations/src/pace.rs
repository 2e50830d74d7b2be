//! How long an index usually takes, and so how long to wait for it.
//!
//! # What is true
//! - An index that hangs costs a reader a few times its usual time, not the limit of a call.
//! - Answers that come after nobody waits any more count too: an index that became slow for good is
//!   waited for again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Before anything is known.
const FIRST: Duration = Duration::from_millis(250);
/// How much longer than usual is too long.
const TIMES: u64 = 4;
/// How much one answer moves the mean: a sixteenth.
const WEIGHT: u64 = 16;

/// The mean time of an answer, in microseconds; 0: nothing is known.
#[derive(Debug, Default)]
pub struct Pace(AtomicU64);

impl Pace {
    /// How long to wait for an answer: at least `least`, and never longer than `limit`.
    pub fn patience(&self, least: Duration, limit: Duration) -> Duration {
        let usual = match self.0.load(Ordering::Relaxed) {
            0 => FIRST,
            mean => Duration::from_micros(mean.saturating_mul(TIMES)),
        };
        usual.max(least).min(limit)
    }

    /// An answer took so long.
    pub fn saw(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        // Two that meet may lose one: it is a mean.
        let mean = match self.0.load(Ordering::Relaxed) {
            0 => time,
            mean => mean - mean / WEIGHT + time / WEIGHT,
        };
        self.0.store(mean.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(25);
    const LIMIT: Duration = Duration::from_millis(800);

    #[test]
    fn a_quick_index_is_not_waited_for_long_and_a_slow_one_never_past_the_limit() {
        let pace = Pace::default();
        assert_eq!(pace.patience(LEAST, LIMIT), FIRST);
        for _ in 0..100 {
            pace.saw(Duration::from_millis(2));
        }
        assert_eq!(pace.patience(LEAST, LIMIT), LEAST);
        for _ in 0..200 {
            pace.saw(Duration::from_millis(20));
        }
        let patience = pace.patience(LEAST, LIMIT);
        assert!(
            patience > 3 * Duration::from_millis(20) && patience < 5 * Duration::from_millis(20)
        );
        for _ in 0..300 {
            pace.saw(Duration::from_secs(2));
        }
        assert_eq!(pace.patience(LEAST, LIMIT), LIMIT);
    }
}
