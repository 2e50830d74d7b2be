//! Bulk work: jobs that were enqueued for many rows at once. No user waits for them. While users change
//! rows, their changes come first.
//!
//! # What is true
//! - While users change rows, this process runs one bulk pass at a time and pauses before the next.
//!   Jobs claimed meanwhile wait, and the next pass takes all of them.
//! - Without changes by users there are neither turns nor pauses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::pass::Pass;
use super::runtime::MirrorRuntime;
use crate::queue::cursors::DEFERRED;
use crate::queue::finish::Transition;
use crate::worker::Attempt;

/// Jobs from this priority on are bulk work.
const BULK: i32 = 100;

/// While users change rows, bulk work pauses for this many times the duration of its last pass.
const REST: u32 = 5;
/// Upper bound of the pause: one slow call to the store must not delay bulk work for minutes.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Returns whether a job of this priority is bulk work.
pub(super) fn is_bulk(priority: i32) -> bool {
    priority % DEFERRED >= BULK
}

/// Returns the pause after a bulk pass, proportional to its duration. The pause leaves most of the
/// store's capacity to changes by users, and lets the next pass collect more jobs.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).min(LONGEST_REST)
}

/// Bulk work of this process.
#[derive(Default)]
pub(super) struct Bulk {
    /// Held by the running pass. The value is the end of the pause before the next pass.
    turn: tokio::sync::Mutex<Option<Instant>>,
    waiting: Mutex<Vec<Waiting>>,
}

/// The jobs of one claim. There are never more of these than the worker has slots.
struct Waiting {
    attempts: Vec<Arc<Attempt>>,
    answer: oneshot::Sender<Vec<Transition>>,
}

impl Bulk {
    fn add(&self, attempts: Vec<Arc<Attempt>>) -> oneshot::Receiver<Vec<Transition>> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Waiting { attempts, answer });
        answered
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs jobs that are all bulk work.
pub(super) async fn run(runtime: &MirrorRuntime, attempts: Vec<Arc<Attempt>>) -> Vec<Transition> {
    let shared = &runtime.mirror.shared;
    if !shared.is_live() {
        return Pass::new(runtime, attempts).run().await;
    }
    let count = attempts.len();
    let mut answered = shared.bulk.add(attempts);
    let mut rests_until = tokio::select! {
        biased;
        // Another claim's pass included these jobs.
        Ok(transitions) = &mut answered => return transitions,
        turn = shared.bulk.turn.lock() => turn,
    };
    if let Some(until) = rests_until.take() {
        tokio::time::sleep_until(until.into()).await;
    }
    let waiting = shared.bulk.take();
    let all: Vec<_> = waiting.iter().flat_map(|claim| claim.attempts.iter().cloned()).collect();
    let started = Instant::now();
    let mut transitions = Pass::new(runtime, all).run().await.into_iter();
    for claim in waiting {
        // A receiver that is gone has lost its lease, so its transitions may be dropped.
        let _ = claim.answer.send(transitions.by_ref().take(claim.attempts.len()).collect());
    }
    *rests_until = Some(Instant::now() + rest(started.elapsed()));
    answered.try_recv().unwrap_or_else(|_| vec![Transition::Release; count])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bulk_work_rests_longer_than_it_works_and_not_for_ever() {
        assert_eq!(rest(SECOND / 5), SECOND);
        assert_eq!(rest(60 * SECOND), 2 * SECOND);
    }
}
