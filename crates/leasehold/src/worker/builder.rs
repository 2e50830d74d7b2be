//! Builds a worker: queues, handlers, schedules and settings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::context::Ctx;
use super::handler::{self, Handler, IntoManyResult, ManyHandler};
use super::hooks::{FinishedJob, Hooks};
use super::layer::{Layers, Next};
use super::outcome::IntoJobResult;
use super::running::{Running, Shared};
use super::service::{AnyService, WorkerService};
#[cfg(unix)]
use super::signals::StopSignals;
use super::slots::ClaimAhead;
use super::transaction::Transactions;
use super::untyped::{ManyJobs, UntypedJob};
use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::Events;
use crate::housekeeping::HousekeepingConfig;
use crate::job::Job;
use crate::mirror::Mirror;
use crate::schedule::Schedule;
use crate::sweep::Sweep;

/// Slots of a queue that was not named in the builder.
const DEFAULT_SLOTS: usize = 10;

/// A worker under construction.
#[must_use = "a worker does nothing until it is run"]
pub struct WorkerBuilder<S> {
    pub(super) engine: Leasehold,
    pub(super) state: Arc<S>,
    pub(super) name: String,
    /// Fresh in every worker: two with the same name never share leases.
    pub(super) mark: uuid::Uuid,
    pub(super) queues: Vec<(String, usize)>,
    /// The queues of the handled job types.
    pub(super) handled_queues: BTreeSet<String>,
    pub(super) runners: HashMap<String, handler::Registered>,
    /// The queue that jobs of a name go to by their type, and names that have more than one handler.
    pub(super) queue_of: BTreeMap<String, String>,
    pub(super) handled_twice: BTreeSet<String>,
    /// Queues that are worked although the caller did not name them, and the fewest slots of each.
    pub(super) needed_slots: BTreeMap<String, usize>,
    pub(super) allows_other_queues: bool,
    pub(super) schedules: Vec<Schedule>,
    pub(super) retired: Vec<String>,
    pub(super) services: Vec<Arc<dyn AnyService>>,
    pub(super) poll: Duration,
    pub(super) claim_ahead: ClaimAhead,
    pub(super) grace: Duration,
    pub(super) renew_timeout: Duration,
    pub(super) housekeeping: Option<HousekeepingConfig>,
    /// Only set explicitly: a worker whose handlers were forgotten must not look healthy.
    pub(super) runs_no_jobs: bool,
    pub(super) transactions: Transactions,
    pub(super) hides_errors: bool,
    pub(super) layers: Layers,
    pub(super) hooks: Hooks,
    pub(super) events: Events,
    /// What it shares with the other databases of a fleet.
    pub(super) shared: Shared,
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    pub(crate) fn new(engine: Leasehold, state: Arc<S>) -> Self {
        Self {
            engine,
            state,
            name: "worker".to_owned(),
            mark: uuid::Uuid::new_v4(),
            queues: Vec::new(),
            handled_queues: BTreeSet::new(),
            runners: HashMap::new(),
            queue_of: BTreeMap::new(),
            allows_other_queues: false,
            handled_twice: BTreeSet::new(),
            needed_slots: BTreeMap::new(),
            schedules: Vec::new(),
            retired: Vec::new(),
            services: Vec::new(),
            poll: Duration::from_millis(500),
            claim_ahead: ClaimAhead { jobs: usize::MAX, wait: Duration::from_millis(50) },
            grace: Duration::from_secs(25),
            renew_timeout: Duration::from_secs(5),
            housekeeping: Some(HousekeepingConfig::default()),
            runs_no_jobs: false,
            transactions: Transactions::default(),
            hides_errors: false,
            layers: Layers::default(),
            hooks: Hooks::default(),
            events: Events::default(),
            shared: Shared::default(),
        }
    }

    /// Sets a name for operators. Each process adds its own id; nothing depends on the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Works a queue with up to `slots` jobs at a time. A worker that names no queue works those of its
    /// handlers' jobs, with ten slots each.
    pub fn queue(mut self, queue: impl Into<String>, slots: usize) -> Self {
        self.queues.push((queue.into(), slots));
        self
    }

    /// Allows handlers of jobs whose own queue this worker does not work: their callers name another queue, by
    /// [`Draft::queue`](crate::Draft::queue). Without it such a handler is an error, because its jobs would wait for
    /// ever.
    pub fn allow_other_queues(mut self) -> Self {
        self.allows_other_queues = true;
        self
    }

    /// Adds a handler: an async function whose first argument is the job. Names without a handler
    /// are left for other workers. Two handlers of one name are an error, and so is a handler whose queue the
    /// worker does not work.
    pub fn handle<H, Args>(mut self, handler: H) -> Self
    where
        H: Handler<S, Args>,
    {
        let runner = handler::runner(handler, Arc::clone(&self.state));
        self.add_runner(H::Job::NAME.to_owned(), Some(H::Job::QUEUE), runner);
        self
    }

    /// Adds a handler that gets several jobs of one name at once: up to a number, or as [`ManyJobs`] says.
    pub fn handle_many<H, Args>(mut self, jobs: impl Into<ManyJobs>, handler: H) -> Self
    where
        H: ManyHandler<S, Args>,
    {
        let runner = handler::many_runner(jobs.into(), handler, Arc::clone(&self.state));
        self.add_runner(H::Job::NAME.to_owned(), Some(H::Job::QUEUE), runner);
        self
    }

    /// Adds a handler for a name that is known only at run time, such as one that passes jobs to
    /// another program. [`Ctx::kwargs`] returns its kwargs.
    pub fn handle_untyped<F, Fut>(mut self, job: impl Into<UntypedJob>, handler: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoJobResult> + Send + 'static,
    {
        let job = job.into();
        let runner = handler::untyped_runner(&job, handler);
        self.add_untyped(job, runner);
        self
    }

    /// Adds a handler that gets several jobs at once, of a name that is known only at run time. It returns
    /// one result for all of them, or one for each in order.
    pub fn handle_many_untyped<F, Fut>(
        mut self,
        job: impl Into<UntypedJob>,
        jobs: impl Into<ManyJobs>,
        handler: F,
    ) -> Self
    where
        F: Fn(Vec<Ctx>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoManyResult> + Send + 'static,
    {
        let job = job.into();
        let runner = handler::many_untyped_runner(&job, jobs.into(), handler);
        self.add_untyped(job, runner);
        self
    }

    /// Enqueues a job on a schedule. However many workers declare it, each slot fires once.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Removes a schedule that earlier code declared. Removing `.schedule(…)` from the code does not:
    /// another worker may still declare it. A schedule that an operator added stays.
    pub fn retire_schedule(mut self, name: impl Into<String>) -> Self {
        self.retired.push(name.into());
        self
    }

    /// Runs a service beside the jobs, with the handlers that it registers.
    pub fn service<W: WorkerService>(mut self, service: W) -> Self {
        let service = Arc::new(service);
        self.services.push(Arc::clone(&service) as Arc<dyn AnyService>);
        service.register(self)
    }

    /// Sweeps rows of your own table. However many workers do, each row is finished once.
    pub fn sweep(self, sweep: Sweep) -> Self {
        self.service(sweep.service())
    }

    /// Keeps a store equal to your own table: works the jobs of its changes, compares everything
    /// continuously, purges old tombstones. The mirror's queue gets the slots that its batches need,
    /// unless this worker names it.
    pub fn mirror(self, mirror: Mirror) -> Self {
        let service = mirror.service(&self.engine);
        self.service(service)
    }

    /// How often to poll without a wake-up. Shorter: less waiting after a lost wake-up, more queries.
    /// Default: 500 ms.
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Limits how many jobs of a queue this worker claims before it has slots for them, and how long each may
    /// wait for one before it is released. The worker claims ahead only while its handlers are fast: no more than
    /// its slots start within 5 ms, and no more than the claim size of the queue. 0 jobs: never. Default: as
    /// many as that, and 50 ms.
    pub fn claim_ahead(mut self, jobs: usize, wait: Duration) -> Self {
        self.claim_ahead = ClaimAhead { jobs, wait };
        self
    }

    /// How long handlers may keep running after a stop. Default: 25 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a renewal of leases may take before its session is dropped. Longer than a third of the shortest
    /// lease, a session that does not reply loses leases. Default: 5 s.
    pub fn renew_timeout(mut self, timeout: Duration) -> Self {
        self.renew_timeout = timeout;
        self
    }

    /// Connections and limits of the transactions that handlers get as [`super::JobTx`].
    pub fn transactions(mut self, transactions: Transactions) -> Self {
        self.transactions = transactions;
        self
    }

    /// Keeps the error texts of handlers and of this worker's sweeps out of the log and the table, for
    /// texts that may hold secrets. Passwords in URLs and connection strings are always replaced.
    ///
    /// A panic also goes to the panic hook of the process, before the worker catches it, and Rust's
    /// default hook prints its text to stderr. The hook belongs to your program: where panic texts may
    /// hold secrets, set another one with [`std::panic::set_hook`].
    pub fn hide_error_texts(mut self) -> Self {
        self.hides_errors = true;
        self
    }

    /// Leaves the reclaim of leases, schedules, the watchdogs of sweeps and pruning to other workers.
    pub fn without_housekeeping(mut self) -> Self {
        self.housekeeping = None;
        self
    }

    /// Sets how often housekeeping runs, and what it keeps.
    pub fn housekeeping(mut self, config: HousekeepingConfig) -> Self {
        self.housekeeping = Some(config);
        self
    }

    /// Runs no jobs and no sweeps: only reclaims leases, fires schedules, runs the watchdogs of its
    /// sweeps and prunes.
    pub fn only_housekeeping(mut self) -> Self {
        self.runs_no_jobs = true;
        self
    }

    /// Runs `layer` around each attempt: an async function that gets the attempt's [`Ctx`] and the rest of the
    /// attempt, calls [`Next::run`], and returns the result. For tracing spans, metrics, a tenant, or an error
    /// handler.
    ///
    /// ```no_run
    /// use leasehold::{Ctx, JobResult, Next};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Tenant { tenant: String }
    ///
    /// /// A handler reads it with `ctx.get::<Tenant>()`.
    /// async fn find_tenant(ctx: Ctx, next: Next) -> JobResult {
    ///     let tenant: Tenant = serde_json::from_slice(ctx.kwargs())?; // an error: the attempt fails
    ///     ctx.insert(tenant);
    ///     next.run(ctx).await
    /// }
    ///
    /// /// An error handler: sees panics and kwargs that do not fit, too.
    /// async fn report_errors(ctx: Ctx, next: Next) -> JobResult {
    ///     let result = next.run(ctx.clone()).await;
    ///     if let Err(error) = &result {
    ///         eprintln!("{} {}: attempt {} failed: {error}", ctx.name(), ctx.id(), ctx.attempt());
    ///     }
    ///     result
    /// }
    ///
    /// # async fn run(leasehold: leasehold::Leasehold) -> Result<(), leasehold::WorkerError> {
    /// leasehold
    ///     .worker()
    ///     .layer(report_errors) // the outermost
    ///     .layer(find_tenant)
    ///     # .handle_untyped("report.build", |_| async {})
    ///     .run_until_signal()
    ///     .await
    /// # }
    /// ```
    ///
    /// - The layer that is added first is the outermost. Layers apply to every handler of the worker, whether it
    ///   is added before or after them.
    /// - The result of the outermost layer is that of the attempt. A layer may change it; one that does not call
    ///   `next` decides alone. The fence holds all the same: under a lost lease nothing is recorded.
    /// - A panic in a layer fails the attempt.
    /// - The run limit and a stop of the worker drop a layer at an `await`, as they drop a handler.
    /// - Each job of a [`handle_many`](Self::handle_many) has its own layers. The handler runs when all of them have
    ///   called `next`, or 50 ms after the first one for those that have. It runs outside of their futures: use
    ///   [`Ctx::insert`] to pass it values, not task-local variables.
    pub fn layer<F, Fut>(mut self, layer: F) -> Self
    where
        F: Fn(Ctx, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoJobResult> + Send + 'static,
    {
        self.layers.add(layer);
        self
    }

    /// Calls `hook` after the end of each attempt of this worker is recorded: completed, retried, snoozed,
    /// cancelled, buried or released. An error or a panic of the hook is logged and changes nothing.
    ///
    /// ```no_run
    /// # async fn example(leasehold: leasehold::Leasehold) {
    /// let worker = leasehold.worker().on_finished(|job| async move {
    ///     println!("{} {:?}", job.name(), job.outcome());
    ///     Ok::<_, std::convert::Infallible>(())
    /// });
    /// # }
    /// ```
    ///
    /// It is called at most once per end, and not at all if the process dies before: what must not be
    /// missed belongs into the handler's transaction.
    pub fn on_finished<F, Fut, E>(mut self, hook: F) -> Self
    where
        F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.hooks.add_finished(hook);
        self
    }

    /// Calls `hook` after this worker has recorded that a job is dead, as
    /// [`on_finished`](Self::on_finished) does. Jobs that expire, or that a reclaim buries because their
    /// worker died, die without a worker: a schedule that lists [`dead()`](crate::Leasehold::dead) finds those too.
    pub fn on_buried<F, Fut, E>(mut self, hook: F) -> Self
    where
        F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.hooks.add_buried(hook);
        self
    }

    /// Returns the channel of this worker's events.
    pub fn events(&self) -> Events {
        self.events.clone()
    }

    /// Runs until `stop` is ready, then stops claiming, waits for the running handlers up to the
    /// grace, hands back what is left and returns.
    ///
    /// What `stop` returns does not matter: `run_until(tokio::signal::ctrl_c())` works.
    pub async fn run_until(self, stop: impl Future) -> Result<(), WorkerError> {
        self.run_with_shutdown(stop, std::future::pending::<()>()).await
    }

    /// Runs until the process gets SIGTERM or Ctrl-C, then stops as [`run_until`](Self::run_until) does. A
    /// second signal cuts the grace short. From the call on neither signal ends the process by itself, also
    /// after this has returned.
    #[cfg(unix)]
    pub async fn run_until_signal(self) -> Result<(), WorkerError> {
        let signals = StopSignals::catch()
            .map_err(|error| WorkerError::Config(format!("cannot listen for signals: {error}")))?;
        let (stop, immediate) = signals.stop_and_immediate();
        self.run_with_shutdown(stop, immediate).await
    }

    /// Runs until `stop` is ready, as [`run_until`](Self::run_until) does. When `immediate` is ready too, the grace
    /// is cut short.
    pub async fn run_with_shutdown(
        self,
        stop: impl Future,
        immediate: impl Future,
    ) -> Result<(), WorkerError> {
        let queues = self.queues();
        self.check(&queues)?;
        // On the heap: these futures take tens of kilobytes, and every caller's future and stack frame
        // would contain them.
        let running = Box::pin(Running::start(self)).await?;
        let (stop, immediate) = (async { drop(stop.await) }, async { drop(immediate.await) });
        Box::pin(running.until(stop, immediate, &queues)).await
    }

    /// Returns the handle of the database that this worker works.
    pub fn engine(&self) -> &Leasehold {
        &self.engine
    }

    /// Returns the queues to work, with their slots.
    pub(super) fn queues(&self) -> Vec<(String, usize)> {
        let mut queues = self.queues.clone();
        if queues.is_empty() {
            queues =
                self.handled_queues.iter().map(|queue| (queue.clone(), DEFAULT_SLOTS)).collect();
        }
        for (queue, needed) in &self.needed_slots {
            if self.queues.iter().any(|(named, _)| named == queue) {
                continue; // The caller named this queue and set its slots.
            }
            match queues.iter_mut().find(|(worked, _)| worked == queue) {
                Some((_, slots)) => *slots = (*slots).max(*needed),
                None => queues.push((queue.clone(), *needed)),
            }
        }
        queues
    }

    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.name, self.mark.simple())
    }

    /// `queue`: where jobs of this name go by their type, if it is known.
    fn add_runner(&mut self, name: String, queue: Option<&str>, runner: handler::Registered) {
        self.handled_queues.insert(queue.unwrap_or("default").to_owned());
        if let Some(queue) = queue {
            self.queue_of.insert(name.clone(), queue.to_owned());
        }
        self.register(name, runner);
    }

    fn add_untyped(&mut self, job: UntypedJob, runner: handler::Registered) {
        if let Some(slots) = job.slots {
            let queue = job.queue.as_deref().unwrap_or("default").to_owned();
            let needed = self.needed_slots.entry(queue).or_default();
            *needed = slots.max(*needed);
        }
        self.add_runner(job.name, job.queue.as_deref(), runner);
    }

    fn register(&mut self, name: String, runner: handler::Registered) {
        if self.runners.insert(name.clone(), runner).is_some() {
            self.handled_twice.insert(name);
        }
    }

    /// Returns a handler whose jobs go to a queue that this worker does not work: they would wait for ever.
    fn unworked(&self, queues: &[(String, usize)]) -> Option<(&String, &String)> {
        let is_worked = |queue: &String| queues.iter().any(|(worked, _)| worked == queue);
        self.queue_of.iter().find(|(_, queue)| !is_worked(queue))
    }

    pub(super) fn check(&self, queues: &[(String, usize)]) -> Result<(), WorkerError> {
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
        let services: Vec<String> = self.services.iter().map(|service| service.name()).collect();
        for (at, name) in services.iter().enumerate() {
            if services.iter().skip(at + 1).any(|other| other == name) {
                return config(format!("{name} is named twice; leave one of them out"));
            }
        }
        if let Some(name) = self.handled_twice.first() {
            return config(format!(
                "job name {name:?} has two handlers; leave one of them out, or give its jobs another name"
            ));
        }
        if let Some((name, queue)) = self.unworked(queues)
            && !self.allows_other_queues
        {
            return config(format!(
                "jobs {name:?} go to queue {queue:?}, which this worker does not work; add \
                 .queue({queue:?}, slots), or .allow_other_queues() if they are enqueued elsewhere"
            ));
        }
        for schedule in &self.schedules {
            if let Err(error) = schedule.check() {
                return config(format!("schedule {:?} can never fire: {error}", schedule.name));
            }
        }
        if let Some(name) =
            self.retired.iter().find(|name| self.schedules.iter().any(|s| s.name == **name))
        {
            return config(format!(
                "schedule {name:?} is declared and retired; leave one of them out"
            ));
        }
        if self.runners.is_empty() && self.services.is_empty() {
            return config("no handler; add one with .handle(function)".into());
        }
        for (queue, slots) in queues {
            // Plain INSERTs may name queues that `enqueue` would reject; those need workers too.
            if queue.is_empty() || queue.len() > 64 {
                return config(format!(
                    "queue name {queue:?} has {} bytes; it must have 1 to 64",
                    queue.len()
                ));
            }
            if *slots == 0 || *slots > 100_000 {
                return config(format!("queue {queue:?} has {slots} slots; use 1 to 100000"));
            }
            if queues.iter().filter(|other| other.0 == *queue).count() > 1 {
                return config(format!(
                    "queue {queue:?} is named twice; name it once, with all its slots"
                ));
            }
        }
        if let Some(problem) = self.transactions.problem() {
            return config(problem);
        }
        let (ms, s) = (Duration::from_millis(1), Duration::from_secs(60));
        for (name, time) in [("poll_every", self.poll), ("renew_timeout", self.renew_timeout)] {
            if !(ms..=s).contains(&time) {
                return config(format!("{name} is {time:?}; it must be between 1 ms and 60 s"));
            }
        }
        Ok(())
    }
}
