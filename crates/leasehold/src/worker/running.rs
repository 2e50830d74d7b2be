//! A running worker: starts its loops, and stops them so that nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{RwLock, Semaphore};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::builder::WorkerBuilder;
use super::context::StopReason;
use super::decisions::Decisions;
use super::hooks::RunningHooks;
use super::service::{self, ServiceContext};
use super::transaction::TransactionPool;
use super::{claim_loop, finisher, handler, keeper, lease_table, registry, run, wakes};
use crate::engine::Leasehold;
use crate::error::WorkerError;
use crate::events::{Event, Events};
use crate::housekeeping::Housekeeper;
use crate::link::{Link, Links, Stream};
use crate::measure::canary;
use crate::measure::process::Process;
use crate::queue::finish::Transition;
use crate::schedule::Declared;

/// The most sessions that the queues of one worker claim on. Each queue has one claim in flight at a
/// time, so up to this number of queues none waits for another; beyond it, this many may be slow before
/// one waits.
const CLAIM_SESSIONS: usize = 16;

/// A running worker.
pub(super) struct Running {
    executor: Arc<run::Executor>,
    /// Stops every loop, also when the worker is dropped instead of drained.
    stop: DropGuard,
    keeper_stop: DropGuard,
    keeper_ended: tokio::sync::oneshot::Receiver<String>,
    loops: TaskTracker,
    services: Vec<AbortHandle>,
    finisher: tokio::task::JoinHandle<()>,
    hooks: Arc<RunningHooks>,
    grace: Duration,
}

impl Running {
    pub(super) async fn start<S: Send + Sync + 'static>(
        builder: WorkerBuilder<S>,
    ) -> Result<Self, WorkerError> {
        let (worker, queues): (Arc<str>, _) = (builder.id().into(), builder.queues());
        let stop = CancellationToken::new();
        let context = ServiceContext::of_worker(&builder, stop.clone());
        let WorkerBuilder {
            engine,
            name,
            mut runners,
            schedules,
            retired,
            services,
            runs_no_jobs,
            poll,
            grace,
            renew_timeout,
            housekeeping,
            events,
            transactions,
            hides_errors,
            hooks,
            layers,
            ..
        } = builder;
        let hooks = hooks.start(tokio::runtime::Handle::current());
        let database = engine.database().clone();
        if !runs_no_jobs && !queues.is_empty() {
            // Every worker that runs jobs handles canaries, so a completed canary proves that its queue
            // is being worked.
            runners.entry(canary::NAME.to_owned()).or_insert_with(handler::no_op_runner);
        }
        let names: Arc<[String]> = runners.keys().cloned().collect();
        for service in &services {
            service.prepare(&context).await?;
        }
        let keeper_stop = CancellationToken::new();
        let lease_table = Arc::new(lease_table::LeaseTable::default());
        let stats = Arc::new(registry::WorkerStats::default());
        let slots = queues.iter().map(|(_, slots)| slots).sum::<usize>();
        let transactions = TransactionPool::new(&database, transactions, slots)?;
        let notifiers: wakes::Notifiers =
            queues.iter().map(|(queue, _)| (queue.clone(), Arc::default())).collect();
        let notifiers = Arc::new(notifiers);
        let parts = FinisherParts {
            lease_table: &lease_table,
            events: &events,
            process: engine.process(),
            notifiers: &notifiers,
            hooks: &hooks,
        };
        let (decisions, finishing) = finishers(&engine, &queues, &parts);

        let schedules = Declared::new(&name, schedules, retired);
        let registration = registry::Registration {
            id: worker.to_string(),
            name,
            queues: queues.iter().map(|(queue, _)| queue.clone()).collect(),
            names: names.to_vec(),
            slots: i32::try_from(slots).unwrap_or(i32::MAX),
            stats: Arc::clone(&stats),
            next: std::cell::Cell::new(None),
            reported_draining: std::cell::Cell::new(false),
        };
        let keeper = keeper::Keeper {
            link: Link::new(database.clone(), renew_timeout),
            lease_table: Arc::clone(&lease_table),
            events: events.clone(),
            registration,
            finisher: Arc::new(finisher(&Arc::new(finish_links(&engine, 1)), &parts)),
        };
        let keeper_ended = keeper::start(move || keeper, keeper_stop.clone())
            .map_err(|error| WorkerError::KeeperStopped(error.to_string()))?;

        let executor = Arc::new(run::Executor {
            engine: engine.clone(),
            runners,
            lease_table: Arc::clone(&lease_table),
            decisions,
            events: events.clone(),
            stats,
            tasks: TaskTracker::new(),
            stop: stop.clone(),
            solo_lock: Arc::new(RwLock::new(())),
            transactions: Arc::new(transactions),
            layers: layers.shared(),
            hides_errors,
        });
        let finisher = tokio::spawn(finishing);

        let loops = TaskTracker::new();
        let links = Arc::new(Links::new(
            &database,
            queues.len().min(CLAIM_SESSIONS),
            engine.call_timeout(),
        ));
        let wakes = Arc::new(wakes::Wakes::new(Arc::clone(&notifiers)));
        for (queue, slots) in &queues {
            let (queue_name, free): (Arc<str>, _) =
                (queue.as_str().into(), Arc::new(Semaphore::new(*slots)));
            engine.process().works(&queue_name, *slots, &free);
            let claiming = claim_loop::ClaimLoop {
                queue: queue_name,
                worker: Arc::clone(&worker),
                names: Arc::clone(&names),
                slots: free,
                total: *slots,
                claim_size: queue_claim_size(&links, queue).await,
                poll,
                links: Arc::clone(&links),
                executor: Arc::clone(&executor),
                wakes: Arc::clone(&wakes),
                notifier: notifiers.get(queue).cloned().unwrap_or_default(),
            };
            loops.spawn(claiming.run(stop.clone()));
        }
        if !database.is_pooled() {
            let listening = wakes::Listening {
                wakes,
                database: database.clone(),
                process: Arc::clone(engine.process()),
                stop: stop.clone(),
            };
            loops.spawn(listening.run(events.clone()));
        }
        // Tracked with the handlers: what a service has begun may end within the grace.
        let run_service = |one| executor.tasks.spawn(service::run(one, context.clone()));
        let services = services.into_iter().map(|one| run_service(one).abort_handle()).collect();
        if let Some(config) = housekeeping {
            let keeper = Housekeeper::new(engine, config, schedules, events, notifiers);
            loops.spawn(keeper.run(stop.clone()));
        }
        loops.close();
        Ok(Self {
            executor,
            stop: stop.drop_guard(),
            keeper_stop: keeper_stop.drop_guard(),
            keeper_ended,
            loops,
            services,
            finisher,
            hooks,
            grace,
        })
    }

    pub(super) async fn until(
        mut self,
        stop: impl Future<Output = ()>,
        immediate: impl Future<Output = ()>,
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
        tracing::info!("worker stopping: it claims nothing more and waits for its running jobs");
        self.drain(immediate, broken.is_some()).await;
        tracing::info!("worker stopped");
        broken.map_or(Ok(()), Err)
    }

    async fn drain(mut self, immediate: impl Future<Output = ()>, at_once: bool) {
        self.executor.stats.draining.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(self.stop);
        self.executor.events.send(|| Event::Draining);
        self.executor.tasks.close();
        self.loops.wait().await;
        if !at_once {
            tokio::select! {
                () = self.executor.tasks.wait() => {}
                () = tokio::time::sleep(self.grace) => {}
                () = immediate => {}
            }
        }
        // Ask the remaining handlers to stop, then leave them.
        let left = self.executor.lease_table.attempts();
        for attempt in &left {
            attempt.stop(StopReason::Shutdown);
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.executor.tasks.wait()).await;
        self.services.iter().for_each(AbortHandle::abort);
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
                "some results could not be recorded; their jobs are due again when the leases run out"
            );
        }
        finisher.abort();
        self.hooks.finish().await;
        // If the keeper stopped by itself, its oneshot has already been received; polling it again
        // would panic.
        if !at_once {
            drop(self.keeper_stop);
            let _ = tokio::time::timeout(Duration::from_secs(6), &mut self.keeper_ended).await;
        }
    }
}

/// The most sessions that the queues of one worker record results on: one per queue, and one for the
/// queue whose own session waits. They are opened when they are needed.
const FINISH_SESSIONS: usize = 16;
/// How long a finish waits for a locked row. The rest of its batch waits with it.
const FINISH_SETTINGS: &str = "set lock_timeout = '1s'";

/// What the finishers of a worker share.
struct FinisherParts<'a> {
    lease_table: &'a Arc<lease_table::LeaseTable>,
    events: &'a Events,
    process: &'a Arc<Process>,
    notifiers: &'a Arc<wakes::Notifiers>,
    hooks: &'a Arc<RunningHooks>,
}

fn finisher(links: &Arc<Links>, parts: &FinisherParts<'_>) -> finisher::Finisher {
    finisher::Finisher {
        link: Stream::new(links),
        lease_table: Arc::clone(parts.lease_table),
        events: parts.events.clone(),
        process: Arc::clone(parts.process),
        notifiers: Arc::clone(parts.notifiers),
        hooks: Arc::clone(parts.hooks),
    }
}

fn finish_links(engine: &Leasehold, sessions: usize) -> Links {
    Links::with_settings(engine.database(), sessions, engine.call_timeout(), FINISH_SETTINGS)
}

/// Builds one finisher per queue, on a few sessions: a session replies in order, so on a single one a
/// finish that waits for a lock would delay those of every queue.
fn finishers(
    engine: &Leasehold,
    queues: &[(String, usize)],
    parts: &FinisherParts<'_>,
) -> (Decisions, impl Future<Output = ()> + use<>) {
    let links = Arc::new(finish_links(engine, (queues.len() + 1).min(FINISH_SESSIONS)));
    let mut decisions = Decisions::default();
    let mut running = Vec::new();
    for (queue, slots) in queues {
        let receiver = decisions.open(&queue.as_str().into(), *slots);
        running.push(finisher(&links, parts).run(receiver));
    }
    (decisions, async move { drop(join_all(running).await) })
}

async fn queue_claim_size(links: &Links, queue: &str) -> usize {
    let sql = "select claim_size from leasehold_internal.queue_settings($1)";
    let rows = links.query(sql, &[(&queue, tokio_postgres::types::Type::TEXT)]).await;
    let claim_size: Option<i32> = rows.ok().and_then(|rows| rows.first().map(|row| row.get(0)));
    claim_size.and_then(|size| usize::try_from(size).ok()).unwrap_or(1000)
}
