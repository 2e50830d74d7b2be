//! Decisions: how attempts ended, on their way from the handlers to the finisher.
//!
//! # Invariants
//! - One lane and one finisher per queue: a queue whose finishes are slow or refused does not delay the
//!   others, as long as not all sessions of the finishers wait (see [`crate::link::Stream`]).
//! - A lane holds a limited number of unrecorded ends. When it is full, handlers keep their slots, so
//!   the worker claims no more than it can record.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::context::Attempt;
use crate::queue::finish::Transition;

/// How one attempt ended. Dropping it frees its permit in the lane.
pub(crate) struct Decision {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) transition: Transition,
    _room: Option<OwnedSemaphorePermit>,
}

impl Decision {
    /// A decision that takes no room in a lane. There are at most as many as slots.
    pub(crate) fn unbounded(attempt: Arc<Attempt>, transition: Transition) -> Self {
        Self { attempt, transition, _room: None }
    }
}

/// Where handlers submit how their attempts ended.
#[derive(Default)]
pub(crate) struct Decisions {
    lanes: HashMap<Arc<str>, Lane>,
}

struct Lane {
    sender: mpsc::UnboundedSender<Decision>,
    room: Arc<Semaphore>,
}

/// Unrecorded ends per queue: four times its slots, within these bounds.
const LEAST_ROOM: usize = 1024;
const MOST_ROOM: usize = 8192;

impl Decisions {
    /// Opens the lane of a queue and returns its receiver.
    pub(crate) fn open(
        &mut self,
        queue: &Arc<str>,
        slots: usize,
    ) -> mpsc::UnboundedReceiver<Decision> {
        let room = Arc::new(Semaphore::new((slots * 4).clamp(LEAST_ROOM, MOST_ROOM)));
        // The semaphore bounds it.
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lanes.insert(Arc::clone(queue), Lane { sender, room });
        receiver
    }

    /// Submits a decision; waits while the lane is full.
    pub(crate) async fn send(&self, attempt: Arc<Attempt>, transition: Transition) {
        if let Some(lane) = self.lanes.get(&attempt.queue) {
            let room = Arc::clone(&lane.room).acquire_owned().await.ok();
            // Without a finisher the process is ending, and the job returns when its lease runs out.
            let _ = lane.sender.send(Decision { attempt, transition, _room: room });
        }
    }

    /// Submits a decision while the worker stops, without waiting for a permit.
    pub(crate) fn send_last(&self, attempt: Arc<Attempt>, transition: Transition) {
        if let Some(lane) = self.lanes.get(&attempt.queue) {
            let _ = lane.sender.send(Decision::unbounded(attempt, transition));
        }
    }
}
