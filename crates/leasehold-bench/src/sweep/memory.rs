//! The memory of this process while the sweep runs.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const EVERY: Duration = Duration::from_millis(250);
/// The most samples kept: beyond it, every second one is dropped and the interval doubles.
const MOST: usize = 4096;

/// Samples in MB, evenly spaced.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    samples: Vec<f64>,
    max: f64,
}

impl Memory {
    fn add(&mut self, mb: f64) {
        self.max = self.max.max(mb);
        self.samples.push(mb);
    }

    pub fn max(&self) -> f64 {
        self.max
    }

    /// Returns the mean around a point of the run, from 0 to 1: a single sample is noisy.
    pub fn around(&self, point: f64) -> f64 {
        let count = self.samples.len();
        let width = (count / 20).max(1);
        let from = ((count.saturating_sub(width)) as f64 * point) as usize;
        let part = self.samples.get(from..(from + width).min(count)).unwrap_or_default();
        part.iter().sum::<f64>() / part.len().max(1) as f64
    }
}

/// Samples the memory until it is stopped.
pub struct Watch {
    stop: CancellationToken,
    watching: JoinHandle<Memory>,
}

impl Watch {
    pub fn start() -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let watching = tokio::spawn(async move {
            let mut memory = Memory::default();
            let mut step = EVERY;
            while stopped.run_until_cancelled(tokio::time::sleep(step)).await.is_some() {
                memory.add(resident_mb().unwrap_or_default());
                if memory.samples.len() == MOST {
                    let mut odd = false;
                    memory.samples.retain(|_| {
                        odd = !odd;
                        odd
                    });
                    step *= 2;
                }
            }
            memory.add(resident_mb().unwrap_or_default());
            memory
        });
        Self { stop, watching }
    }

    pub async fn stop(self) -> anyhow::Result<Memory> {
        self.stop.cancel();
        Ok(self.watching.await?)
    }
}

/// Returns the resident set of this process; only Linux reports it.
pub fn resident_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_has_start_middle_and_end() {
        let mut memory = Memory::default();
        for sample in 0..100 {
            memory.add(f64::from(sample));
        }
        assert_eq!((memory.around(0.0), memory.max()), (2.0, 99.0));
        assert!((memory.around(0.5) - 49.0).abs() < 1.0);
        assert_eq!(memory.around(1.0), 97.0);
        assert_eq!(Memory::default().around(0.5), 0.0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_of_this_process_is_not_zero() {
        assert!(resident_mb().unwrap() > 1.0);
    }
}
