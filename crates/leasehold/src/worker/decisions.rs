//! Decisions: how attempts ended, on their way from the handlers to the finisher.
//!
//! # Invariants
//! - One lane and one finisher per queue: a queue whose finishes are slow or refused does not delay the
//!   others, as long as not all sessions of the finishers wait (see [`crate::link::Stream`]).
//! - A lane holds a limited number of unrecorded ends. When it is full, handlers keep their slots, so
//!   the worker claims no more than it can record.
//! - A task that runs many short jobs sends their ends together: one message, and one permit of the lane.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::context::Attempt;
use crate::queue::finish::Transition;

/// Decisions that a task has not submitted yet: it has taken their permits before, so that what is not submitted
/// counts too.
pub(super) struct Ends<'a> {
    lane: Option<&'a Lane>,
    decisions: Vec<Decision>,
    /// [`TOGETHER`] permits. `None`: there were not as many.
    room: Option<OwnedSemaphorePermit>,
}

impl Ends<'_> {
    pub(super) fn push(&mut self, attempt: Arc<Attempt>, transition: Transition) {
        let Some(lane) = self.lane else { return };
        if self.room.is_none() {
            let permits = u32::try_from(TOGETHER).unwrap_or(u32::MAX);
            self.room = Arc::clone(&lane.room).try_acquire_many_owned(permits).ok();
        }
        self.decisions.push(Decision::unbounded(attempt, transition));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Returns whether no further decision may be added before these are submitted.
    pub(super) fn is_full(&self) -> bool {
        !self.is_empty() && (self.room.is_none() || self.decisions.len() >= TOGETHER)
    }

    /// Submits the decisions, [`TOGETHER`] at a time; waits while the lane is full.
    pub(super) async fn send(&mut self) {
        let (Some(lane), mut reserved) = (self.lane, self.room.take()) else { return };
        while !self.decisions.is_empty() {
            let rest = self.decisions.split_off(self.decisions.len().min(TOGETHER));
            let mut together = std::mem::replace(&mut self.decisions, rest);
            // What it does not need is free again.
            let room = match reserved.take().and_then(|mut room| room.split(together.len())) {
                Some(room) => Some(room),
                None => {
                    let count = u32::try_from(together.len()).unwrap_or(u32::MAX);
                    Arc::clone(&lane.room).acquire_many_owned(count).await.ok()
                }
            };
            let room = room.map(Arc::new);
            together.iter_mut().for_each(|decision| decision.room.clone_from(&room));
            // Without a finisher the process is ending, and the job returns when its lease runs out.
            let _ = lane.sender.send(together);
        }
    }
}

/// How one attempt ended.
pub(crate) struct Decision {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) transition: Transition,
    /// Those that were sent together share a permit in the lane: it is free when the last one is dropped.
    room: Option<Arc<OwnedSemaphorePermit>>,
}

impl Decision {
    /// A decision that takes no room in a lane. There are at most as many as slots, and jobs that wait for one.
    pub(crate) fn unbounded(attempt: Arc<Attempt>, transition: Transition) -> Self {
        Self { attempt, transition, room: None }
    }
}

/// Where handlers submit how their attempts ended.
#[derive(Default)]
pub(crate) struct Decisions {
    lanes: HashMap<Arc<str>, Lane>,
}

struct Lane {
    sender: mpsc::UnboundedSender<Vec<Decision>>,
    room: Arc<Semaphore>,
}

/// Unrecorded ends per queue: four times its slots, within these bounds.
const LEAST_ROOM: usize = 1024;
const MOST_ROOM: usize = 8192;
/// The most ends that are sent together.
pub(super) const TOGETHER: usize = 64;

impl Decisions {
    /// Opens the lane of a queue and returns its receiver.
    pub(crate) fn open(
        &mut self,
        queue: &Arc<str>,
        slots: usize,
    ) -> mpsc::UnboundedReceiver<Vec<Decision>> {
        let room = Arc::new(Semaphore::new((slots * 4).clamp(LEAST_ROOM, MOST_ROOM)));
        // The semaphore bounds it.
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lanes.insert(Arc::clone(queue), Lane { sender, room });
        receiver
    }

    /// Returns a collection for the decisions of one task, all of one queue.
    pub(super) fn ends(&self, queue: &Arc<str>) -> Ends<'_> {
        Ends { lane: self.lanes.get(queue), decisions: Vec::new(), room: None }
    }

    /// Submits a decision while the worker stops, without waiting for a permit.
    pub(crate) fn send_last(&self, attempt: Arc<Attempt>, transition: Transition) {
        if let Some(lane) = self.lanes.get(attempt.queue()) {
            let _ = lane.sender.send(vec![Decision::unbounded(attempt, transition)]);
        }
    }
}
