//! Hooks: functions of the caller that run after the end of an attempt is recorded.
//!
//! # Invariants
//! - A hook is called after the database has recorded the end, never before. A process that dies in between
//!   calls none: what must not be missed belongs into the handler's transaction, or into a
//!   schedule that reads `leasehold.jobs`.
//! - Hooks see the ends that this worker records. Jobs that expire, or that a reclaim buries because their
//!   worker died, end without a worker.
//! - A hook that fails, panics or is slow changes nothing about the job and delays no other end: each end
//!   has a task of its own, [`ROOM`] at a time. Beyond that ends are not reported, with a warning.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::context::Attempt;
use crate::job::{Cause, Generation, JobId};
use crate::queue::finish::{Finished, Transition};

/// How many ends may be with hooks at a time.
const ROOM: usize = 1024;
/// How long a stopping worker waits for its hooks.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// How an attempt of this worker ended, as the database recorded it.
#[derive(Clone)]
pub struct FinishedJob {
    attempt: Arc<Attempt>,
    outcome: Finished,
    cause: Option<Cause>,
    error: Option<Arc<str>>,
}

impl FinishedJob {
    /// Returns the id of the job.
    pub fn id(&self) -> JobId {
        self.attempt.job.id
    }

    /// Returns the generation of the lease under which it ran.
    pub fn generation(&self) -> Generation {
        self.attempt.job.generation
    }

    /// Returns the queue of the job.
    pub fn queue(&self) -> &str {
        self.attempt.queue()
    }

    /// Returns the name of the job.
    pub fn name(&self) -> &str {
        &self.attempt.job.name
    }

    /// Returns the tag of the job; empty without one.
    pub fn tag(&self) -> &str {
        &self.attempt.job.tag
    }

    /// Returns the job's kwargs as JSON text.
    pub fn kwargs(&self) -> &[u8] {
        self.attempt.job.kwargs.as_slice()
    }

    /// Returns the number of this attempt, from 1 on.
    pub fn attempt(&self) -> i32 {
        self.attempt.job.attempts
    }

    /// Returns how the attempt ended.
    pub fn outcome(&self) -> Finished {
        self.outcome
    }

    /// Returns why the job died; `None`: it did not.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Returns the error of the attempt.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl std::fmt::Debug for FinishedJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FinishedJob")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("outcome", &self.outcome)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

type Hook = Arc<dyn Fn(FinishedJob) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// The hooks of a worker under construction.
#[derive(Default)]
pub(super) struct Hooks {
    finished: Vec<Hook>,
    buried: Vec<Hook>,
}

fn hook<F, Fut, E>(call: F) -> Hook
where
    F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: std::fmt::Display,
{
    let call = Arc::new(call);
    Arc::new(move |job| {
        let call = Arc::clone(&call);
        // The call itself is inside the future, so that its panic is contained too.
        async move { call(job).await.map_err(|error| error.to_string()) }.boxed()
    })
}

impl Hooks {
    pub(super) fn add_finished<F, Fut, E>(&mut self, call: F)
    where
        F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.finished.push(hook(call));
    }

    pub(super) fn add_buried<F, Fut, E>(&mut self, call: F)
    where
        F: Fn(FinishedJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.buried.push(hook(call));
    }

    /// Runs them on the runtime of the worker. The keeper has one of its own, which must not wait.
    pub(super) fn start(self, runtime: Handle) -> Arc<RunningHooks> {
        let (tasks, room) = (TaskTracker::new(), Arc::new(Semaphore::new(ROOM)));
        Arc::new(RunningHooks { hooks: self, runtime, tasks, room })
    }
}

/// The hooks of a running worker.
pub(crate) struct RunningHooks {
    hooks: Hooks,
    runtime: Handle,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

impl RunningHooks {
    /// Calls the hooks for a recorded end. Nothing was recorded for a lost lease: it has no end here.
    pub(super) fn call(&self, attempt: &Arc<Attempt>, transition: &Transition, outcome: Finished) {
        let buried: &[Hook] = if outcome == Finished::Buried { &self.hooks.buried } else { &[] };
        if outcome == Finished::Lost || (self.hooks.finished.is_empty() && buried.is_empty()) {
            return;
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            tracing::warn!(
                job.id = attempt.job.id.0,
                "too many ends wait for slow hooks; they are not called for this one"
            );
            return;
        };
        let died = outcome == Finished::Buried;
        let job = FinishedJob {
            attempt: Arc::clone(attempt),
            outcome,
            cause: died.then(|| transition.cause().unwrap_or(Cause::Exhausted)),
            error: transition.why().map(Arc::from),
        };
        let hooks: Vec<Hook> = self.hooks.finished.iter().chain(buried).cloned().collect();
        self.tasks.spawn_on(
            async move {
                let _room = room;
                for hook in hooks {
                    let called = AssertUnwindSafe(hook(job.clone())).catch_unwind().await;
                    let id = job.id().0;
                    match called {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tracing::warn!(job.id = id, %error, "a hook failed"),
                        Err(_) => tracing::warn!(job.id = id, "a hook panicked"),
                    }
                }
            },
            &self.runtime,
        );
    }

    /// Waits for the calls that are under way, 5 s at most.
    pub(super) async fn finish(&self) {
        self.tasks.close();
        if tokio::time::timeout(STOP_WAIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("hooks still run; the worker stops without them");
        }
    }
}
