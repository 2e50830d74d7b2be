//! From measurements to figures: medians over the rounds, ratios to the faster peer.

use anyhow::Result;
use serde_json::{Value, json};

use crate::load::Measured;

/// One kind of request of one service, over all rounds.
#[derive(Clone, Debug)]
pub struct Figures {
    rates: Vec<f64>,
    all: Measured,
}

impl Figures {
    pub fn new() -> Result<Self> {
        Ok(Self { rates: Vec::new(), all: Measured::new()? })
    }

    pub fn add(&mut self, round: &Measured) -> Result<()> {
        self.rates.push(round.per_second());
        self.all.add(round)
    }

    /// Returns the median over the rounds of requests per second.
    pub fn per_second(&self) -> f64 {
        let mut sorted = self.rates.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => sorted.get(middle).copied().unwrap_or_default(),
            _ => sorted.get(middle - 1..=middle).map_or(0.0, |pair| pair.iter().sum::<f64>() / 2.0),
        }
    }

    pub fn p50(&self) -> f64 {
        self.all.ms(0.5)
    }

    /// Over the requests of all rounds.
    pub fn p99(&self) -> f64 {
        self.all.ms(0.99)
    }

    pub fn json(&self) -> Value {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({
            "per_s": self.per_second().round(),
            "per_s_min": self.rates.iter().copied().fold(f64::INFINITY, f64::min).round(),
            "per_s_max": self.rates.iter().copied().fold(0.0, f64::max).round(),
            "p50_ms": round(self.p50()),
            "p99_ms": round(self.p99()),
            "requests": self.all.requests,
        })
    }
}

/// Our figures relative to the peer that is fastest at the same requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    pub peer: &'static str,
    /// Requests per second, ours over the peer's.
    pub rate: f64,
    /// p99 latency, ours over the peer's: up to 1 is no worse.
    pub p99: f64,
}

impl Ratio {
    pub fn of<'a>(
        ours: &Figures,
        peers: impl Iterator<Item = (&'static str, &'a Figures)>,
    ) -> Option<Self> {
        let (peer, fastest) = peers.max_by(|a, b| a.1.per_second().total_cmp(&b.1.per_second()))?;
        Some(Self {
            peer,
            rate: ours.per_second() / fastest.per_second().max(1e-9),
            p99: ours.p99() / fastest.p99().max(1e-9),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn figures(rounds: &[u64], ms: u64) -> Figures {
        let mut figures = Figures::new().unwrap();
        for requests in rounds {
            let mut round = Measured::new().unwrap();
            for _ in 0..*requests {
                round.record(Duration::from_millis(ms));
            }
            round.time = Duration::from_secs(1);
            figures.add(&round).unwrap();
        }
        figures
    }

    #[test]
    fn median_ignores_one_bad_round() {
        assert_eq!(figures(&[10, 500, 490], 1).per_second(), 490.0);
        assert_eq!(figures(&[10, 20], 1).per_second(), 15.0);
    }

    #[test]
    fn ratio_is_to_the_faster_peer() {
        let (slow, fast) = (figures(&[100], 1), figures(&[200], 4));
        let ratio =
            Ratio::of(&figures(&[300], 2), [("slow", &slow), ("fast", &fast)].into_iter()).unwrap();
        assert_eq!((ratio.peer, ratio.rate), ("fast", 1.5));
        assert!((ratio.p99 - 0.5).abs() < 0.01, "{ratio:?}");
        assert_eq!(Ratio::of(&slow, std::iter::empty()), None);
    }
}
