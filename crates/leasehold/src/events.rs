//! Events: what a worker did, as it happens. For tests, logs and whoever wants to count.

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
    /// The database has prolonged a lease.
    Renewed { generation: Generation },
    /// The worker learnt that it no longer owns these jobs; their handlers were told to stop.
    LeaseLost { generation: Generation },
    /// Expired leases were cleaned up.
    Expired { returned: i32, buried: i32 },
    /// A claim whose reply was lost was found again.
    ClaimRecovered { generation: Generation, jobs: usize },
    /// A schedule fired.
    ScheduleFired { schedule: String, job: JobId },
    /// A sweep claimed a batch.
    SweepClaimed { sweep: String, token: Generation, rows: usize },
    /// The database has recorded how the rows of a batch ended.
    SweepFinished { sweep: String, token: Generation, finished: u64, failed: u64, lost: u64 },
    /// Nothing was due any more, and the sweep sleeps until its next run. Other workers may have a
    /// last batch in hand.
    SweepRunEnded { sweep: String },
    /// The watchdog gave rows back.
    SweepWatched { sweep: String, reset: u64, retried: u64 },
    /// A range of a mirror was compared with its store.
    MirrorChecked { mirror: String, rows: u64, differences: u64, round_over: bool },
    /// The worker has stopped claiming and waits for its handlers.
    Draining,
}

/// Where events go. Sending to nobody costs next to nothing.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(16_384).0)
    }
}

impl Events {
    /// Everything that is sent from now on. A reader that falls far behind is told so.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // No receiver any more is no error.
            let _ = self.0.send(event());
        }
    }
}
