//! Counts the runs of each job, to prove that every job ran exactly once.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub struct Ledger {
    runs: Vec<AtomicU32>,
    total: AtomicU64,
    done: Notify,
    /// When the count passed these marks.
    marks: Vec<(u64, Mutex<Option<Instant>>)>,
}

impl Ledger {
    pub fn new(jobs: u64, marks: &[u64]) -> Self {
        Self {
            runs: (0..jobs).map(|_| AtomicU32::new(0)).collect(),
            total: AtomicU64::new(0),
            done: Notify::new(),
            marks: marks.iter().map(|mark| (*mark, Mutex::new(None))).collect(),
        }
    }

    pub fn ran(&self, n: u64) {
        if let Some(runs) = usize::try_from(n).ok().and_then(|n| self.runs.get(n)) {
            runs.fetch_add(1, Ordering::Relaxed);
        }
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        for (mark, at) in &self.marks {
            if total == *mark {
                *at.lock() = Some(Instant::now());
            }
        }
        if total >= self.runs.len() as u64 {
            self.done.notify_waiters();
        }
    }

    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub fn at(&self, mark: u64) -> Option<Instant> {
        let (_, at) = self.marks.iter().find(|(known, _)| *known == mark)?;
        *at.lock()
    }

    pub async fn all_ran(&self) {
        loop {
            let notified = self.done.notified();
            if self.total() >= self.runs.len() as u64 {
                return;
            }
            notified.await;
        }
    }

    /// Jobs that did not run exactly once: (never, more than once).
    pub fn wrong(&self) -> (u64, u64) {
        let mut never = 0;
        let mut again = 0;
        for runs in &self.runs {
            match runs.load(Ordering::Relaxed) {
                0 => never += 1,
                1 => {}
                _ => again += 1,
            }
        }
        (never, again)
    }
}
