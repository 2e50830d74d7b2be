//! Putting a worker together: queues, handlers, schedules and how it behaves.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::handler::{self, BatchHandler, Handler};
use super::outcome::JobResult;
use super::running::Running;
use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::Events;
use crate::housekeeping::HousekeepingConfig;
use crate::job::Job;
use crate::mirror::{self, Mirror};
use crate::schedule::Schedule;
use crate::sweep::Sweep;

/// How many jobs run at a time in a queue that nobody named.
const DEFAULT_SLOTS: usize = 10;

/// A worker being put together.
#[must_use = "a worker does nothing until it is run"]
pub struct WorkerBuilder<S> {
    pub(super) engine: Leasehold,
    pub(super) state: Arc<S>,
    pub(super) name: String,
    /// Fresh in every worker: two of one name never share leases.
    pub(super) mark: uuid::Uuid,
    pub(super) queues: Vec<(String, usize)>,
    /// The queues that the handled kinds go to.
    pub(super) kinds_queues: BTreeSet<String>,
    pub(super) runners: HashMap<String, handler::Registered>,
    pub(super) schedules: Vec<Schedule>,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) mirrors: Vec<Arc<mirror::Desk>>,
    pub(super) poll: Duration,
    pub(super) grace: Duration,
    pub(super) renew_limit: Duration,
    pub(super) housekeeping: Option<HousekeepingConfig>,
    /// Set on purpose only: a worker that forgot its handlers must not look like a healthy one.
    pub(super) runs_no_jobs: bool,
    pub(super) events: Events,
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    pub(crate) fn new(engine: Leasehold, state: S) -> Self {
        Self {
            engine,
            state: Arc::new(state),
            name: "worker".to_owned(),
            mark: uuid::Uuid::new_v4(),
            queues: Vec::new(),
            kinds_queues: BTreeSet::new(),
            runners: HashMap::new(),
            schedules: Vec::new(),
            sweeps: Vec::new(),
            mirrors: Vec::new(),
            poll: Duration::from_millis(500),
            grace: Duration::from_secs(25),
            renew_limit: Duration::from_secs(5),
            housekeeping: Some(HousekeepingConfig::default()),
            runs_no_jobs: false,
            events: Events::default(),
        }
    }

    /// A name for people. Each process adds an id of its own; nothing depends on the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Works a queue with up to `slots` jobs at a time. A worker that names no queue works those of
    /// its handlers' kinds, ten jobs at a time each.
    pub fn queue(mut self, queue: impl Into<String>, slots: usize) -> Self {
        self.queues.push((queue.into(), slots));
        self
    }

    /// Adds a handler: an async function whose first argument is the job. Names without a handler
    /// are left for other workers.
    pub fn handle<H, Args>(mut self, handler: H) -> Self
    where
        H: Handler<S, Args>,
    {
        let runner = handler::runner(handler, Arc::clone(&self.state));
        self.kinds_queues.insert(H::Job::QUEUE.to_owned());
        self.runners.insert(H::Job::NAME.to_owned(), runner);
        self
    }

    /// Adds a handler that gets up to `most` jobs of its kind at once.
    pub fn handle_batch<H, Args>(mut self, most: usize, handler: H) -> Self
    where
        H: BatchHandler<S, Args>,
    {
        let runner = handler::batch_runner(most, handler, Arc::clone(&self.state));
        self.kinds_queues.insert(H::Job::QUEUE.to_owned());
        self.runners.insert(H::Job::NAME.to_owned(), runner);
        self
    }

    /// Adds a handler for a name that is known only at run time, such as one that hands jobs to
    /// another program. Arguments are at [`Ctx::kwargs`].
    pub fn handle_untyped<F, Fut>(mut self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = JobResult> + Send + 'static,
    {
        self.kinds_queues.insert("default".to_owned());
        self.runners.insert(name.into(), handler::untyped_runner(handler));
        self
    }

    /// Enqueues a job on a schedule. However many workers declare it, each slot fires once.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Sweeps rows of a table of yours. However many workers do, each row is finished once.
    pub fn sweep(mut self, sweep: Sweep) -> Self {
        self.sweeps.push(sweep);
        self
    }

    /// Keeps a store equal to a table of yours: works the jobs of its changes, compares everything all
    /// the time, forgets old deletions. The mirror's queue gets the slots that its batches need, unless
    /// this worker names it.
    pub fn mirror(mut self, mirror: Mirror) -> Self {
        let desk = Arc::new(mirror::Desk::new(&self.engine, mirror));
        let (job, order) = (desk.mirror().job_name(), desk.mirror().order_name());
        self.runners.insert(job.to_owned(), mirror::pass_runner(Arc::clone(&desk)));
        self.runners.insert(order, mirror::order_runner(Arc::clone(&desk)));
        self.mirrors.push(desk);
        self
    }

    /// How often to look for work when no wake-up comes. Shorter: less waiting after a lost
    /// wake-up, more queries. Default: 500 ms.
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// How long running handlers may go on after a stop. Default: 25 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Leaves expiring leases, schedules, the watchdogs of sweeps and pruning to other workers.
    pub fn without_housekeeping(mut self) -> Self {
        self.housekeeping = None;
        self
    }

    pub fn housekeeping(mut self, config: HousekeepingConfig) -> Self {
        self.housekeeping = Some(config);
        self
    }

    /// Runs no jobs and sweeps nothing: only expires leases, fires schedules, watches over the sweeps
    /// that it was given and prunes.
    pub fn only_housekeeping(mut self) -> Self {
        self.runs_no_jobs = true;
        self
    }

    /// Where this worker's events go.
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// Runs until `stop` is ready, then stops claiming, waits for the running handlers up to the
    /// grace, hands back what is left and returns.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), WorkerError> {
        self.run_until_or_hurry(stop, std::future::pending()).await
    }

    /// The same; when `hurry` is ready too, the grace is cut short.
    pub async fn run_until_or_hurry(
        self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), WorkerError> {
        let queues = self.queues();
        self.check(&queues)?;
        let running = Running::start(self).await?;
        running.until(stop, hurry, &queues).await
    }

    /// The queues to work, with their slots.
    pub(super) fn queues(&self) -> Vec<(String, usize)> {
        let mut queues = self.queues.clone();
        if queues.is_empty() {
            queues = self.kinds_queues.iter().map(|queue| (queue.clone(), DEFAULT_SLOTS)).collect();
        }
        for mirror in self.mirrors.iter().map(|desk| desk.mirror()) {
            if self.queues.iter().any(|(queue, _)| queue == mirror.queue_name()) {
                continue; // Whoever names the queue knows how much it may take.
            }
            match queues.iter_mut().find(|(queue, _)| queue == mirror.queue_name()) {
                Some((_, slots)) => *slots = (*slots).max(mirror.slots()),
                None => queues.push((mirror.queue_name().to_owned(), mirror.slots())),
            }
        }
        queues
    }

    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.name, self.mark.simple())
    }

    fn check(&self, queues: &[(String, usize)]) -> Result<(), WorkerError> {
        let config = |text: String| Err(WorkerError::Config(text));
        if self.runs_no_jobs {
            let alone = queues.is_empty() && self.runners.is_empty() && self.housekeeping.is_some();
            return match alone {
                true => Ok(()),
                false => config(
                    "only_housekeeping goes with no queue, no handler and housekeeping on".into(),
                ),
            };
        }
        for sweep in &self.sweeps {
            if self.sweeps.iter().filter(|other| other.name() == sweep.name()).count() > 1 {
                return config(format!("sweep {:?} is named twice", sweep.name()));
            }
        }
        for (at, one) in self.mirrors.iter().enumerate() {
            for other in self.mirrors.iter().skip(at + 1) {
                if one.name() == other.name() {
                    return config(format!("mirror {:?} is named twice", one.name()));
                }
                if one.mirror().job_name() == other.mirror().job_name() {
                    return config(format!(
                        "mirrors {:?} and {:?} have jobs of one name; use .job(name, field)",
                        one.name(),
                        other.name()
                    ));
                }
            }
        }
        if self.runners.is_empty() && self.sweeps.is_empty() {
            return config("no handler; add one with .handle(function)".into());
        }
        for (queue, slots) in queues {
            // Plain INSERTs may name queues that `enqueue` would refuse; they must have workers too.
            if queue.is_empty() || queue.len() > 64 {
                return config(format!(
                    "queue name {queue:?} is not allowed: it has 1 to 64 bytes"
                ));
            }
            if *slots == 0 || *slots > 100_000 {
                return config(format!("queue {queue:?} has {slots} slots; use 1 to 100000"));
            }
            if queues.iter().filter(|other| other.0 == *queue).count() > 1 {
                return config(format!("queue {queue:?} is named twice"));
            }
        }
        if self.poll < Duration::from_millis(1) || self.poll > Duration::from_secs(60) {
            return config("poll_every must be between 1 ms and 60 s".into());
        }
        Ok(())
    }
}
