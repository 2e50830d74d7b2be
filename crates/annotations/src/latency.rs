//! Estimates how long an index usually takes, and so how long to wait for it.
//!
//! # Invariants
//! - An index that hangs costs a reader a few times its usual latency, not the whole time limit.
//! - Answers that arrive after the search timed out count too: the estimate follows an index that became
//!   slow for good.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The wait before the first measurement.
const FIRST: Duration = Duration::from_millis(250);
/// The wait, as a multiple of the usual latency.
const TIMES: u64 = 4;
/// The weight of one answer in the mean: a sixteenth.
const WEIGHT: u64 = 16;

/// The mean latency, in microseconds; 0: not measured yet.
#[derive(Debug, Default)]
pub struct LatencyEstimate(AtomicU64);

impl LatencyEstimate {
    /// Returns how long to wait for an answer: at least `least`, at most `limit`.
    pub fn wait(&self, least: Duration, limit: Duration) -> Duration {
        let usual = match self.0.load(Ordering::Relaxed) {
            0 => FIRST,
            mean => Duration::from_micros(mean.saturating_mul(TIMES)),
        };
        usual.max(least).min(limit)
    }

    /// Records the latency of an answer.
    pub fn record(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        // Concurrent calls may lose a sample, which a mean can tolerate.
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
    fn wait_follows_the_latency_within_its_bounds() {
        let latency = LatencyEstimate::default();
        assert_eq!(latency.wait(LEAST, LIMIT), FIRST);
        for _ in 0..100 {
            latency.record(Duration::from_millis(2));
        }
        assert_eq!(latency.wait(LEAST, LIMIT), LEAST);
        for _ in 0..200 {
            latency.record(Duration::from_millis(20));
        }
        let wait = latency.wait(LEAST, LIMIT);
        assert!(wait > 3 * Duration::from_millis(20) && wait < 5 * Duration::from_millis(20));
        for _ in 0..300 {
            latency.record(Duration::from_secs(2));
        }
        assert_eq!(latency.wait(LEAST, LIMIT), LIMIT);
    }
}
