//! Bulk work: jobs that were enqueued for many rows at once. No user waits for them. While users change
//! rows, their changes come first.
//!
//! # Invariants
//! - While users change rows, this process runs one bulk pass at a time, with a cool-down after each.
//!   Jobs claimed meanwhile wait, and the next pass takes all of them.
//! - Without changes by users, bulk passes run at once and side by side.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::pass::Pass;
use crate::mirror::runtime::MirrorRuntime;
use crate::{Ctx, JobResult, Outcome};

/// Jobs from this priority on are bulk work.
const BULK: i32 = 100;

/// While users change rows, the cool-down is this many times the duration of the last bulk pass.
const COOLDOWN: u32 = 5;
/// One slow call to the store must not delay bulk work for minutes.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(2);

/// Returns whether a job of this priority is bulk work.
pub(crate) fn is_bulk(priority: i32) -> bool {
    priority >= BULK
}

/// Returns the cool-down after a bulk pass, proportional to its duration. It leaves most of the store's
/// capacity to changes by users, and lets the next pass collect more jobs.
fn cooldown(took: Duration) -> Duration {
    took.saturating_mul(COOLDOWN).min(LONGEST_COOLDOWN)
}

/// Bulk work of this process.
#[derive(Default)]
pub(crate) struct Bulk {
    /// Held by the running pass. The value is the end of the cool-down before the next pass.
    slot: tokio::sync::Mutex<Option<Instant>>,
    waiting: Mutex<Vec<Waiting>>,
}

/// The jobs of one claim. There are never more of these than the worker has slots.
struct Waiting {
    jobs: Vec<Ctx>,
    results: oneshot::Sender<Vec<JobResult>>,
}

impl Bulk {
    fn add(&self, jobs: Vec<Ctx>) -> oneshot::Receiver<Vec<JobResult>> {
        let (results, receiver) = oneshot::channel();
        self.waiting.lock().push(Waiting { jobs, results });
        receiver
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Runs jobs that are all bulk work.
pub(super) async fn run(runtime: &MirrorRuntime, jobs: Vec<Ctx>) -> Vec<JobResult> {
    let shared = &runtime.mirror.shared;
    if !shared.is_live() {
        return Pass::new(runtime, jobs).run().await;
    }
    let count = jobs.len();
    let mut receiver = shared.bulk.add(jobs);
    let mut cooldown_until = tokio::select! {
        biased;
        // Another claim's pass included these jobs.
        Ok(results) = &mut receiver => return results,
        slot = shared.bulk.slot.lock() => slot,
    };
    if let Some(until) = cooldown_until.take() {
        tokio::time::sleep_until(until.into()).await;
    }
    let waiting = shared.bulk.take();
    let all: Vec<Ctx> = waiting.iter().flat_map(|claim| claim.jobs.iter().cloned()).collect();
    let started = Instant::now();
    let mut results = Pass::new(runtime, all).run().await.into_iter();
    for claim in waiting {
        // A receiver that is gone has lost its lease, so its results may be dropped.
        let _ = claim.results.send(results.by_ref().take(claim.jobs.len()).collect());
    }
    *cooldown_until = Some(Instant::now() + cooldown(started.elapsed()));
    let released = || std::iter::repeat_with(|| Ok(Outcome::Release)).take(count).collect();
    receiver.try_recv().unwrap_or_else(|_| released())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn cooldown_grows_with_the_pass_and_has_a_bound() {
        assert_eq!(cooldown(SECOND / 5), SECOND);
        assert_eq!(cooldown(60 * SECOND), 2 * SECOND);
    }
}
