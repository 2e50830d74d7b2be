//! The keeper: renews leases, on a thread, a runtime and a connection of its own.
//!
//! # What is true
//! - Handlers that block every thread of the worker, or hold every pooled connection, cannot keep a
//!   lease from being renewed.
//! - One statement renews every lease that is due.
//! - When a lease cannot be renewed, its handlers are told to stop before the database gives the
//!   jobs away. When the machine was suspended, every lease is given up at once.
//! - A handler that runs longer than its limit is given up, even one that never yields.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio_postgres::types::Type;

use super::book::Book;
use super::context::{Attempt, StopReason};
use super::registry::Registration;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::job::{Generation, JobId};
use crate::link::Link;
use crate::queue::finish::{self, Finished, Verdict};

/// How often the keeper looks for cancel requests and handlers past their limit.
const TICK: Duration = Duration::from_millis(500);
/// A handler past its run limit has this long to stop by itself.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub(crate) struct Keeper {
    pub(crate) link: Link,
    pub(crate) book: Arc<Book>,
    pub(crate) events: Events,
    pub(crate) registration: Registration,
}

/// Starts the keeper's thread. The receiver hears when it ends; by a panic if it hears nothing.
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
    /// in a silent network would otherwise keep the handlers running past the end of their lease.
    async fn watch_ends(&self) {
        loop {
            let now = Instant::now();
            for generation in self.book.run_out(now) {
                self.lose(generation);
            }
            let pause = self.book.next_end(now).unwrap_or(TICK).min(TICK);
            tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        }
    }

    async fn keep(&self, mut stop: watch::Receiver<bool>) {
        let mut suspended = SuspendWatch::new();
        let mut failed_at: Option<Instant> = None;
        let mut next_tick = Instant::now();
        loop {
            let now = Instant::now();
            if suspended.slept() {
                tracing::warn!("the machine was suspended; every lease is given up");
                for generation in self.book.generations() {
                    self.lose(generation);
                }
            }
            #[cfg(feature = "chaos")]
            crate::chaos::point("keeper.tick");
            let due = self.book.due(now);
            // After a failure the others' deadlines decide how soon to ask again, but not at once.
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
                self.enforce_run_limits().await;
                self.registration.beat(&self.link).await;
            }
            let pause = self.book.next_deadline(Instant::now()).unwrap_or(TICK).min(TICK);
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(20))) => {}
                // The sender is gone or says stop: either way the worker is over.
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
                    self.book.renewed(generation, asked_at);
                    self.events.send(|| Event::Renewed { generation });
                }
                "ended" => self.book.renewed(generation, asked_at),
                "lost" => self.lose(generation),
                // Someone is at work on the lease: the next tick asks again.
                _ => {}
            }
        }
        Ok(())
    }

    fn lose(&self, generation: Generation) {
        if self.book.lose(generation) {
            tracing::warn!(%generation, "a lease was lost; its handlers were told to stop");
            self.events.send(|| Event::LeaseLost { generation });
        }
    }

    async fn cancel_requests(&self) {
        let ids = self.book.ids();
        if ids.is_empty() {
            return;
        }
        let asked = self
            .link
            .query("select leasehold.cancel_requests($1)", &[(&ids, Type::INT8_ARRAY)])
            .await;
        // A failure here only delays the request.
        if let Ok(rows) = asked
            && !rows.is_empty()
        {
            let ids: Vec<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
            self.book.stop_jobs(&ids, StopReason::Cancelled);
        }
    }

    /// Gives up handlers past their limit. A handler that never yields cannot be stopped, but its
    /// job can be taken from it: the fence makes whatever it does later count for nothing.
    async fn enforce_run_limits(&self) {
        let now = Instant::now();
        for attempt in self.book.attempts() {
            let Some(over) = attempt
                .started
                .get()
                .and_then(|started| now.duration_since(*started).checked_sub(attempt.run_limit))
            else {
                continue;
            };
            let told = attempt.stop_reason().is_some();
            attempt.stop(StopReason::RunLimit);
            // A keeper that comes late tells it first, and gives it up when it looks again.
            if told && over > LAST_WORDS && attempt.decide() {
                self.give_up(&attempt).await;
            }
        }
    }

    async fn give_up(&self, attempt: &Attempt) {
        let (job, generation) = (attempt.job.id, attempt.job.generation);
        if let Some(task) = attempt.task.get() {
            task.abort();
        }
        let why = format!("the handler ran longer than {} s", attempt.run_limit.as_secs_f64());
        let verdict = Verdict::Retry { after: None, why };
        // When this fails the job comes back by its lease: the book keeps the lease, but nothing
        // renews the promise of a handler that is gone.
        let outcome = finish::finish(&self.link, job, generation, &verdict).await;
        let outcome = outcome.unwrap_or(Finished::Lost);
        tracing::warn!(job.id = job.0, %generation, ?outcome, "a handler was given up at its run limit");
        self.events.send(|| Event::Finished { job, generation, outcome });
        self.book.close(generation, 1);
    }
}

/// Notices that the machine slept: the monotonic clock stands still during a suspend, the boot
/// clock does not.
struct SuspendWatch {
    seen: Duration,
}

/// Less than this is scheduling, not sleep.
const SLEPT: Duration = Duration::from_secs(2);

impl SuspendWatch {
    fn new() -> Self {
        Self { seen: clock_gap() }
    }

    fn slept(&mut self) -> bool {
        self.advance(clock_gap())
    }

    fn advance(&mut self, gap: Duration) -> bool {
        let slept = gap.saturating_sub(self.seen) > SLEPT;
        self.seen = gap;
        slept
    }
}

/// How far the boot clock is ahead of the monotonic one.
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
