//! Services: tasks that run beside the jobs of a worker, for as long as it runs. Sweeps and mirrors are
//! services; a program can add its own.
//!
//! # Invariants
//! - Every service is prepared before the worker starts anything. One that refuses stops the start.
//! - A service that panics is started again after [`RESTART_AFTER`], and stops no other service and no
//!   job.
//! - A stopping worker waits for its services as it waits for its handlers, up to the grace. Then it
//!   aborts them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::builder::WorkerBuilder;
use crate::engine::Leasehold;
use crate::error::{CallError, WorkerError};
use crate::error_text::one_line;
use crate::events::Events;
use crate::service::panic_text;

/// The pause before a service that panicked is started again.
const RESTART_AFTER: Duration = Duration::from_secs(5);

/// A task that runs beside the jobs of a worker. Add it with [`WorkerBuilder::service`].
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use leasehold::worker::{ServiceContext, WorkerBuilder, WorkerService};
///
/// /// Counts jobs that ask for it, and reports the count once per minute.
/// struct Counter(std::sync::atomic::AtomicU64);
///
/// impl WorkerService for Counter {
///     fn name(&self) -> String {
///         "counter".to_owned()
///     }
///
///     fn register<S: Send + Sync + 'static>(self: &Arc<Self>, worker: WorkerBuilder<S>) -> WorkerBuilder<S> {
///         let counter = Arc::clone(self);
///         worker.handle_untyped("count", move |_| {
///             counter.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///             async {}
///         })
///     }
///
///     async fn run(self: Arc<Self>, context: ServiceContext) {
///         while context.pause(Duration::from_secs(60)).await {
///             println!("{} so far", self.0.load(std::sync::atomic::Ordering::Relaxed));
///         }
///     }
/// }
/// # fn add(leasehold: leasehold::Leasehold) {
/// # let worker =
/// leasehold.worker().service(Counter(0.into()))
/// # ;
/// # }
/// ```
pub trait WorkerService: Send + Sync + 'static {
    /// Returns the name of the service, for logs and errors. A worker refuses two services of one name.
    fn name(&self) -> String;

    /// Adds the handlers of the service's jobs. Called once, when the service is added.
    fn register<S: Send + Sync + 'static>(
        self: &Arc<Self>,
        worker: WorkerBuilder<S>,
    ) -> WorkerBuilder<S>
    where
        Self: Sized,
    {
        worker
    }

    /// Checks what the service needs, before the worker starts anything. An error stops the start; return
    /// [`WorkerError::Config`] with a text that says what to change. What may be better in a moment, such
    /// as a database that does not respond, is no reason to stop: return `Ok` and try again in
    /// [`run`](Self::run).
    fn prepare(
        &self,
        context: &ServiceContext,
    ) -> impl Future<Output = Result<(), WorkerError>> + Send {
        let _ = context;
        std::future::ready(Ok(()))
    }

    /// Runs until [`ServiceContext::stopped`]. A service that has nothing to do may return earlier.
    fn run(self: Arc<Self>, context: ServiceContext) -> impl Future<Output = ()> + Send;

    /// Returns whether nothing is left to do now. [`WorkerBuilder::run_until_idle`] asks it.
    fn is_idle(
        &self,
        context: &ServiceContext,
    ) -> impl Future<Output = Result<bool, CallError>> + Send {
        let _ = context;
        std::future::ready(Ok(true))
    }
}

/// What a service knows about its worker. Cheap to clone.
#[derive(Clone)]
pub struct ServiceContext {
    engine: Leasehold,
    events: Events,
    stop: CancellationToken,
    poll: Duration,
    runs_jobs: bool,
    housekeeps: bool,
    hides_errors: bool,
}

impl ServiceContext {
    /// Returns the context of a service that runs without a worker, such as for one turn of it in a
    /// script. It never stops.
    pub fn without_worker(engine: &Leasehold) -> Self {
        Self {
            engine: engine.clone(),
            events: Events::default(),
            stop: CancellationToken::new(),
            poll: Duration::from_millis(500),
            runs_jobs: true,
            housekeeps: true,
            hides_errors: false,
        }
    }

    pub(super) fn of_worker<S>(worker: &WorkerBuilder<S>, stop: CancellationToken) -> Self {
        Self {
            engine: worker.engine.clone(),
            events: worker.events.clone(),
            stop,
            poll: worker.poll,
            runs_jobs: !worker.runs_no_jobs,
            housekeeps: worker.housekeeping.is_some(),
            hides_errors: worker.hides_errors,
        }
    }

    /// Returns the handle of the worker.
    pub fn engine(&self) -> &Leasehold {
        &self.engine
    }

    /// Returns the channel of the worker's events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Returns how often the worker polls, as [`WorkerBuilder::poll_every`] set it.
    pub fn poll_every(&self) -> Duration {
        self.poll
    }

    /// Returns false in a worker that does only housekeeping: work on rows belongs to other workers.
    pub fn runs_jobs(&self) -> bool {
        self.runs_jobs
    }

    /// Returns false in a worker that leaves housekeeping to others.
    pub fn housekeeps(&self) -> bool {
        self.housekeeps
    }

    /// Returns true if error texts may hold secrets and must be neither logged nor stored, as
    /// [`WorkerBuilder::hide_error_texts`] demands.
    pub fn hides_error_texts(&self) -> bool {
        self.hides_errors
    }

    /// Returns the token that is cancelled when the worker stops, such as for
    /// [`crate::service::run_every`].
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns true as soon as the worker stops: begin nothing new.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until the worker stops.
    pub async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Waits for this time, or until the worker stops. Returns false if it stops.
    pub async fn pause(&self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => !self.is_stopping(),
            () = self.stop.cancelled() => false,
        }
    }
}

impl std::fmt::Debug for ServiceContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceContext")
            .field("runs_jobs", &self.runs_jobs)
            .field("housekeeps", &self.housekeeps)
            .field("is_stopping", &self.is_stopping())
            .finish_non_exhaustive()
    }
}

/// A service of any type.
pub(super) trait AnyService: Send + Sync {
    fn name(&self) -> String;
    fn prepare<'a>(&'a self, context: &'a ServiceContext)
    -> BoxFuture<'a, Result<(), WorkerError>>;
    fn run(self: Arc<Self>, context: ServiceContext) -> BoxFuture<'static, ()>;
    fn is_idle<'a>(&'a self, context: &'a ServiceContext)
    -> BoxFuture<'a, Result<bool, CallError>>;
}

impl<T: WorkerService> AnyService for T {
    fn name(&self) -> String {
        WorkerService::name(self)
    }

    fn prepare<'a>(
        &'a self,
        context: &'a ServiceContext,
    ) -> BoxFuture<'a, Result<(), WorkerError>> {
        WorkerService::prepare(self, context).boxed()
    }

    fn run(self: Arc<Self>, context: ServiceContext) -> BoxFuture<'static, ()> {
        WorkerService::run(self, context).boxed()
    }

    fn is_idle<'a>(
        &'a self,
        context: &'a ServiceContext,
    ) -> BoxFuture<'a, Result<bool, CallError>> {
        WorkerService::is_idle(self, context).boxed()
    }
}

/// Runs a service until the worker stops, through panics.
pub(super) async fn run(service: Arc<dyn AnyService>, context: ServiceContext) {
    loop {
        // The call is inside the future, so that its panic is caught too.
        let running = async { Arc::clone(&service).run(context.clone()).await };
        let Err(panic) = AssertUnwindSafe(running).catch_unwind().await else { return };
        let name = service.name();
        let error = match context.hides_error_texts() {
            true => crate::error_text::HIDDEN_TEXT.to_owned(),
            false => one_line(&panic_text(&*panic)),
        };
        tracing::error!(service = name, error, "a service panicked; it is started again");
        if !context.pause(RESTART_AFTER).await {
            return;
        }
    }
}
