//! A worker over the databases of a fleet.
//!
//! # Invariants
//! - Each database has a worker of its own: its sessions, its claim loops, its keeper with a thread, its lease
//!   table, its finishers, its housekeeping. They share the slots of each queue (see [`super::slots`]) and the
//!   lock of jobs that run alone, and nothing else.
//! - A database that is down, hangs, accepts no writes or lacks its schema delays no other. Its failures are logged
//!   with its name and counted in its metrics, and its worker starts again by itself.
//! - A stop stops all of them at the same time.
//!
//! # What can go wrong
//! - Two names lead to one database. If the worker sees that at its start it stops with an error; later, the
//!   second name stays out, with a warning, and the others continue.
//! - The process has too little memory, or too few threads or connections, for all databases: name fewer of them
//!   per worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::builder::WorkerBuilder;
use super::context::Ctx;
use super::handler::{Handler, IntoManyResult, ManyHandler};
use super::hooks::FinishedJob;
use super::layer::Next;
use super::outcome::IntoJobResult;
use super::running::{Running, Shared};
#[cfg(unix)]
use super::signals::StopSignals;
use super::slots::pool::SlotPool;
use super::untyped::{ManyJobs, UntypedJob};
use crate::backoff::RECONNECT;
use crate::engine::{Identity, Leasehold};
use crate::error::{ConnectError, WorkerError};
use crate::error_text::one_line;
use crate::fleet::{Fleet, same_database};

/// While a database cannot be worked, the next warning with the same error comes this much later.
const WARN_EVERY: Duration = Duration::from_secs(600);

type Step<S> = Box<dyn Fn(WorkerBuilder<S>) -> WorkerBuilder<S> + Send + Sync>;

/// A worker over the databases of a [`Fleet`], under construction.
///
/// Settings and handlers are given once and apply to every database; [`each`](Self::each) has every setting of
/// [`WorkerBuilder`]. The slots of a queue are shared by all databases: each one that has work gets an equal share,
/// and what it does not use goes to the others.
///
/// In a handler, [`Ctx::database`] is the name of the job's database. [`Ctx::engine`], [`super::JobTx`] and
/// [`Ctx::complete_in`] belong to that database.
#[must_use = "a worker does nothing until it is run"]
pub struct FleetWorker<S> {
    /// Each with the state of its handlers.
    databases: Vec<(Leasehold, Arc<S>)>,
    steps: Vec<Step<S>>,
}

impl<S: Send + Sync + 'static> FleetWorker<S> {
    pub(crate) fn new(fleet: &Fleet, mut state: impl FnMut(&Leasehold) -> Arc<S>) -> Self {
        let databases = fleet.handles().map(|engine| (engine.clone(), state(engine))).collect();
        Self { databases, steps: Vec::new() }
    }

    /// Applies settings to the worker of each database. It is called again for a database whose worker starts again.
    ///
    /// ```no_run
    /// # use leasehold::{Fleet, Job, Schedule};
    /// # #[derive(Job, serde::Serialize, serde::Deserialize)]
    /// # #[job(name = "report.build")]
    /// # struct BuildReport;
    /// # fn add(fleet: Fleet) -> Result<(), Box<dyn std::error::Error>> {
    /// let nightly = Schedule::new("report.nightly", "30 2 * * *", "Europe/Berlin", &BuildReport)?;
    /// let worker = fleet.worker().each(move |worker| match worker.engine().name() {
    ///     Some("eu") => worker.schedule(nightly.clone()), // fires in this database
    ///     _ => worker.without_housekeeping(),
    /// });
    /// # drop(worker);
    /// # Ok(())
    /// # }
    /// ```
    pub fn each<F>(mut self, settings: F) -> Self
    where
        F: Fn(WorkerBuilder<S>) -> WorkerBuilder<S> + Send + Sync + 'static,
    {
        self.steps.push(Box::new(settings));
        self
    }

    /// Sets a name for operators; see [`WorkerBuilder::name`].
    pub fn name(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.each(move |worker| worker.name(name.clone()))
    }

    /// Works a queue of every database with up to `slots` jobs at a time, from all databases together.
    pub fn queue(self, queue: impl Into<String>, slots: usize) -> Self {
        let queue = queue.into();
        self.each(move |worker| worker.queue(queue.clone(), slots))
    }

    /// Adds a handler; see [`WorkerBuilder::handle`].
    pub fn handle<H, Args>(self, handler: H) -> Self
    where
        H: Handler<S, Args>,
    {
        self.each(move |worker| worker.handle(handler.clone()))
    }

    /// Adds a handler that gets several jobs at once, all from one database; see [`WorkerBuilder::handle_many`].
    pub fn handle_many<H, Args>(self, jobs: impl Into<ManyJobs>, handler: H) -> Self
    where
        H: ManyHandler<S, Args>,
    {
        let jobs = jobs.into();
        self.each(move |worker| worker.handle_many(jobs.clone(), handler.clone()))
    }

    /// Adds a handler for a name that is known only at run time; see [`WorkerBuilder::handle_untyped`].
    pub fn handle_untyped<F, Fut>(self, job: impl Into<UntypedJob>, handler: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoJobResult> + Send + 'static,
    {
        let job = job.into();
        self.each(move |worker| worker.handle_untyped(job.clone(), handler.clone()))
    }

    /// Adds a handler that gets several jobs at once, of a name that is known only at run time; see
    /// [`WorkerBuilder::handle_many_untyped`].
    pub fn handle_many_untyped<F, Fut>(
        self,
        job: impl Into<UntypedJob>,
        jobs: impl Into<ManyJobs>,
        handler: F,
    ) -> Self
    where
        F: Fn(Vec<Ctx>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output: IntoManyResult> + Send + 'static,
    {
        let (job, jobs) = (job.into(), jobs.into());
        self.each(move |worker| {
            worker.handle_many_untyped(job.clone(), jobs.clone(), handler.clone())
        })
    }

    /// Runs `layer` around each attempt; see [`WorkerBuilder::layer`].
    pub fn layer<F, Fut>(self, layer: F) -> Self
    where
        F: Fn(Ctx, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoJobResult> + Send + 'static,
    {
        let layer = Arc::new(layer);
        self.each(move |worker| {
            let layer = Arc::clone(&layer);
            worker.layer(move |ctx, next| layer(ctx, next))
        })
    }

    /// Calls `hook` after the end of each attempt is recorded; see [`WorkerBuilder::on_finished`].
    pub fn on_finished<F, Fut, E>(self, hook: F) -> Self
    where
        F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + 'static,
    {
        let hook = Arc::new(hook);
        self.each(move |worker| {
            let hook = Arc::clone(&hook);
            worker.on_finished(move |job| hook(job))
        })
    }

    /// How long handlers may keep running after a stop. Default: 25 s.
    pub fn grace(self, grace: Duration) -> Self {
        self.each(move |worker| worker.grace(grace))
    }

    /// How often to poll each database without a wake-up; see [`WorkerBuilder::poll_every`].
    pub fn poll_every(self, interval: Duration) -> Self {
        self.each(move |worker| worker.poll_every(interval))
    }

    /// Runs until `stop` is ready, then stops the workers of all databases as
    /// [`WorkerBuilder::run_until`] does, at the same time.
    ///
    /// An error means that the settings cannot work, or that two names lead to one database. No failure of a
    /// database ends the run.
    pub async fn run_until(self, stop: impl Future) -> Result<(), WorkerError> {
        self.run_with_shutdown(stop, std::future::pending::<()>()).await
    }

    /// Runs until the process gets SIGTERM or Ctrl-C; see [`WorkerBuilder::run_until_signal`].
    #[cfg(unix)]
    pub async fn run_until_signal(self) -> Result<(), WorkerError> {
        let signals = StopSignals::catch()
            .map_err(|error| WorkerError::Config(format!("cannot listen for signals: {error}")))?;
        let (stop, immediate) = signals.stop_and_immediate();
        self.run_with_shutdown(stop, immediate).await
    }

    /// Runs until `stop` is ready. When `immediate` is ready too, the grace is cut short.
    pub async fn run_with_shutdown(
        self,
        stop: impl Future,
        immediate: impl Future,
    ) -> Result<(), WorkerError> {
        let (stopping, ending) = (CancellationToken::new(), CancellationToken::new());
        let run = FleetRun::new(self, stopping.clone(), ending.clone())?;
        let mut databases = FuturesUnordered::new();
        for (engine, state) in &run.databases {
            let span = tracing::info_span!("fleet", database = engine.name());
            databases.push(Box::pin(run.work(engine, state).instrument(span)));
        }
        let mut stop = std::pin::pin!(async { drop(stop.await) });
        let mut immediate = std::pin::pin!(async { drop(immediate.await) });
        let mut failed = None;
        loop {
            tokio::select! {
                ended = databases.next() => match ended {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        failed.get_or_insert(error);
                        stopping.cancel();
                    }
                },
                () = &mut stop, if !stopping.is_cancelled() => stopping.cancel(),
                () = &mut immediate, if !ending.is_cancelled() => ending.cancel(),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A running worker over a fleet.
struct FleetRun<S> {
    databases: Vec<(Leasehold, Arc<S>)>,
    steps: Vec<Step<S>>,
    shared: Shared,
    /// Which databases are worked, and under which name.
    worked: Mutex<HashMap<Identity, String>>,
    stop: CancellationToken,
    immediate: CancellationToken,
}

impl<S: Send + Sync + 'static> FleetRun<S> {
    /// Checks the settings for every database. Opens nothing.
    fn new(
        worker: FleetWorker<S>,
        stop: CancellationToken,
        immediate: CancellationToken,
    ) -> Result<Self, WorkerError> {
        let FleetWorker { databases, steps } = worker;
        let (shared, worked) = (Shared::default(), Mutex::default());
        let mut run = Self { databases, steps, shared, worked, stop, immediate };
        let mut most: HashMap<String, usize> = HashMap::new();
        for (engine, state) in &run.databases {
            let builder = run.builder(engine, state);
            let queues = builder.queues();
            builder.check(&queues).map_err(|error| match error {
                WorkerError::Config(text) => {
                    let name = engine.name().unwrap_or_default();
                    WorkerError::Config(format!("database {name:?}: {text}"))
                }
                error => error,
            })?;
            for (queue, slots) in queues {
                let known = most.entry(queue).or_default();
                *known = slots.max(*known);
            }
        }
        let databases = run.databases.len();
        let pools = most.into_iter().map(|(queue, slots)| (queue, SlotPool::new(slots, databases)));
        run.shared.slots = Arc::new(pools.collect());
        Ok(run)
    }

    fn builder(&self, engine: &Leasehold, state: &Arc<S>) -> WorkerBuilder<S> {
        let worker = WorkerBuilder::new(engine.clone(), Arc::clone(state));
        let mut worker = self.steps.iter().fold(worker, |worker, step| step(worker));
        worker.shared = self.shared.clone();
        worker
    }

    /// Works one database until the stop. An error is for the whole fleet.
    async fn work(&self, engine: &Leasehold, state: &Arc<S>) -> Result<(), WorkerError> {
        let mut waits = RECONNECT.waits();
        let mut failures = Failures::default();
        let mut is_start = true;
        loop {
            let error = match self.work_once(engine, state, is_start, &mut failures).await {
                Ok(()) => return Ok(()),
                Err(Ended::Fleet(error)) => return Err(error),
                Err(Ended::Database(error)) => error,
            };
            is_start = false;
            count(engine, &error);
            failures.note(&error);
            if self.stop.run_until_cancelled(tokio::time::sleep(waits.next_wait())).await.is_none()
            {
                return Ok(());
            }
        }
    }

    async fn work_once(
        &self,
        engine: &Leasehold,
        state: &Arc<S>,
        is_start: bool,
        failures: &mut Failures,
    ) -> Result<(), Ended> {
        let Some(identity) = self.stop.run_until_cancelled(engine.identity()).await else {
            return Ok(());
        };
        let identity = identity.map_err(|error| Ended::Database(error.into()))?;
        self.check_alone(engine, identity).map_err(|error| match is_start {
            true => Ended::Fleet(error),
            false => Ended::Database(error),
        })?;
        let worker = self.builder(engine, state);
        let queues = worker.queues();
        // On the heap, as in a worker of one database.
        let starting = Box::pin(Running::start(worker));
        let Some(running) = self.stop.run_until_cancelled(starting).await else { return Ok(()) };
        let running = running.map_err(Ended::Database)?;
        failures.end();
        let (stop, immediate) = (self.stop.cancelled(), self.immediate.cancelled());
        Box::pin(running.until(stop, immediate, &queues)).await.map_err(Ended::Database)
    }

    /// Returns an error if another name of the fleet leads to this database.
    fn check_alone(&self, engine: &Leasehold, identity: &Identity) -> Result<(), WorkerError> {
        let name = engine.name().unwrap_or_default();
        let mut worked = self.worked.lock();
        let first = worked.entry(identity.clone()).or_insert_with(|| name.to_owned());
        match first == name {
            true => Ok(()),
            false => Err(WorkerError::Config(same_database(first, name))),
        }
    }
}

/// Why the worker of one database ended before the stop.
enum Ended {
    /// The whole fleet must stop.
    Fleet(WorkerError),
    /// Only this database has a problem; its worker starts again.
    Database(WorkerError),
}

fn count(engine: &Leasehold, error: &WorkerError) {
    let class = match error {
        WorkerError::Connect(ConnectError::TimedOut(_)) => "timeout",
        WorkerError::Connect(_) => "connect",
        _ => "refused",
    };
    engine.process().failed_as("start", class);
}

/// The failures of one database since its worker ran.
#[derive(Default)]
struct Failures {
    warned: Option<(String, Instant)>,
}

impl Failures {
    /// Logs a failure: at once if it is a new one, else one per `WARN_EVERY`.
    fn note(&mut self, error: &WorkerError) {
        let error = one_line(&error.to_string());
        let is_known =
            |(known, at): &(String, Instant)| *known == error && at.elapsed() < WARN_EVERY;
        if self.warned.as_ref().is_some_and(is_known) {
            tracing::debug!(error, "this database cannot be worked; trying again");
            return;
        }
        tracing::warn!(
            error,
            "this database cannot be worked; trying again, beside the others of the fleet"
        );
        self.warned = Some((error, Instant::now()));
    }

    /// Records that the worker runs.
    fn end(&mut self) {
        if self.warned.take().is_some() {
            tracing::info!("this database is worked again");
        }
    }
}
