//! Sleep: how long a loop waits after a claim that found nothing, and what may wake it.
//!
//! # Invariants
//! - NOTIFY wakes a loop that announced itself as idle. The loop withdraws the announcement when jobs
//!   come too fast to be woken for each, and when every slot is taken: producers then send no NOTIFY.
//! - The announcement precedes the claims that find nothing. A producer that checked just before it and
//!   commits just after them would be missed, so the loop claims a few times more before it sleeps.
//! - No sleep lasts beyond the due time of the next job of the queue, by the database's clock, nor
//!   longer than twice the poll interval.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wakes::{Announced, Wakes};
use crate::backoff::{Backoff, Jitter, Waits, jitter};
use crate::queue::next_due::{NextDue, Wait};

/// Pauses between the last job and the announcement: in a steady stream the next job follows soon.
const LINGER: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(5)];
/// Pauses between the announcement and the sleep: a producer that checked before the announcement
/// commits within them, unless its disk is slower.
const GRACE: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(10), Duration::from_millis(50)];
/// A claim that finds jobs within this time of the last one that did, or without an empty one in
/// between, is part of a stream.
const DENSE: Duration = Duration::from_millis(5);
/// After this many claims of a stream the loop needs no wake-ups.
const DENSE_CLAIMS: u32 = 3;
/// If dead rows of finished jobs make the query for the next due time slow, the worker repeats it only
/// after this many times its duration. If it is fast, the worker repeats it before every sleep.
const SHARE: u32 = 100;
const QUICK: Duration = Duration::from_millis(5);
const LONGEST_UNASKED: Duration = Duration::from_secs(60);
/// The shortest sleep towards a due time. It doubles while other workers claim the due jobs: a whole fleet
/// must not wake for every job of a stream.
const SHORTEST: Backoff =
    Backoff::doubling(Duration::from_millis(1), Duration::from_millis(100)).jitter(Jitter::None);

/// The sleep of one loop.
pub(super) struct Sleep {
    queue: Arc<str>,
    poll: Duration,
    wakes: Arc<Wakes>,
    announced: Option<Announced>,
    /// Empty claims since the last job, or since the announcement.
    looks: usize,
    idle_polls: u32,
    last_claim: Option<Instant>,
    /// Consecutive claims that found jobs.
    dense_claims: u32,
    found_nothing: bool,
    shortest: Waits,
    ask_at: Instant,
}

impl Sleep {
    pub(super) fn new(queue: Arc<str>, poll: Duration, wakes: Arc<Wakes>) -> Self {
        Self {
            queue,
            poll,
            wakes,
            announced: None,
            looks: 0,
            idle_polls: 0,
            last_claim: None,
            dense_claims: 0,
            found_nothing: true,
            shortest: SHORTEST.waits(),
            ask_at: Instant::now(),
        }
    }

    /// Waits for free slots. While there are none, nothing can start here: wake-ups would be useless.
    pub(super) async fn until_free<T>(&mut self, slots: impl Future<Output = T>) -> T {
        let mut slots = pin!(slots);
        if self.announced.is_some() {
            match tokio::time::timeout(DENSE, &mut slots).await {
                Ok(free) => return free,
                Err(_) => self.withdraw(),
            }
        }
        slots.await
    }

    /// Records that a claim found jobs.
    pub(super) fn found_jobs(&mut self) {
        self.idle_polls = 0;
        self.shortest.reset();
        let now = Instant::now();
        let soon = self.last_claim.replace(now).is_some_and(|last| now - last < DENSE);
        let dense = soon || !std::mem::replace(&mut self.found_nothing, false);
        self.dense_claims = if dense { self.dense_claims + 1 } else { 0 };
        if self.dense_claims >= DENSE_CLAIMS {
            self.withdraw();
        }
        if self.announced.is_none() {
            self.looks = 0;
        }
    }

    /// Returns how long to wait after a claim that found nothing. `next_due` finds the next due time
    /// within the planned sleep.
    pub(super) async fn pause<F: Future<Output = NextDue>>(
        &mut self,
        next_due: impl FnOnce(Duration) -> F,
    ) -> Duration {
        if self.announced.is_some_and(|announced| !self.wakes.counts(announced)) {
            (self.announced, self.looks) = (None, LINGER.len());
        }
        self.found_nothing = true;
        let looks = self.looks;
        self.looks += 1;
        if self.announced.is_none() {
            if let Some(pause) = LINGER.get(looks) {
                return *pause;
            }
            self.announced = self.wakes.announce(&self.queue).await;
            if self.announced.is_some() {
                // A claim that was sent before the announcement proves nothing.
                self.looks = 0;
                return Duration::ZERO;
            }
        } else if let Some(pause) = GRACE.get(looks) {
            return *pause;
        }
        self.idle_polls = self.idle_polls.saturating_add(1);
        let pause = self.idle_pause();
        let unasked = self.ask_at.saturating_duration_since(Instant::now());
        if !unasked.is_zero() {
            return pause.min(unasked);
        }
        let NextDue { wait, took } = next_due(pause).await;
        if took > QUICK {
            self.ask_at = Instant::now() + took.saturating_mul(SHARE).min(LONGEST_UNASKED);
        }
        match wait {
            Wait::In(due) => due.max(self.shortest.next_wait()).min(pause),
            Wait::Unknown => pause,
            Wait::Paused => {
                self.withdraw();
                pause
            }
        }
    }

    /// Returns the idle pause. It grows while nothing comes, up to twice the poll interval.
    fn idle_pause(&self) -> Duration {
        let longest = if self.idle_polls > 20 { self.poll * 2 } else { self.poll };
        jitter(longest)
    }

    fn withdraw(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.looks = 0;
            self.wakes.withdraw(&self.queue, announced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_millis(500);

    fn sleep() -> Sleep {
        Sleep::new("default".into(), POLL, Arc::new(Wakes::new(Arc::default())))
    }

    async fn pause(sleep: &mut Sleep, wait: Wait) -> Duration {
        sleep.pause(|_| async move { NextDue { wait, took: Duration::ZERO } }).await
    }

    #[tokio::test]
    async fn worker_that_cannot_listen_polls_after_two_short_sleeps() {
        let mut sleep = sleep();
        for expected in LINGER {
            assert_eq!(pause(&mut sleep, Wait::Unknown).await, expected);
        }
        for _ in 0..20 {
            let idle = pause(&mut sleep, Wait::Unknown).await;
            assert!(idle >= POLL.mul_f64(0.8) && idle <= POLL, "{idle:?}");
        }
        assert!(pause(&mut sleep, Wait::Unknown).await >= POLL.mul_f64(1.6), "nothing comes");
        sleep.found_jobs();
        assert_eq!(pause(&mut sleep, Wait::Unknown).await, LINGER[0]);
    }

    #[tokio::test]
    async fn sleep_ends_when_the_next_job_is_due() {
        let mut sleep = sleep();
        sleep.looks = LINGER.len();
        let due = Duration::from_millis(40);
        assert_eq!(pause(&mut sleep, Wait::In(due)).await, due);
        assert!(pause(&mut sleep, Wait::In(Duration::from_secs(9))).await <= POLL);
    }

    #[tokio::test]
    async fn sleeps_double_when_a_due_job_is_not_claimed() {
        let mut sleep = sleep();
        sleep.looks = LINGER.len();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(pause(&mut sleep, Wait::In(Duration::ZERO)).await.as_millis());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        sleep.found_jobs();
        sleep.looks = LINGER.len();
        assert_eq!(pause(&mut sleep, Wait::In(Duration::ZERO)).await, SHORTEST.base);
    }

    #[tokio::test]
    async fn slow_query_for_due_times_is_not_repeated_before_the_next_sleep() {
        let mut sleep = sleep();
        sleep.looks = LINGER.len();
        let slow = NextDue { wait: Wait::Unknown, took: Duration::from_millis(100) };
        sleep.pause(|_| async move { slow }).await;
        let asked = std::cell::Cell::new(false);
        let idle = sleep
            .pause(|_| async {
                asked.set(true);
                slow
            })
            .await;
        assert!(!asked.get() && idle <= POLL);
    }
}
