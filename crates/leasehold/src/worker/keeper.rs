//! The keeper: renews leases, on its own thread, runtime and connection.
//!
//! # Invariants
//! - Handlers that block every thread of the worker, or hold every pooled connection, cannot keep a
//!   lease from being renewed.
//! - One statement renews every lease that is due.
//! - If a lease cannot be renewed, the keeper asks its handlers to stop before another worker can claim
//!   the jobs. After a suspend of the machine, it treats every lease as lost.
//! - The attempt of a handler that runs longer than its limit fails, even if the handler never yields.
//! - Claimed jobs that no slot was free for in time are released, and those with a slot are started although
//!   every task of the worker is blocked.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::context::StopReason;
use super::decisions::Decision;
use super::finisher::Finisher;
use super::lease_table::LeaseTable;
use super::registry::Registration;
use super::run::Executor;
use super::slots::Slots;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::job::{Generation, JobId};
use crate::link::Link;
use crate::queue::finish::Transition;

/// How often the keeper looks for cancel requests and handlers past their limit.
const TICK: Duration = Duration::from_millis(500);
/// How often the keeper looks at jobs that wait for a slot, while there are any.
const LOOK: Duration = Duration::from_millis(10);
/// A handler past its run limit has this long to stop by itself.
const STOP_GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    pub(crate) link: Link,
    pub(crate) lease_table: Arc<LeaseTable>,
    pub(crate) events: Events,
    pub(crate) registration: Registration,
    /// Records the failures of handlers past their limit, on this thread and a session of its own: such a
    /// handler may block the runtime of the other finishers, and a locked row must delay no renewal.
    pub(crate) finisher: Arc<Finisher>,
    pub(crate) waiting: Waiting,
}

/// The queues of the worker, for the keeper.
pub(crate) struct Waiting {
    pub(crate) queues: Vec<Arc<Slots>>,
    /// A claim added jobs to one of them.
    pub(crate) waits: Arc<Notify>,
    /// Weak: the executor holds the senders of the finishers, which end with the last of them.
    pub(crate) executor: Weak<Executor>,
}

/// Starts the keeper's thread. The receiver gets a text when it ends, or an error if it panicked.
pub(crate) fn start(
    keeper: impl FnOnce() -> Keeper + Send + 'static,
    stop: CancellationToken,
) -> std::io::Result<oneshot::Receiver<String>> {
    let (ended, on_end) = oneshot::channel();
    let span = tracing::Span::current();
    std::thread::Builder::new().name("leasehold-keeper".into()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ended.send(format!("no runtime: {error}"));
                return;
            }
        };
        runtime.block_on(keeper().run(stop).instrument(span));
        let _ = ended.send(String::new());
    })?;
    Ok(on_end)
}

impl Keeper {
    async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.keep(stop) => {}
            () = self.watch_ends() => {}
            () = self.watch_waiting() => {}
        }
        self.registration.end(&self.link).await;
    }

    /// Asks handlers to stop before their lease ends, even while calls to the database hang: a
    /// renewal that hangs in a silent network would otherwise keep them running past its end.
    async fn watch_ends(&self) {
        loop {
            let now = Instant::now();
            for generation in self.lease_table.run_out(now) {
                self.lose(generation);
            }
            let pause = self.lease_table.next_end(now).unwrap_or(TICK).min(TICK);
            tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        }
    }

    /// Releases jobs that wait too long for a slot: another worker may have one.
    async fn watch_waiting(&self) {
        let Waiting { queues, waits, executor } = &self.waiting;
        loop {
            waits.notified().await;
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(executor) = executor.upgrade() else {
                    return std::future::pending().await;
                };
                let now = Instant::now();
                for slots in queues {
                    (0..slots.missing_tasks()).for_each(|_| executor.spawn(slots));
                    let stalled = slots.take_stalled(now).into_iter();
                    let ends: Vec<Decision> = stalled
                        .filter(|attempt| attempt.decide())
                        .map(|attempt| Decision::unbounded(attempt, Transition::Release))
                        .collect();
                    if !ends.is_empty() {
                        let finisher = Arc::clone(&self.finisher);
                        tokio::spawn(async move { finisher.round(ends).await });
                    }
                }
                if queues.iter().all(|slots| slots.waiting() == 0) {
                    break;
                }
            }
        }
    }

    async fn keep(&self, stop: CancellationToken) {
        let mut suspended = SuspendWatch::new();
        let mut failed_at: Option<Instant> = None;
        let mut next_tick = Instant::now();
        loop {
            let now = Instant::now();
            if suspended.was_suspended() {
                tracing::warn!("the machine was suspended; every lease counts as lost");
                for generation in self.lease_table.generations() {
                    self.lose(generation);
                }
            }
            #[cfg(feature = "chaos")]
            crate::chaos::point("keeper.tick");
            let due = self.lease_table.due(now);
            // After a failure the other leases' deadlines decide how soon to retry, but not at once.
            if !due.is_empty() && failed_at.is_none_or(|at| now - at > Duration::from_millis(200)) {
                failed_at = match self.renew(&due).await {
                    Ok(()) => None,
                    Err(error) => {
                        tracing::warn!(%error, leases = due.len(), "leases could not be renewed");
                        Some(Instant::now())
                    }
                };
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.cancel_requests().await;
                self.enforce_run_limits();
                let claimed_ahead = self.waiting.queues.iter().map(|slots| slots.waiting()).sum();
                self.registration.beat(&self.link, claimed_ahead).await;
            }
            let pause = self.lease_table.next_deadline(Instant::now()).unwrap_or(TICK).min(TICK);
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(20))) => {}
                () = stop.cancelled() => break,
            }
        }
    }

    async fn renew(&self, due: &[i64]) -> Result<(), CallError> {
        #[cfg(feature = "chaos")]
        crate::chaos::point("keeper.renew");
        let asked_at = Instant::now();
        let rows = self
            .link
            .query("select generation, state from leasehold.renew($1)", &[(&due, Type::INT8_ARRAY)])
            .await?;
        for row in rows {
            let generation = Generation(row.get(0));
            match row.get(1) {
                "renewed" => {
                    self.lease_table.renewed(generation, asked_at);
                    self.events.send(|| Event::Renewed { generation });
                }
                "ended" => self.lease_table.renewed(generation, asked_at),
                "lost" => self.lose(generation),
                // Another transaction has locked the lease: the next tick asks again.
                _ => {}
            }
        }
        Ok(())
    }

    fn lose(&self, generation: Generation) {
        if self.lease_table.lose(generation) {
            tracing::warn!(%generation, "a lease was lost; its handlers were asked to stop");
            self.events.send(|| Event::LeaseLost { generation });
        }
    }

    async fn cancel_requests(&self) {
        let ids = self.lease_table.ids();
        if ids.is_empty() {
            return;
        }
        let asked = self
            .link
            .query("select leasehold_internal.cancel_requests($1)", &[(&ids, Type::INT8_ARRAY)])
            .await;
        // A failure here only delays the cancellation.
        if let Ok(rows) = asked
            && !rows.is_empty()
        {
            let ids: Vec<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
            self.lease_table.stop_jobs(&ids, StopReason::Cancelled);
        }
    }

    /// Fails the attempts of handlers past their limit. A handler that never yields cannot be stopped, but
    /// its job can be taken away: the fence voids every result that it reports later.
    fn enforce_run_limits(&self) {
        let now = Instant::now();
        for attempt in self.lease_table.attempts() {
            let Some(over) = attempt
                .started
                .get()
                .and_then(|started| now.duration_since(*started).checked_sub(attempt.run_limit))
            else {
                continue;
            };
            let was_asked = attempt.stop_reason().is_some();
            attempt.stop(StopReason::RunLimit);
            // A keeper that comes late first asks the handler to stop, and fails its attempt at the next
            // tick.
            if was_asked && over > STOP_GRACE && attempt.decide() {
                attempt.abort();
                let limit = attempt.run_limit.as_secs_f64();
                let why = format!("the handler ran longer than {limit} s");
                let end = Decision::unbounded(attempt, Transition::Retry { after: None, why });
                let finisher = Arc::clone(&self.finisher);
                tokio::spawn(async move { finisher.one(end).await });
            }
        }
    }
}

/// Detects a suspend of the machine: the monotonic clock stops during a suspend, the boot clock does
/// not.
struct SuspendWatch {
    seen: Duration,
}

/// A smaller gap is scheduling, not a suspend.
const SUSPEND_THRESHOLD: Duration = Duration::from_secs(2);

impl SuspendWatch {
    fn new() -> Self {
        Self { seen: clock_gap() }
    }

    fn was_suspended(&mut self) -> bool {
        self.advance(clock_gap())
    }

    fn advance(&mut self, gap: Duration) -> bool {
        let suspended = gap.saturating_sub(self.seen) > SUSPEND_THRESHOLD;
        self.seen = gap;
        suspended
    }
}

/// Returns how far the boot clock is ahead of the monotonic one.
#[cfg(target_os = "linux")]
fn clock_gap() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |id| {
        let time = clock_gettime(id);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or(0),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        )
    };
    let monotonic = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(monotonic)
}

#[cfg(not(target_os = "linux"))]
fn clock_gap() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a24_suspend_is_noticed_and_a_busy_machine_is_not_one() {
        let mut watch = SuspendWatch { seen: Duration::from_secs(100) };
        assert!(!watch.advance(Duration::from_millis(100_300)));
        assert!(watch.advance(Duration::from_secs(160)));
        assert!(!watch.advance(Duration::from_secs(160)));
    }
}
