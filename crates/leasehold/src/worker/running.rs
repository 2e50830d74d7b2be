//! A running worker: starts its loops, and stops them so that nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{RwLock, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::builder::WorkerBuilder;
use super::context::StopReason;
use super::decisions::Decisions;
use super::hooks::RunningHooks;
use super::outcome::Outcome;
use super::transaction::TransactionPool;
use super::{fetch, finisher, handler, keeper, lease_table, registry, run, wakes};
use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::{Event, Events};
use crate::housekeeping::Housekeeper;
use crate::link::{Link, Links, Stream};
use crate::measure::canary;
use crate::mirror::{Checker, MirrorError};
use crate::queue::finish::Transition;
use crate::schedule::Declared;
use crate::sweep::{Prepared, Sweep, SweepError, Sweeper, Watchdog};

/// The most sessions that the queues of one worker claim on. Each queue has one claim in flight at a
/// time, so up to this number of queues none waits for another; beyond it, this many may be slow before
/// one waits.
const CLAIM_SESSIONS: usize = 16;

/// A running worker.
pub(super) struct Running {
    executor: Arc<run::Executor>,
    stop: watch::Sender<bool>,
    keeper_stop: watch::Sender<bool>,
    keeper_ended: tokio::sync::oneshot::Receiver<String>,
    loops: TaskTracker,
    sweeping: Vec<AbortHandle>,
    finisher: tokio::task::JoinHandle<()>,
    hooks: Arc<RunningHooks>,
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
            retired,
            sweeps,
            mirrors,
            runs_no_jobs,
            poll,
            grace,
            renew_limit,
            housekeeping,
            events,
            transactions,
            hides_errors,
            hooks,
            ..
        } = builder;
        let hooks = hooks.start(tokio::runtime::Handle::current());
        let database = engine.database().clone();
        if !runs_no_jobs && !queues.is_empty() {
            // Every worker that runs jobs handles canaries, so a completed canary proves that its queue
            // is being worked.
            runners
                .entry(canary::NAME.to_owned())
                .or_insert_with(|| handler::untyped_runner(|_| async { Outcome::Done }));
        }
        let names: Arc<[String]> = runners.keys().cloned().collect();
        let (stop, stopped) = watch::channel(false);
        let sweeps = prepare(&engine, sweeps).await?;
        for runtime in &mirrors {
            match runtime.prepared().await {
                Ok(_) => {}
                Err(error @ (MirrorError::Declaration(_) | MirrorError::Table(_))) => {
                    return Err(WorkerError::Config(error.to_string()));
                }
                Err(error) => {
                    let mirror = runtime.name();
                    tracing::warn!(mirror, %error, "a mirror could not be checked; trying again");
                }
            }
        }
        let (keeper_stop, keeper_stopped) = watch::channel(false);
        let lease_table = Arc::new(lease_table::LeaseTable::default());
        let stats = Arc::new(registry::WorkerStats::default());
        let slots = queues.iter().map(|(_, slots)| slots).sum::<usize>();
        let transactions = TransactionPool::new(&database, transactions, slots)?;
        let bells: wakes::Bells =
            queues.iter().map(|(queue, _)| (queue.clone(), Arc::default())).collect();
        let bells = Arc::new(bells);
        let (decisions, finishing) =
            finishers(&engine, &queues, &lease_table, &events, &bells, &hooks);

        let schedules = Declared::new(&name, schedules, retired);
        let registration = registry::Registration {
            id: worker.to_string(),
            name,
            queues: queues.iter().map(|(queue, _)| queue.clone()).collect(),
            names: names.to_vec(),
            slots: i32::try_from(slots).unwrap_or(i32::MAX),
            stats: Arc::clone(&stats),
            next: std::cell::Cell::new(None),
            told_draining: std::cell::Cell::new(false),
        };
        let keeper = keeper::Keeper {
            link: Link::new(database.clone(), renew_limit),
            lease_table: Arc::clone(&lease_table),
            events: events.clone(),
            registration,
            hooks: Arc::clone(&hooks),
        };
        let keeper_ended = keeper::start(move || keeper, keeper_stopped)
            .map_err(|error| WorkerError::KeeperStopped(error.to_string()))?;

        let executor = Arc::new(run::Executor {
            engine: engine.clone(),
            runners,
            lease_table: Arc::clone(&lease_table),
            decisions,
            events: events.clone(),
            stats,
            tasks: TaskTracker::new(),
            stop: stopped.clone(),
            solo_lock: Arc::new(RwLock::new(())),
            transactions: Arc::new(transactions),
            hides_errors,
        });
        let finisher = tokio::spawn(finishing);

        let loops = TaskTracker::new();
        let links = Arc::new(Links::new(
            &database,
            queues.len().min(CLAIM_SESSIONS),
            engine.call_timeout(),
        ));
        let wakes = Arc::new(wakes::Wakes::new(Arc::clone(&bells)));
        for (queue, slots) in &queues {
            let (queue_name, free): (Arc<str>, _) =
                (queue.as_str().into(), Arc::new(Semaphore::new(*slots)));
            engine.process().works(&queue_name, *slots, &free);
            let fetch = fetch::Fetch {
                queue: queue_name,
                worker: Arc::clone(&worker),
                names: Arc::clone(&names),
                slots: free,
                total: *slots,
                batch: queue_batch(&links, queue).await,
                poll,
                links: Arc::clone(&links),
                executor: Arc::clone(&executor),
                wakes: Arc::clone(&wakes),
                bell: bells.get(queue).cloned().unwrap_or_default(),
            };
            loops.spawn(fetch.run(stopped.clone()));
        }
        if !database.is_pooled() {
            let process = Arc::clone(engine.process());
            loops.spawn(wakes.listen(database.clone(), process, stopped.clone()));
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
                    hides_errors,
                };
                // Tracked with the handlers: a claimed batch may end within the grace.
                let task = executor.tasks.spawn(sweeper.run(stopped.clone()));
                sweeping.push(task.abort_handle());
            }
            if housekeeping.is_some() {
                let (engine, events) = (engine.clone(), events.clone());
                let watchdog = Watchdog { engine, sweep, prepared, events };
                tidying.spawn(watchdog.run(stopped.clone()));
            }
        }
        if housekeeping.is_some() {
            for runtime in mirrors {
                let checker = Checker { runtime, events: events.clone() };
                loops.spawn(checker.run(stopped.clone()));
            }
        }
        if let Some(config) = housekeeping {
            let keeper = Housekeeper::new(engine, config, schedules, events, bells);
            loops.spawn(keeper.run(stopped));
        }
        loops.close();
        Ok(Self {
            executor,
            stop,
            keeper_stop,
            keeper_ended,
            loops,
            sweeping,
            finisher,
            hooks,
            grace,
        })
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
                // Without renewal every lease will be lost: stop before other workers start the jobs.
                let why = ended.unwrap_or_else(|_| "it panicked".to_owned());
                for generation in self.executor.lease_table.generations() {
                    self.executor.lease_table.lose(generation);
                }
                broken = Some(WorkerError::KeeperStopped(why));
            }
        }
        self.drain(hurry, broken.is_some()).await;
        broken.map_or(Ok(()), Err)
    }

    async fn drain(mut self, hurry: impl Future<Output = ()>, at_once: bool) {
        self.executor.stats.draining.store(true, std::sync::atomic::Ordering::Relaxed);
        let _ = self.stop.send(true);
        self.executor.events.send(|| Event::Draining);
        self.executor.tasks.close();
        self.loops.wait().await;
        if !at_once {
            tokio::select! {
                () = self.executor.tasks.wait() => {}
                () = tokio::time::sleep(self.grace) => {}
                () = hurry => {}
            }
        }
        // Ask the remaining handlers to stop, then leave them.
        let left = self.executor.lease_table.attempts();
        for attempt in &left {
            attempt.stop(StopReason::Shutdown);
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.executor.tasks.wait()).await;
        // The watchdog resets rows that a sweep still holds.
        self.sweeping.iter().for_each(AbortHandle::abort);
        for attempt in left {
            if attempt.decide() {
                if let Some(task) = attempt.task.get() {
                    task.abort();
                }
                self.executor.decisions.send_last(attempt, Transition::Release);
            }
        }
        let finisher = self.finisher;
        // The finisher ends when the last sender is gone. Tasks that never yield keep theirs: wait for
        // the lease table instead, and no longer than a database call may take.
        let lease_table = Arc::clone(&self.executor.lease_table);
        let call_timeout = self.executor.engine.call_timeout();
        drop(self.executor);
        let recorded = async {
            while !lease_table.is_empty() && !finisher.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(call_timeout, recorded).await.is_err() {
            tracing::warn!(
                "some results could not be recorded; their leases will bring the jobs back"
            );
        }
        finisher.abort();
        self.hooks.finish().await;
        // If the keeper stopped by itself, its oneshot has already been received; polling it again
        // would panic.
        if !at_once {
            let _ = self.keeper_stop.send(true);
            let _ = tokio::time::timeout(Duration::from_secs(6), &mut self.keeper_ended).await;
        }
    }
}

/// The most sessions that the queues of one worker record results on: one per queue, and one for the
/// queue whose own session waits. They are opened when they are needed.
const FINISH_SESSIONS: usize = 16;
/// How long a finish waits for a locked row. The rest of its batch waits with it.
const FINISH_SETTINGS: &str = "set lock_timeout = '1s'";

/// Builds one finisher per queue, on a few sessions: a session replies in order, so on a single one a
/// finish that waits for a lock would delay those of every queue.
fn finishers(
    engine: &Leasehold,
    queues: &[(String, usize)],
    lease_table: &Arc<lease_table::LeaseTable>,
    events: &Events,
    bells: &Arc<wakes::Bells>,
    hooks: &Arc<RunningHooks>,
) -> (Decisions, impl Future<Output = ()> + use<>) {
    let sessions = (queues.len() + 1).min(FINISH_SESSIONS);
    let links =
        Links::with_settings(engine.database(), sessions, engine.call_timeout(), FINISH_SETTINGS);
    let links = Arc::new(links);
    let mut decisions = Decisions::default();
    let mut running = Vec::new();
    for (queue, slots) in queues {
        let finisher = finisher::Finisher {
            link: Stream::new(&links),
            lease_table: Arc::clone(lease_table),
            events: events.clone(),
            process: Arc::clone(engine.process()),
            bells: Arc::clone(bells),
            hooks: Arc::clone(hooks),
        };
        running.push(finisher.run(decisions.open(&queue.as_str().into(), *slots)));
    }
    (decisions, async move { drop(join_all(running).await) })
}

/// Checks every sweep against its table. A table that does not fit stops the start; an unreachable
/// database does not: the loops retry.
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

async fn queue_batch(links: &Links, queue: &str) -> usize {
    let sql = "select batch from leasehold.queue_settings($1)";
    let rows = links.query(sql, &[(&queue, tokio_postgres::types::Type::TEXT)]).await;
    let batch: Option<i32> = rows.ok().and_then(|rows| rows.first().map(|row| row.get(0)));
    batch.and_then(|batch| usize::try_from(batch).ok()).unwrap_or(1000)
}
