//! Events: what a worker does, as it happens. For tests, logs and counters.

use tokio::sync::broadcast;

use crate::job::{Generation, JobId};
use crate::queue::finish::Finished;

/// One thing that happened in a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A handler is about to run.
    Started { job: JobId, generation: Generation },
    /// The database has recorded how an attempt ended.
    Finished { job: JobId, generation: Generation, outcome: Finished },
    /// The database has renewed a lease.
    Renewed { generation: Generation },
    /// The worker learnt that it no longer owns these jobs; it asked their handlers to stop.
    LeaseLost { generation: Generation },
    /// Housekeeping reclaimed the jobs of expired leases.
    Expired { returned: i32, buried: i32 },
    /// A claim whose reply was lost was recovered.
    ClaimRecovered { generation: Generation, jobs: usize },
    /// A schedule fired.
    ScheduleFired { schedule: String, job: JobId },
    /// A sweep claimed a batch.
    SweepClaimed { sweep: String, token: Generation, rows: usize },
    /// The database has recorded how the rows of a batch ended.
    SweepFinished { sweep: String, token: Generation, finished: u64, failed: u64, lost: u64 },
    /// Nothing was due any more, and the sweep sleeps until its next run. Other workers may still run a
    /// last batch.
    SweepRunEnded { sweep: String },
    /// The watchdog reset rows.
    SweepWatched { sweep: String, reset: u64, retried: u64 },
    /// A range of a mirror was compared with its store.
    MirrorChecked { mirror: String, rows: u64, differences: u64, round_over: bool },
    /// A duty of housekeeping has failed this many times in a row.
    DutyFailing { duty: String, times: u32, error: String },
    /// The role of this worker may not do these duties of housekeeping.
    DutiesNotAllowed { role: String, duties: Vec<String> },
    /// The worker has stopped claiming and waits for its handlers.
    Draining,
}

/// The channel for events. Without a subscriber, sending costs next to nothing.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(16_384).0)
    }
}

impl Events {
    /// Subscribes to all events from now on. A receiver that falls far behind gets an error that tells
    /// how many it missed.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // Without a receiver, the error does not matter.
            let _ = self.0.send(event());
        }
    }
}
