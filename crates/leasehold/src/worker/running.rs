//! A running worker: starts its loops, and stops them so that nothing is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, RwLock};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::builder::WorkerBuilder;
use super::context::StopReason;
use super::decisions::Decisions;
use super::hooks::RunningHooks;
use super::service::{self, ServiceContext};
use super::slots::pool::SlotPool;
use super::slots::{ClaimAhead, Slots};
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

/// What the databases of a fleet share. A worker of one database has its own.
#[derive(Clone, Default)]
pub(super) struct Shared {
    /// The slots of each queue.
    pub(super) slots: Arc<HashMap<String, Arc<SlotPool>>>,
    /// See [`run::Executor`]: a job that runs alone does so in the whole process.
    pub(super) solo_lock: Arc<RwLock<()>>,
}

/// A running worker.
pub(super) struct Running {
    executor: Arc<run::Executor>,
    /// Stops every loop, also when the worker is dropped instead of drained.
    stop: DropGuard,
    keeper_stop: DropGuard,
    keeper_ended: tokio::sync::oneshot::Receiver<String>,
    loops: TaskTracker,
    queues: Vec<Arc<Slots>>,
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
            limits,
            retired,
            services,
            runs_no_jobs,
            poll,
            claim_ahead,
            grace,
            renew_timeout,
            housekeeping,
            events,
            transactions,
            hides_errors,
            hooks,
            layers,
            shared,
            ..
        } = builder;
        // From here on a start that is dropped stops what it has started.
        let stop_guard = stop.clone().drop_guard();
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
        crate::limit::declare(
            &Link::new(database.clone(), engine.call_timeout()),
            &name,
            &limits,
            &stop,
        )
        .await;
        let keeper_stop = CancellationToken::new();
        let keeper_guard = keeper_stop.clone().drop_guard();
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
        let links = Arc::new(Links::new(
            &database,
            queues.len().min(CLAIM_SESSIONS),
            engine.call_timeout(),
        ));
        let waits = Arc::new(Notify::new());
        let mut worked = Vec::new();
        for (queue, slots) in &queues {
            let claim_size = queue_claim_size(&links, queue).await;
            let ahead = ClaimAhead { jobs: claim_ahead.jobs.min(claim_size), ..claim_ahead };
            let share = shared.slots.get(queue).map(|pool| pool.join(*slots));
            let slots = Slots::new(queue.as_str().into(), *slots, share, ahead, &waits, &stats);
            worked.push((Arc::new(slots), claim_size));
        }
        let slots_of = || worked.iter().map(|(slots, _)| Arc::clone(slots)).collect::<Vec<_>>();
        let executor = Arc::new(run::Executor {
            engine: engine.clone(),
            runners,
            lease_table: Arc::clone(&lease_table),
            decisions,
            events: events.clone(),
            stats,
            tasks: TaskTracker::new(),
            runtime: tokio::runtime::Handle::current(),
            span: tracing::Span::current(),
            stop: stop.clone(),
            solo_lock: Arc::clone(&shared.solo_lock),
            transactions: Arc::new(transactions),
            layers: layers.shared(),
            hides_errors,
        });
        let keeper = keeper::Keeper {
            link: Link::new(database.clone(), renew_timeout),
            lease_table: Arc::clone(&lease_table),
            events: events.clone(),
            registration,
            finisher: Arc::new(finisher(&Arc::new(finish_links(&engine, 1)), &parts)),
            waiting: keeper::Waiting {
                queues: slots_of(),
                waits,
                executor: Arc::downgrade(&executor),
            },
        };
        let keeper_ended = keeper::start(move || keeper, keeper_stop)
            .map_err(|error| WorkerError::KeeperStopped(error.to_string()))?;
        let finisher = tokio::spawn(finishing.in_current_span());

        let loops = TaskTracker::new();
        let wakes = Arc::new(wakes::Wakes::new(Arc::clone(&notifiers)));
        for (slots, claim_size) in &worked {
            engine.process().works(slots);
            if slots.is_shared() {
                let starting = Arc::clone(&executor).start_given(Arc::clone(slots));
                loops.spawn(stop.clone().run_until_cancelled_owned(starting));
            }
            let claiming = claim_loop::ClaimLoop {
                queue: Arc::clone(&slots.queue),
                worker: Arc::clone(&worker),
                names: Arc::clone(&names),
                slots: Arc::clone(slots),
                claim_size: *claim_size,
                poll,
                links: Arc::clone(&links),
                executor: Arc::clone(&executor),
                wakes: Arc::clone(&wakes),
                notifier: notifiers.get(&*slots.queue).cloned().unwrap_or_default(),
            };
            loops.spawn(claiming.run(stop.clone()).in_current_span());
        }
        if !database.is_pooled() {
            let listening = wakes::Listening {
                wakes,
                database: database.clone(),
                process: Arc::clone(engine.process()),
                stop: stop.clone(),
            };
            loops.spawn(listening.run(events.clone()).in_current_span());
        }
        // Tracked with the handlers: what a service has begun may end within the grace.
        let run_service =
            |one| executor.tasks.spawn(service::run(one, context.clone()).in_current_span());
        let services = services.into_iter().map(|one| run_service(one).abort_handle()).collect();
        if let Some(config) = housekeeping {
            let keeper = Housekeeper::new(engine, config, schedules, events, notifiers);
            loops.spawn(keeper.run(stop.clone()).in_current_span());
        }
        loops.close();
        let queues = slots_of();
        Ok(Self {
            executor,
            queues,
            stop: stop_guard,
            keeper_stop: keeper_guard,
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
        // At once: another worker may have a slot for them.
        for slots in &self.queues {
            self.executor.release(slots.close());
        }
        self.executor.tasks.close();
        // A claim on a database that hangs is asked for a few times more: no longer than handlers may run.
        let longest = self.grace.saturating_add(self.executor.engine.call_timeout());
        let _ = tokio::time::timeout(longest, self.loops.wait()).await;
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
                attempt.abort();
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
