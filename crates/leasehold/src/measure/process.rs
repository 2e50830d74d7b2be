//! What this process does, counted as it happens.
//!
//! # Invariants
//! - Counting happens where many jobs end at once, with one lock for all of them.
//! - No label comes from a job's kwargs, and a metric has at most `MOST` lines: a program that
//!   generates names gets a single line for the rest.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use crate::queue::finish::Finished;
use crate::queue::moment::Moment;
use crate::worker::Attempt;
use crate::worker::slots::Slots;

/// Upper bounds of the histograms, in seconds.
pub const BUCKETS: [f64; 18] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
    300.0, 1800.0,
];
/// The most lines per metric. The rest is counted under `(others)`.
const MOST: usize = 1000;
/// How often enqueues into a queue are reported as new.
const REPORT_EVERY: Duration = Duration::from_secs(60 * 60);

/// How often values fell into each bucket.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    pub counts: [u64; BUCKETS.len()],
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    pub fn add(&mut self, value: f64) {
        let value = value.max(0.0);
        if let Some(bucket) = BUCKETS.iter().position(|bound| value <= *bound)
            && let Some(count) = self.counts.get_mut(bucket)
        {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

/// How attempts of one name ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    pub queue: Arc<str>,
    pub name: Arc<str>,
    pub outcome: &'static str,
}

/// Counts of one process, kept in the engine's handle.
#[derive(Debug, Default)]
pub struct Process {
    pub(crate) inside: Mutex<Inside>,
    /// Sessions that listen for wake-ups.
    listening: AtomicUsize,
}

#[derive(Debug, Default)]
pub(crate) struct Inside {
    pub(crate) enqueued: HashMap<(Arc<str>, Arc<str>), u64>,
    /// Queues that this process enqueued into, up to `MOST`, and when [`Process::enqueued`] reported each.
    queues: HashMap<String, Instant>,
    pub(crate) finished: HashMap<End, Histogram>,
    pub(crate) waits: HashMap<Arc<str>, Histogram>,
    pub(crate) latencies: HashMap<Arc<str>, Histogram>,
    pub(crate) claims: HashMap<(Arc<str>, &'static str), u64>,
    pub(crate) fired: HashMap<Arc<str>, u64>,
    pub(crate) reclaimed: HashMap<(Arc<str>, &'static str), u64>,
    /// The last minute whose sample this process took.
    pub(crate) sampled: Option<Timestamp>,
    pub(crate) errors: HashMap<(&'static str, &'static str), u64>,
    pub(crate) claiming: Histogram,
    pub(crate) completing: Histogram,
    pub(crate) batches: Histogram,
    pub(crate) slots: Vec<Weak<Slots>>,
}

impl Inside {
    /// Returns true once per queue and `REPORT_EVERY`.
    fn is_due(&mut self, queue: &str, now: Instant) -> bool {
        let known = self.queues.len();
        match self.queues.get_mut(queue) {
            Some(last) if now.saturating_duration_since(*last) < REPORT_EVERY => false,
            Some(last) => {
                *last = now;
                true
            }
            None if known < MOST => self.queues.insert(queue.to_owned(), now).is_none(),
            None => false,
        }
    }
}

impl Process {
    pub(crate) fn inside(&self) -> MutexGuard<'_, Inside> {
        // A count that a panic interrupted is still usable.
        self.inside.lock()
    }

    /// Counts stored jobs. Returns true for the first ones of a queue, and for the next ones after `REPORT_EVERY`.
    pub(crate) fn enqueued(&self, queue: &str, name: &str, jobs: u64) -> bool {
        if jobs == 0 {
            return false;
        }
        let mut inside = self.inside();
        let room = inside.enqueued.len() < MOST;
        let key = (Arc::from(queue), Arc::from(name));
        if room || inside.enqueued.contains_key(&key) {
            *inside.enqueued.entry(key).or_default() += jobs;
        } else {
            *inside.enqueued.entry((others(), others())).or_default() += jobs;
        }
        inside.is_due(queue, Instant::now())
    }

    /// Counts attempts whose end is recorded. Those that follow each other with the same name and outcome
    /// are looked up once.
    pub(crate) fn finished<T>(
        &self,
        ends: &[T],
        read: impl for<'a> Fn(&'a T) -> (&'a Arc<Attempt>, Finished),
    ) {
        let (clock, now) = (Moment::from(Timestamp::now()), Instant::now());
        let is_same = |one: &T, other: &T| {
            let ((one, one_outcome), (other, other_outcome)) = (read(one), read(other));
            one_outcome == other_outcome
                && Arc::ptr_eq(&one.job.name, &other.job.name)
                && Arc::ptr_eq(one.queue(), other.queue())
        };
        let mut inside = self.inside();
        let Inside { finished, waits, latencies, .. } = &mut *inside;
        for same in ends.chunk_by(is_same) {
            let Some((first, outcome)) = same.first().map(&read) else { continue };
            let queue = first.queue();
            let end = End {
                queue: Arc::clone(queue),
                name: Arc::clone(&first.job.name),
                outcome: word(outcome),
            };
            let known = finished.len() < MOST || finished.contains_key(&end);
            let end = if known { end } else { End { queue: others(), name: others(), ..end } };
            let durations = finished.entry(end).or_default();
            let room = waits.len() < MOST || waits.contains_key(queue);
            let mut waits = room.then(|| waits.entry(Arc::clone(queue)).or_default());
            let completed = room && outcome == Finished::Completed;
            let mut latencies = completed.then(|| latencies.entry(Arc::clone(queue)).or_default());
            for (attempt, _) in same.iter().map(&read) {
                let ran = attempt.started.get().map(|at| now.saturating_duration_since(*at));
                let ran = ran.unwrap_or_default().as_secs_f64();
                durations.add(ran);
                if let Some(waits) = &mut waits {
                    waits.add(clock.seconds_since(attempt.job.scheduled_at) - ran);
                }
                if let Some(latencies) = &mut latencies {
                    latencies.add(clock.seconds_since(attempt.job.enqueued_at));
                }
            }
        }
    }

    /// Counts one complete call: its jobs and its duration.
    pub(crate) fn completed(&self, jobs: usize, took: Duration) {
        let mut inside = self.inside();
        inside.completing.add(took.as_secs_f64());
        inside.batches.add(jobs as f64);
    }

    pub(crate) fn claimed(&self, queue: &Arc<str>, result: &'static str, took: Duration) {
        let mut inside = self.inside();
        *inside.claims.entry((Arc::clone(queue), result)).or_default() += 1;
        inside.claiming.add(took.as_secs_f64());
    }

    pub(crate) fn fired(&self, schedule: &str) {
        let mut inside = self.inside();
        if inside.fired.len() < MOST || inside.fired.contains_key(schedule) {
            *inside.fired.entry(Arc::from(schedule)).or_default() += 1;
        }
    }

    /// Counts jobs of a queue that were reclaimed from dead workers.
    pub(crate) fn reclaimed(&self, queue: &str, returned: i32, dead: i32) {
        let mut inside = self.inside();
        let room = inside.reclaimed.len() < MOST;
        for (result, jobs) in [("returned", returned), ("dead", dead)] {
            let key = (Arc::from(queue), result);
            let known = room || inside.reclaimed.contains_key(&key);
            let key = if known { key } else { (others(), result) };
            *inside.reclaimed.entry(key).or_default() += u64::try_from(jobs).unwrap_or(0);
        }
    }

    pub(crate) fn sampled(&self, minute: Timestamp) {
        self.inside().sampled = Some(minute);
    }

    pub(crate) fn failed(&self, operation: &'static str, error: &crate::error::CallError) {
        use crate::error::CallError;
        let class = match error {
            CallError::TimedOut(_) => "timeout",
            CallError::Connect(_) => "connect",
            CallError::Database(error) if error.as_db_error().is_some() => "refused",
            CallError::Database(_) => "connection",
        };
        self.failed_as(operation, class);
    }

    pub(crate) fn failed_as(&self, operation: &'static str, class: &'static str) {
        *self.inside().errors.entry((operation, class)).or_default() += 1;
    }

    pub(crate) fn works(&self, slots: &Arc<Slots>) {
        let mut inside = self.inside();
        inside.slots.retain(|slots| slots.strong_count() > 0);
        inside.slots.push(Arc::downgrade(slots));
    }

    /// Counts a session that listens, until the guard is dropped.
    pub(crate) fn listens(&self) -> ListenGuard<'_> {
        self.listening.fetch_add(1, Ordering::Relaxed);
        ListenGuard(self)
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed) > 0
    }
}

/// See [`Process::listens`].
pub(crate) struct ListenGuard<'a>(&'a Process);

impl Drop for ListenGuard<'_> {
    fn drop(&mut self) {
        self.0.listening.fetch_sub(1, Ordering::Relaxed);
    }
}

fn others() -> Arc<str> {
    Arc::from("(others)")
}

fn word(outcome: Finished) -> &'static str {
    match outcome {
        Finished::Completed => "completed",
        Finished::Retried => "retried",
        Finished::Snoozed => "snoozed",
        Finished::Deferred => "deferred",
        Finished::Cancelled => "cancelled",
        Finished::Buried => "dead",
        Finished::Released => "released",
        Finished::Lost => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enqueue_into_a_queue_is_reported_once_per_hour() {
        let process = Process::default();
        assert!(!process.enqueued("mail", "letter", 0));
        assert!(process.enqueued("mail", "letter", 1));
        assert!(!process.enqueued("mail", "other", 1));
        assert!(process.enqueued("default", "letter", 1));
        let (mut inside, now) = (process.inside(), Instant::now());
        assert!(!inside.is_due("mail", now + Duration::from_secs(3000)));
        assert!(inside.is_due("mail", now + Duration::from_secs(3601)));
        assert!(!inside.is_due("mail", now + Duration::from_secs(3602)));
    }

    #[test]
    fn histogram_counts_each_value_in_one_bucket_and_the_largest_in_the_total_only() {
        let mut histogram = Histogram::default();
        for value in [0.0, 0.005, 0.006, 1e9, -1.0] {
            histogram.add(value);
        }
        assert_eq!(histogram.counts[..3], [3, 1, 0]);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 4);
        assert_eq!(histogram.count, 5);
    }

    #[test]
    fn names_beyond_the_bound_share_a_line() {
        let process = Process::default();
        for n in 0..5000 {
            process.enqueued("q", &format!("name {n}"), 1);
        }
        let inside = process.inside();
        assert_eq!(inside.enqueued.len(), MOST + 1);
        assert_eq!(inside.enqueued.values().sum::<u64>(), 5000);
    }
}
