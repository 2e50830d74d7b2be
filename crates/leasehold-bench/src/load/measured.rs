//! What a run of the load tool measured.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::answer::Answer;

const LONGEST: u64 = 60_000_000_000;

#[derive(Clone, Debug)]
pub struct Measured {
    pub requests: u64,
    pub time: Duration,
    /// In the order of arrival, if the run keeps them.
    pub answers: Vec<Answer>,
    latency: Histogram<u64>,
}

impl Measured {
    pub fn new() -> Result<Self> {
        Ok(Self {
            requests: 0,
            time: Duration::ZERO,
            answers: Vec::new(),
            latency: Histogram::new_with_bounds(1_000, LONGEST, 3)?,
        })
    }

    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST).clamp(1_000, LONGEST);
        self.requests += 1;
        self.latency.saturating_record(nanos);
    }

    /// Merges the figures of two runs, as if they had been one.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.requests += other.requests;
        self.time += other.time;
        Ok(self.latency.add(&other.latency)?)
    }

    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// In milliseconds; `quantile` is 0.99 for p99.
    pub fn ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }
}
