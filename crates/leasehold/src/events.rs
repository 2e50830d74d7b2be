//! Events: what a worker does, as it happens. For tests, logs and counters.

use tokio::sync::broadcast;

use crate::job::{Generation, JobId};
use crate::queue::finish::Finished;

/// One thing that happened in a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A handler is about to run.
    #[non_exhaustive]
    Started {
        /// The job.
        job: JobId,
        /// The generation of its claim.
        generation: Generation,
    },
    /// The database has recorded how an attempt ended.
    #[non_exhaustive]
    Finished {
        /// The job.
        job: JobId,
        /// The generation of its claim.
        generation: Generation,
        /// What was recorded.
        finished: Finished,
    },
    /// The database has renewed a lease.
    #[non_exhaustive]
    Renewed {
        /// The generation of the claim.
        generation: Generation,
    },
    /// The worker learnt that it no longer owns these jobs; it asked their handlers to stop.
    #[non_exhaustive]
    LeaseLost {
        /// The generation of the claim.
        generation: Generation,
    },
    /// Housekeeping reclaimed the jobs of leases that ran out.
    #[non_exhaustive]
    Reclaimed {
        /// Jobs that wait for their next attempt. Those that lost a worker before wait longer each time.
        returned: i32,
        /// Jobs that are dead: no attempt or loss was left.
        dead: i32,
    },
    /// A claim whose reply was lost was recovered.
    #[non_exhaustive]
    ClaimRecovered {
        /// The generation of the claim.
        generation: Generation,
        /// How many jobs it holds.
        jobs: usize,
    },
    /// A schedule fired.
    #[non_exhaustive]
    ScheduleFired {
        /// The name of the schedule.
        schedule: String,
        /// The job that it enqueued.
        job: JobId,
    },
    /// A sweep claimed a batch.
    SweepClaimed {
        /// The name of the sweep.
        sweep: String,
        /// The number of the claim.
        token: Generation,
        /// How many rows it holds.
        rows: usize,
    },
    /// The database has recorded how the rows of a batch ended.
    SweepFinished {
        /// The name of the sweep.
        sweep: String,
        /// The number of the claim.
        token: Generation,
        /// Rows that are finished.
        finished: u64,
        /// Rows that failed.
        failed: u64,
        /// Rows that another worker owns now.
        lost: u64,
    },
    /// Nothing was due any more, and the sweep sleeps until its next run. Other workers may still run a
    /// last batch.
    SweepRunEnded {
        /// The name of the sweep.
        sweep: String,
    },
    /// The watchdog reset rows.
    SweepReset {
        /// The name of the sweep.
        sweep: String,
        /// Rows whose claim was older than the watchdog limit.
        reset: u64,
        /// Failed rows that are due again.
        retried: u64,
    },
    /// A range of a mirror was compared with its store.
    MirrorChecked {
        /// The name of the mirror.
        mirror: String,
        /// Rows that were compared.
        rows: u64,
        /// Rows that differed.
        differences: u64,
        /// True: this range was the last one of a round over the whole table.
        round_over: bool,
    },
    /// A background duty has failed this many times in a row.
    #[non_exhaustive]
    DutyFailing {
        /// The name of the duty.
        duty: String,
        /// Failures in a row.
        times: u32,
        /// The last error.
        error: String,
    },
    /// The role of this worker may not do these duties of housekeeping.
    #[non_exhaustive]
    DutiesNotAllowed {
        /// The role of the worker.
        role: String,
        /// The names of the duties.
        duties: Vec<String>,
    },
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
    /// Subscribes to all events from now on. A receiver that falls far behind gets an error with
    /// the number of events that it missed.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    /// Sends an event, if there is a subscriber. For services, which report what they do.
    pub fn send(&self, event: impl FnOnce() -> Event) {
        if self.0.receiver_count() > 0 {
            // Without a receiver, the error does not matter.
            let _ = self.0.send(event());
        }
    }
}
