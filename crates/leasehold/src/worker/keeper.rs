//! The keeper: renews leases, on its own thread, runtime and connection.
//!
//! # What is true
//! - Handlers that block every thread of the worker, or hold every pooled connection, cannot keep a
//!   lease from being renewed.
//! - One statement renews every lease that is due.
//! - If a lease cannot be renewed, the keeper asks its handlers to stop before the database gives the
//!   jobs away. After a suspend of the machine, it gives up every lease at once.
//! - A handler that runs longer than its limit is given up, even one that never yields.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{oneshot, watch};
use tokio_postgres::types::Type;

use super::context::{Attempt, StopReason};
use super::finisher::RECORD_FOR;
use super::hooks::RunningHooks;
use super::lease_table::LeaseTable;
use super::registry::Registration;
use super::report;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::job::{Generation, JobId};
use crate::link::Link;
use crate::queue::finish::{self, Failed, Finished, Transition};

/// How often the keeper looks for cancel requests and handlers past their limit.
const TICK: Duration = Duration::from_millis(500);
/// A handler past its run limit has this long to stop by itself.
const STOP_GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    pub(crate) link: Link,
    pub(crate) lease_table: Arc<LeaseTable>,
    pub(crate) events: Events,
    pub(crate) registration: Registration,
    pub(crate) hooks: Arc<RunningHooks>,
}

/// Starts the keeper's thread. The receiver gets a text when it ends, or an error if it panicked.
pub(crate) fn start(
    keeper: impl FnOnce() -> Keeper + Send + 'static,
    stop: watch::Receiver<bool>,
) -> std::io::Result<oneshot::Receiver<String>> {
    let (ended, on_end) = oneshot::channel();
    std::thread::Builder::new().name("leasehold-keeper".into()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ended.send(format!("no runtime: {error}"));
                return;
            }
        };
        runtime.block_on(keeper().run(stop));
        let _ = ended.send(String::new());
    })?;
    Ok(on_end)
}

impl Keeper {
    async fn run(self, stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.keep(stop) => {}
            () = self.watch_ends() => {}
        }
        self.registration.end(&self.link).await;
    }

    /// Gives leases up on time, whatever the calls to the database do meanwhile: a renewal that hangs
    /// in a silent network would otherwise keep handlers running past the end of their lease.
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

    async fn keep(&self, mut stop: watch::Receiver<bool>) {
        let mut suspended = SuspendWatch::new();
        let mut failed_at: Option<Instant> = None;
        let mut next_tick = Instant::now();
        let mut given_up = Vec::new();
        loop {
            let now = Instant::now();
            if suspended.slept() {
                tracing::warn!("the machine was suspended; every lease is given up");
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
                self.enforce_run_limits(&mut given_up).await;
                self.registration.beat(&self.link).await;
            }
            let pause = self.lease_table.next_deadline(Instant::now()).unwrap_or(TICK).min(TICK);
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(20))) => {}
                // The sender is gone or stops the keeper: either way the worker has ended.
                _ = stop.wait_for(|stop| *stop) => break,
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
            tracing::warn!(%generation, "a lease was lost; its handlers were told to stop");
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
            .query("select leasehold.cancel_requests($1)", &[(&ids, Type::INT8_ARRAY)])
            .await;
        // A failure here only delays the cancellation.
        if let Ok(rows) = asked
            && !rows.is_empty()
        {
            let ids: Vec<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
            self.lease_table.stop_jobs(&ids, StopReason::Cancelled);
        }
    }

    /// Gives up handlers past their limit. A handler that never yields cannot be stopped, but its job
    /// can be taken away: the fence voids whatever it does later.
    async fn enforce_run_limits(&self, given_up: &mut Vec<GivenUp>) {
        let now = Instant::now();
        for attempt in self.lease_table.attempts() {
            let Some(over) = attempt
                .started
                .get()
                .and_then(|started| now.duration_since(*started).checked_sub(attempt.run_limit))
            else {
                continue;
            };
            let told = attempt.stop_reason().is_some();
            attempt.stop(StopReason::RunLimit);
            // A keeper that comes late first asks the handler to stop, and gives it up at the next
            // tick.
            if told && over > STOP_GRACE && attempt.decide() {
                if let Some(task) = attempt.task.get() {
                    task.abort();
                }
                given_up.push(GivenUp { attempt, since: now, refused: false });
            }
        }
        let tries = join_all(given_up.drain(..).map(|one| self.give_up(one))).await;
        given_up.extend(tries.into_iter().flatten());
    }

    /// Records the failure of one handler that was given up, on the keeper's own connection: the
    /// handler may block the finisher's runtime. Waits for no lock, because renewals share the
    /// connection. Returns what must be retried at the next tick.
    async fn give_up(&self, mut one: GivenUp) -> Option<GivenUp> {
        let (job, generation) = (one.attempt.job.id, one.attempt.job.generation);
        let limit = one.attempt.run_limit.as_secs_f64();
        let why = format!("the handler ran longer than {limit} s");
        let failed = finish::fail(&self.link, job, generation, &why, None, false).await;
        let (outcome, next_in) = match failed {
            Ok(Failed { outcome: Some(outcome), next_in }) => (outcome, next_in),
            // The aborted handler's transaction may still lock the row.
            Ok(Failed { outcome: None, .. }) if one.since.elapsed() < RECORD_FOR => {
                return Some(one);
            }
            Ok(_) => (Finished::Lost, None),
            Err(error) => {
                let refused = std::mem::replace(&mut one.refused, error.is_permanent());
                if one.since.elapsed() < RECORD_FOR && !(refused && error.is_permanent()) {
                    tracing::debug!(%error, job.id = job.0, "a handler at its run limit could not be given up; trying again");
                    return Some(one);
                }
                report::dropped(&one.attempt, &error);
                (Finished::Lost, None)
            }
        };
        let transition = Transition::Retry { after: None, why };
        report::failed(&one.attempt, outcome, next_in, &transition);
        one.attempt.engine.process().finished([(&one.attempt, outcome)]);
        self.events.send(|| Event::Finished { job, generation, outcome });
        self.hooks.call(&one.attempt, &transition, outcome);
        self.lease_table.close(generation, 1);
        None
    }
}

/// An attempt that the keeper ended, until that is recorded.
struct GivenUp {
    attempt: Arc<Attempt>,
    since: Instant,
    /// The server refused to record it, permanently.
    refused: bool,
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

    fn slept(&mut self) -> bool {
        self.advance(clock_gap())
    }

    fn advance(&mut self, gap: Duration) -> bool {
        let slept = gap.saturating_sub(self.seen) > SUSPEND_THRESHOLD;
        self.seen = gap;
        slept
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
    fn a24_a_suspend_is_noticed_and_a_busy_machine_is_not_one() {
        let mut watch = SuspendWatch { seen: Duration::from_secs(100) };
        assert!(!watch.advance(Duration::from_millis(100_300)));
        assert!(watch.advance(Duration::from_secs(160)));
        assert!(!watch.advance(Duration::from_secs(160)));
    }
}
