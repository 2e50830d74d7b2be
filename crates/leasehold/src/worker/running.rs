//! A worker at work: starting its loops, and stopping so that nothing is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, RwLock, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::builder::WorkerBuilder;
use super::context::StopReason;
use super::outcome::Outcome;
use super::{book, fetch, finisher, handler, keeper, registry, run, wakes};
use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::Event;
use crate::housekeeping::Housekeeper;
use crate::link::Link;
use crate::measure::canary;
use crate::mirror::{Checker, MirrorError};
use crate::queue::finish::Verdict;
use crate::sweep::{Prepared, Sweep, SweepError, Sweeper, Watchdog};

/// How long a claim or a finish may take before the session is thrown away.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

/// A worker at work.
pub(super) struct Running {
    crew: Arc<run::Crew>,
    stop: watch::Sender<bool>,
    keeper_stop: watch::Sender<bool>,
    keeper_ended: tokio::sync::oneshot::Receiver<String>,
    loops: TaskTracker,
    sweeping: Vec<AbortHandle>,
    finisher: tokio::task::JoinHandle<()>,
    grace: Duration,
}

impl Running {
    pub(super) async fn start<S: Send + Sync + 'static>(
        builder: WorkerBuilder<S>,
    ) -> Result<Self, WorkerError> {
        let (worker, queues): (Arc<str>, _) = (builder.id().into(), builder.queues());
        let WorkerBuilder {
            engine,
            name,
            mut runners,
            schedules,
            sweeps,
            mirrors,
            runs_no_jobs,
            poll,
            grace,
            renew_limit,
            housekeeping,
            events,
            ..
        } = builder;
        let database = engine.database().clone();
        if !runs_no_jobs && !queues.is_empty() {
            // Whoever works a queue can say that it is worked.
            runners
                .entry(canary::NAME.to_owned())
                .or_insert_with(|| handler::untyped_runner(|_| async { Ok(Outcome::Done) }));
        }
        let names: Arc<[String]> = runners.keys().cloned().collect();
        let (stop, stopped) = watch::channel(false);
        let sweeps = prepare(&engine, sweeps).await?;
        for desk in &mirrors {
            match desk.prepared().await {
                Ok(_) => {}
                Err(error @ (MirrorError::Declaration(_) | MirrorError::Table(_))) => {
                    return Err(WorkerError::Config(error.to_string()));
                }
                Err(error) => {
                    let mirror = desk.name();
                    tracing::warn!(mirror, %error, "a mirror could not be checked; trying again");
                }
            }
        }
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
            process: Arc::clone(engine.process()),
        };
        let finisher = tokio::spawn(finisher.run(decided));

        let loops = TaskTracker::new();
        let link = Arc::new(Link::new(database.clone(), CALL_LIMIT));
        let mut wakes: HashMap<String, Arc<Notify>> = HashMap::new();
        for (queue, slots) in &queues {
            let wake = Arc::new(Notify::new());
            wakes.insert(queue.clone(), Arc::clone(&wake));
            let (queue_name, free): (Arc<str>, _) =
                (queue.as_str().into(), Arc::new(Semaphore::new(*slots)));
            engine.process().works(&queue_name, *slots, &free);
            let fetch = fetch::Fetch {
                queue: queue_name,
                worker: Arc::clone(&worker),
                names: Arc::clone(&names),
                slots: free,
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
            let process = Arc::clone(engine.process());
            loops.spawn(wakes::listen(
                database.clone(),
                Arc::clone(&wakes),
                process,
                stopped.clone(),
            ));
        }
        let (tidying, mut sweeping) = (&loops, Vec::new());
        for (sweep, prepared) in sweeps {
            let loops = if runs_no_jobs { 0 } else { sweep.loop_count() };
            for _ in 0..loops {
                let sweeper = Sweeper {
                    engine: engine.clone(),
                    sweep: sweep.clone(),
                    prepared: prepared.clone(),
                    events: events.clone(),
                    poll,
                };
                // With the handlers: a batch in hand has the grace to end in.
                let task = crew.tasks.spawn(sweeper.run(stopped.clone()));
                sweeping.push(task.abort_handle());
            }
            if housekeeping.is_some() {
                let (engine, events) = (engine.clone(), events.clone());
                let watchdog = Watchdog { engine, sweep, prepared, events };
                tidying.spawn(watchdog.run(stopped.clone()));
            }
        }
        if housekeeping.is_some() {
            for desk in mirrors {
                let checker = Checker { desk, events: events.clone() };
                loops.spawn(checker.run(stopped.clone()));
            }
        }
        if let Some(config) = housekeeping {
            let keeper = Housekeeper::new(engine, config, schedules, events, wakes);
            loops.spawn(keeper.run(stopped));
        }
        loops.close();
        Ok(Self { crew, stop, keeper_stop, keeper_ended, loops, sweeping, finisher, grace })
    }

    pub(super) async fn until(
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
        let _ = self.stop.send(true);
        self.crew.events.send(|| Event::Draining);
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
        // Rows that a sweep still has in hand are the watchdog's.
        self.sweeping.iter().for_each(AbortHandle::abort);
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

/// Checks every sweep against its table. A table that does not fit stops the start; a database that
/// is away does not: the loops try again.
async fn prepare(
    engine: &Leasehold,
    sweeps: Vec<Sweep>,
) -> Result<Vec<(Sweep, Option<Prepared>)>, WorkerError> {
    let mut ready = Vec::new();
    for sweep in sweeps {
        let prepared = match Prepared::new(&sweep, engine).await {
            Ok(prepared) => Some(prepared),
            Err(error @ (SweepError::Declaration(_) | SweepError::Table(_))) => {
                return Err(WorkerError::Config(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(sweep = sweep.name(), %error, "a sweep could not be checked; trying again");
                None
            }
        };
        ready.push((sweep, prepared));
    }
    Ok(ready)
}

async fn queue_batch(link: &Link, queue: &str) -> usize {
    let sql = "select batch from leasehold.queue_settings($1)";
    let rows = link.query(sql, &[(&queue, tokio_postgres::types::Type::TEXT)]).await;
    let batch: Option<i32> = rows.ok().and_then(|rows| rows.first().map(|row| row.get(0)));
    batch.and_then(|batch| usize::try_from(batch).ok()).unwrap_or(1000)
}
