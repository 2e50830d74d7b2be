//! The worker: claim → run → finish, and whatever is left behind comes back by itself.
//!
//! Read in this order: [`fetch`] claims, [`run`] runs, [`finisher`] records, [`keeper`] renews.
//!
//! # What is true
//! - A worker needs the database and nothing else: no leader, no session lock, no NOTIFY.
//! - It uses four connections of its own (claim, finish, renew, tidy), plus one to listen on when
//!   the database is reached directly.
//!
//! # What can go wrong
//! - The process dies: its leases run out, other workers get the jobs.
//! - It is paused: the same; when it comes back, its results match no lease and change nothing.

mod book;
mod context;
mod fetch;
mod finisher;
mod handler;
mod idle;
mod keeper;
mod outcome;
mod registry;
mod run;
mod transaction;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, RwLock, Semaphore, mpsc, watch};
use tokio_util::task::TaskTracker;

pub use context::{Ctx, Fence, StopReason};
pub use handler::{BatchHandler, BatchItem, FromAttempt, FromRef, Handler, IntoBatchResult, State};
pub use idle::Tally;
pub use outcome::{IntoJobResult, JobError, JobResult, Outcome};
pub use transaction::JobTx;

use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::{Event, Events};
use crate::housekeeping::{Housekeeper, HousekeepingConfig};
use crate::job::Job;
use crate::link::Link;
use crate::queue::finish::Verdict;
use crate::schedule::Schedule;

/// How long a claim or a finish may take before the session is thrown away.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How many jobs run at a time in a queue that nobody named.
const DEFAULT_SLOTS: usize = 10;

/// A worker being put together.
#[must_use = "a worker does nothing until it is run"]
pub struct WorkerBuilder<S> {
    engine: Leasehold,
    state: Arc<S>,
    name: String,
    /// Fresh in every worker: two of one name never share leases.
    mark: uuid::Uuid,
    queues: Vec<(String, usize)>,
    /// The queues that the handled kinds go to.
    kinds_queues: BTreeSet<String>,
    runners: HashMap<String, handler::Registered>,
    schedules: Vec<Schedule>,
    poll: Duration,
    grace: Duration,
    renew_limit: Duration,
    housekeeping: Option<HousekeepingConfig>,
    events: Events,
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
            poll: Duration::from_millis(500),
            grace: Duration::from_secs(25),
            renew_limit: Duration::from_secs(5),
            housekeeping: Some(HousekeepingConfig::default()),
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

    /// Leaves expiring leases, schedules and pruning to other workers.
    pub fn without_housekeeping(mut self) -> Self {
        self.housekeeping = None;
        self
    }

    pub fn housekeeping(mut self, config: HousekeepingConfig) -> Self {
        self.housekeeping = Some(config);
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
    fn queues(&self) -> Vec<(String, usize)> {
        if !self.queues.is_empty() {
            return self.queues.clone();
        }
        self.kinds_queues.iter().map(|queue| (queue.clone(), DEFAULT_SLOTS)).collect()
    }

    fn id(&self) -> String {
        format!("{}/{}", self.name, self.mark.simple())
    }

    fn check(&self, queues: &[(String, usize)]) -> Result<(), WorkerError> {
        let config = |text: String| Err(WorkerError::Config(text));
        if self.runners.is_empty() {
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

/// A worker at work.
struct Running {
    crew: Arc<run::Crew>,
    stop: watch::Sender<bool>,
    keeper_stop: watch::Sender<bool>,
    keeper_ended: tokio::sync::oneshot::Receiver<String>,
    loops: TaskTracker,
    finisher: tokio::task::JoinHandle<()>,
    grace: Duration,
}

impl Running {
    async fn start<S: Send + Sync + 'static>(
        builder: WorkerBuilder<S>,
    ) -> Result<Self, WorkerError> {
        let (worker, queues): (Arc<str>, _) = (builder.id().into(), builder.queues());
        let WorkerBuilder {
            engine,
            name,
            runners,
            schedules,
            poll,
            grace,
            renew_limit,
            housekeeping,
            events,
            ..
        } = builder;
        let database = engine.database().clone();
        let names: Arc<[String]> = runners.keys().cloned().collect();
        let (stop, stopped) = watch::channel(false);
        let (keeper_stop, keeper_stopped) = watch::channel(false);
        let book = Arc::new(book::Book::default());
        let vitals = Arc::new(registry::Vitals::default());
        let (decisions, decided) = mpsc::channel(finisher::BACKLOG);

        let registration = registry::Registration {
            id: worker.to_string(),
            name,
            queues: queues.iter().map(|(queue, _)| queue.clone()).collect(),
            names: names.to_vec(),
            slots: i32::try_from(queues.iter().map(|(_, slots)| slots).sum::<usize>())
                .unwrap_or(i32::MAX),
            vitals: Arc::clone(&vitals),
            next: std::cell::Cell::new(None),
            told_draining: std::cell::Cell::new(false),
        };
        let keeper = keeper::Keeper {
            link: Link::new(database.clone(), renew_limit),
            book: Arc::clone(&book),
            events: events.clone(),
            registration,
        };
        let keeper_ended = keeper::start(move || keeper, keeper_stopped)
            .map_err(|error| WorkerError::KeeperStopped(error.to_string()))?;

        let crew = Arc::new(run::Crew {
            engine: engine.clone(),
            runners,
            book: Arc::clone(&book),
            decisions,
            events: events.clone(),
            vitals,
            tasks: TaskTracker::new(),
            stop: stopped.clone(),
            company: Arc::new(RwLock::new(())),
        });
        let finisher = finisher::Finisher {
            link: Arc::new(Link::new(database.clone(), CALL_LIMIT)),
            book,
            events: events.clone(),
        };
        let finisher = tokio::spawn(finisher.run(decided));

        let loops = TaskTracker::new();
        let link = Arc::new(Link::new(database.clone(), CALL_LIMIT));
        let mut wakes: HashMap<String, Arc<Notify>> = HashMap::new();
        for (queue, slots) in &queues {
            let wake = Arc::new(Notify::new());
            wakes.insert(queue.clone(), Arc::clone(&wake));
            let fetch = fetch::Fetch {
                queue: queue.as_str().into(),
                worker: Arc::clone(&worker),
                names: Arc::clone(&names),
                slots: Arc::new(Semaphore::new(*slots)),
                total: *slots,
                batch: queue_batch(&link, queue).await,
                poll,
                link: Arc::clone(&link),
                crew: Arc::clone(&crew),
                wake,
            };
            loops.spawn(fetch.run(stopped.clone()));
        }
        let wakes = Arc::new(wakes);
        if !database.is_pooled() {
            loops.spawn(listen(database.clone(), Arc::clone(&wakes), stopped.clone()));
        }
        if let Some(config) = housekeeping {
            let link = Link::new(database, CALL_LIMIT);
            let keeper = Housekeeper::new(link, config, schedules, events, wakes);
            loops.spawn(keeper.run(stopped));
        }
        loops.close();
        Ok(Self { crew, stop, keeper_stop, keeper_ended, loops, finisher, grace })
    }

    async fn until(
        mut self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
        queues: &[(String, usize)],
    ) -> Result<(), WorkerError> {
        tracing::info!(queues = ?queues, "worker ready");
        let mut broken = None;
        tokio::select! {
            () = stop => {}
            ended = &mut self.keeper_ended => {
                // Without renewal every lease is as good as lost: stop before others start the jobs.
                let why = ended.unwrap_or_else(|_| "it panicked".to_owned());
                for generation in self.crew.book.generations() {
                    self.crew.book.lose(generation);
                }
                broken = Some(WorkerError::KeeperStopped(why));
            }
        }
        self.drain(hurry, broken.is_some()).await;
        broken.map_or(Ok(()), Err)
    }

    async fn drain(mut self, hurry: impl Future<Output = ()>, at_once: bool) {
        self.crew.vitals.draining.store(true, std::sync::atomic::Ordering::Relaxed);
        self.crew.events.send(|| Event::Draining);
        let _ = self.stop.send(true);
        self.crew.tasks.close();
        self.loops.wait().await;
        if !at_once {
            tokio::select! {
                () = self.crew.tasks.wait() => {}
                () = tokio::time::sleep(self.grace) => {}
                () = hurry => {}
            }
        }
        // Handlers that are still at it are told to stop, then left.
        let left = self.crew.book.attempts();
        for attempt in &left {
            attempt.stop(StopReason::Shutdown);
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.crew.tasks.wait()).await;
        for attempt in left {
            if attempt.decide() {
                if let Some(task) = attempt.task.get() {
                    task.abort();
                }
                let decision = finisher::Decision { attempt, verdict: Verdict::Release };
                let _ = self.crew.decisions.send(decision).await;
            }
        }
        let finisher = self.finisher;
        // The finisher ends when the last sender is gone. Tasks that never yield keep theirs: wait
        // for the book instead, and no longer than a database call may take.
        let book = Arc::clone(&self.crew.book);
        drop(self.crew);
        let recorded = async {
            while !book.is_empty() && !finisher.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(CALL_LIMIT, recorded).await.is_err() {
            tracing::warn!(
                "some results could not be recorded; their leases will bring the jobs back"
            );
        }
        finisher.abort();
        // A keeper that is gone has been heard already, and a second time is one too many.
        if !at_once {
            let _ = self.keeper_stop.send(true);
            let _ = tokio::time::timeout(Duration::from_secs(6), &mut self.keeper_ended).await;
        }
    }
}

async fn queue_batch(link: &Link, queue: &str) -> usize {
    let sql = "select batch from leasehold.queue_settings($1)";
    let rows = link.query(sql, &[(&queue, tokio_postgres::types::Type::TEXT)]).await;
    let batch: Option<i32> = rows.ok().and_then(|rows| rows.first().map(|row| row.get(0)));
    batch.and_then(|batch| usize::try_from(batch).ok()).unwrap_or(1000)
}

/// Passes wake-ups on. When the connection breaks, polling goes on and this tries again.
async fn listen(
    database: crate::database::Database,
    wakes: Arc<HashMap<String, Arc<Notify>>>,
    mut stop: watch::Receiver<bool>,
) {
    let mut patience = crate::link::Patience::default();
    loop {
        let told = Arc::clone(&wakes);
        let listening = database.listen(move |queue| {
            if let Some(wake) = told.get(queue) {
                wake.notify_one();
            }
        });
        match listening.await {
            Ok((_session, ended)) => {
                patience.reset();
                // What was enqueued before we listened would wait for a poll.
                wakes.values().for_each(|wake| wake.notify_one());
                tokio::select! {
                    _ = ended => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
            Err(error) => tracing::debug!(%error, "cannot listen for wake-ups; polling"),
        }
        tokio::select! {
            () = tokio::time::sleep(patience.next_wait()) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
