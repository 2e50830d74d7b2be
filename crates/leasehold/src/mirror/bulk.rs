//! Bulk work: jobs that were made for many rows at once. Nobody waits for them, and while people change
//! rows these come first.
//!
//! # What is true
//! - While people are there, one pass of bulk work runs at a time in this process, with a rest before the
//!   next. What is claimed meanwhile waits, and the next pass takes all of it.
//! - Without people there are neither turns nor rests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::desk::Desk;
use super::pass::Pass;
use crate::queue::finish::Verdict;
use crate::queue::lanes::PUT_OFF;
use crate::worker::Attempt;

/// Jobs from this priority on are bulk work.
const BULK: i32 = 100;

/// How much longer than a pass bulk work rests, while people change rows.
const REST: u32 = 5;
/// A store that is slow for once must not put bulk work off for minutes.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// Whether nobody waits for a job of this priority.
pub(super) fn is_bulk(priority: i32) -> bool {
    priority % PUT_OFF >= BULK
}

/// How long bulk work rests after a pass that took so long. It has all the time in the world: people have
/// most of it, and meanwhile more jobs gather for one go.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST).min(LONGEST_REST)
}

/// Bulk work of this process.
#[derive(Default)]
pub(super) struct Bulk {
    /// Until when whoever has the turn rests.
    turn: tokio::sync::Mutex<Option<Instant>>,
    waiting: Mutex<Vec<Waiting>>,
}

/// The jobs of one claim. No more wait than a worker has slots.
struct Waiting {
    attempts: Vec<Arc<Attempt>>,
    answer: oneshot::Sender<Vec<Verdict>>,
}

impl Bulk {
    fn add(&self, attempts: Vec<Arc<Attempt>>) -> oneshot::Receiver<Vec<Verdict>> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(Waiting { attempts, answer });
        answered
    }

    fn take(&self) -> Vec<Waiting> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Works jobs that are all bulk work.
pub(super) async fn run(desk: &Desk, attempts: Vec<Arc<Attempt>>) -> Vec<Verdict> {
    let shared = &desk.mirror.shared;
    if !shared.is_live() {
        return Pass::new(desk, attempts).run().await;
    }
    let count = attempts.len();
    let mut answered = shared.bulk.add(attempts);
    let mut rests_until = tokio::select! {
        biased;
        // Somebody else's turn did ours.
        Ok(verdicts) = &mut answered => return verdicts,
        turn = shared.bulk.turn.lock() => turn,
    };
    if let Some(until) = rests_until.take() {
        tokio::time::sleep_until(until.into()).await;
    }
    let waiting = shared.bulk.take();
    let all: Vec<_> = waiting.iter().flat_map(|claim| claim.attempts.iter().cloned()).collect();
    let started = Instant::now();
    let mut verdicts = Pass::new(desk, all).run().await.into_iter();
    for claim in waiting {
        // Whoever gave up does not hear it, and has lost its lease.
        let _ = claim.answer.send(verdicts.by_ref().take(claim.attempts.len()).collect());
    }
    *rests_until = Some(Instant::now() + rest(started.elapsed()));
    answered.try_recv().unwrap_or_else(|_| vec![Verdict::Release; count])
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
