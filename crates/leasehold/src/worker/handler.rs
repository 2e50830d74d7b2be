//! Handlers are plain async functions: the first argument selects the type of job, the others are
//! extracted from the worker's state and the attempt.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::context::{Attempt, Ctx};
use super::layer;
use super::outcome::{IntoJobResult, JobError, JobResult, Outcome, Reason};
use super::untyped::{ManyJobs, UntypedJob};
use crate::backoff::{Backoff, Jitter};
use crate::job::{Cause, Job, Policy, decode};
use crate::queue::finish::Transition;

/// An argument that a handler can have beside its job: [`Ctx`], [`State`], [`super::JobTx`].
pub trait FromAttempt<S>: Sized + Send {
    /// Makes the argument. An error fails the attempt before the handler runs.
    fn from_attempt(ctx: &Ctx, state: &S) -> impl Future<Output = Result<Self, JobError>> + Send;
}

/// A part of the worker's state.
#[derive(Clone, Debug)]
pub struct State<T>(pub T);

/// Extracts a part from the whole state. Every state is a part of itself.
pub trait FromRef<S> {
    /// Returns the part.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

impl<S: Sync, T: FromRef<S> + Send> FromAttempt<S> for State<T> {
    async fn from_attempt(_: &Ctx, state: &S) -> Result<Self, JobError> {
        Ok(Self(T::from_ref(state)))
    }
}

impl<S: Sync> FromAttempt<S> for Ctx {
    async fn from_attempt(ctx: &Ctx, _: &S) -> Result<Self, JobError> {
        Ok(ctx.clone())
    }
}

/// An async function that runs jobs of one type.
#[diagnostic::on_unimplemented(
    message = "this function is not a job handler",
    note = "a handler is an async function whose first argument is the job (a struct with #[derive(Job)]), \
            followed by at most three of State<T>, Ctx and JobTx, \
            and that returns (), Outcome, or a Result of one of them whose error is JobError, anyhow::Error, \
            eyre::Report, Box<dyn Error + Send + Sync> or an error that is Send, Sync and 'static",
    note = "a handler with State<T> needs a worker that has a T: .worker_with(state) in place of .worker()"
)]
pub trait Handler<S, Args>: Clone + Send + Sync + 'static {
    /// The type of the job.
    type Job: Job;
    /// Runs one attempt.
    fn call(
        self,
        ctx: Ctx,
        job: Self::Job,
        state: Arc<S>,
    ) -> impl Future<Output = JobResult> + Send;
}

macro_rules! handler_for {
    ($($extractor:ident),*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<S, F, Fut, R, J, $($extractor,)*> Handler<S, (J, $($extractor,)*)> for F
        where
            S: Send + Sync + 'static,
            F: Fn(J, $($extractor,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send,
            R: IntoJobResult,
            J: Job,
            $($extractor: FromAttempt<S>,)*
        {
            type Job = J;
            async fn call(self, ctx: Ctx, job: J, state: Arc<S>) -> JobResult {
                $(let $extractor = $extractor::from_attempt(&ctx, &state).await?;)*
                self(job, $($extractor,)*).await.into_job_result()
            }
        }
    };
}
handler_for!();
handler_for!(A);
handler_for!(A, B);
handler_for!(A, B, C);

/// One job of a batch.
#[non_exhaustive]
pub struct ManyItem<J> {
    /// The job.
    pub job: J,
    /// The context of its attempt.
    pub ctx: Ctx,
}

impl<J> ManyItem<J> {
    /// Makes an item, for a test that calls the handler itself.
    pub fn new(job: J, ctx: Ctx) -> Self {
        Self { job, ctx }
    }
}

/// An async function that runs many jobs of one type at once. It returns one result for all of them, or
/// one for each in order.
#[diagnostic::on_unimplemented(
    message = "this function is not a handler of several jobs",
    note = "a handler of several jobs is an async function whose argument is Vec<ManyItem<J>>, where J is a struct with \
            #[derive(Job)], followed by at most one State<T>, and that returns (), a Vec with one result per job, \
            or a Result of one of them with an error that handlers of one job may return",
    note = "a handler with State<T> needs a worker that has a T: .worker_with(state) in place of .worker()"
)]
pub trait ManyHandler<S, Args>: Clone + Send + Sync + 'static {
    /// The type of the jobs.
    type Job: Job;
    /// Runs one attempt of each job.
    fn call(
        self,
        items: Vec<ManyItem<Self::Job>>,
        state: Arc<S>,
    ) -> impl Future<Output = Vec<JobResult>> + Send;
}

/// What a batch handler may return.
pub trait IntoManyResult {
    /// Returns one result per job.
    fn into_many_result(self, jobs: usize) -> Vec<JobResult>;
}

/// One result for all.
impl<E: Into<JobError>> IntoManyResult for Result<(), E> {
    fn into_many_result(self, jobs: usize) -> Vec<JobResult> {
        let result: Result<(), JobError> = self.map_err(Into::into);
        (0..jobs)
            .map(|_| match &result {
                Ok(()) => Ok(Outcome::Complete),
                Err(error) => Err(error.clone()),
            })
            .collect()
    }
}

impl IntoManyResult for () {
    fn into_many_result(self, jobs: usize) -> Vec<JobResult> {
        Ok::<(), JobError>(()).into_many_result(jobs)
    }
}

/// One result per job, in the order of the batch: `Vec<JobResult>`, `Vec<Outcome>`, `Vec<anyhow::Result<()>>`.
impl<R: IntoJobResult> IntoManyResult for Vec<R> {
    fn into_many_result(self, jobs: usize) -> Vec<JobResult> {
        let given = self.len();
        let mut results: Vec<JobResult> =
            self.into_iter().map(IntoJobResult::into_job_result).collect();
        results.resize_with(jobs, || {
            Err(JobError::retry(format!(
                "the handler returned {given} results for {jobs} jobs; return one per job"
            )))
        });
        results
    }
}

/// One result per job, or an error that fails all of them.
impl<R: IntoJobResult, E: Into<JobError>> IntoManyResult for Result<Vec<R>, E> {
    fn into_many_result(self, jobs: usize) -> Vec<JobResult> {
        match self {
            Ok(results) => results.into_many_result(jobs),
            Err(error) => Err::<(), JobError>(error.into()).into_many_result(jobs),
        }
    }
}

impl<S, F, Fut, R, J> ManyHandler<S, (J,)> for F
where
    S: Send + Sync + 'static,
    F: Fn(Vec<ManyItem<J>>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoManyResult,
    J: Job,
{
    type Job = J;
    async fn call(self, items: Vec<ManyItem<J>>, _: Arc<S>) -> Vec<JobResult> {
        let jobs = items.len();
        self(items).await.into_many_result(jobs)
    }
}

impl<S, F, Fut, R, J, T> ManyHandler<S, (J, State<T>)> for F
where
    S: Send + Sync + 'static,
    T: FromRef<S> + Send,
    F: Fn(Vec<ManyItem<J>>, State<T>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoManyResult,
    J: Job,
{
    type Job = J;
    async fn call(self, items: Vec<ManyItem<J>>, state: Arc<S>) -> Vec<JobResult> {
        let jobs = items.len();
        self(items, State(T::from_ref(&state))).await.into_many_result(jobs)
    }
}

pub(crate) type TransitionFuture = Pin<Box<dyn Future<Output = Transition> + Send>>;
pub(crate) type TransitionsFuture = Pin<Box<dyn Future<Output = Vec<Transition>> + Send>>;

/// A type-erased handler, with the run limit of its job type.
pub(crate) struct Registered {
    pub(crate) runner: Runner,
    pub(crate) run_limit: Option<Duration>,
}

pub(crate) enum Runner {
    One(Box<dyn Fn(Arc<Attempt>) -> TransitionFuture + Send + Sync>),
    Many { jobs: ManyJobs, run: Box<dyn Fn(Vec<Arc<Attempt>>) -> TransitionsFuture + Send + Sync> },
}

pub(crate) fn runner<S, H, Args>(handler: H, state: Arc<S>) -> Registered
where
    S: Send + Sync + 'static,
    H: Handler<S, Args>,
{
    let Policy { backoff, run_limit, .. } = H::Job::policy();
    let runner = Runner::One(Box::new(move |attempt| {
        let (handler, state) = (handler.clone(), Arc::clone(&state));
        Box::pin(async move {
            let running = layer::run_one(Ctx(Arc::clone(&attempt)), move |ctx| async move {
                let job: H::Job = match decode(ctx.kwargs()) {
                    Ok(job) => job,
                    Err(error) => return Err(undecodable::<H::Job>(&error)),
                };
                handler.call(ctx, job, state).await
            });
            transition(running.await, &attempt, backoff)
        })
    }));
    Registered { runner, run_limit }
}

pub(crate) fn many_runner<S, H, Args>(jobs: ManyJobs, handler: H, state: Arc<S>) -> Registered
where
    S: Send + Sync + 'static,
    H: ManyHandler<S, Args>,
{
    let Policy { backoff, run_limit, .. } = H::Job::policy();
    let run = move |attempts: Vec<Arc<Attempt>>| -> TransitionsFuture {
        let (handler, state) = (handler.clone(), Arc::clone(&state));
        Box::pin(async move {
            let contexts = attempts.iter().map(|attempt| Ctx(Arc::clone(attempt))).collect();
            let call = |contexts| call_many(handler.clone(), contexts, Arc::clone(&state));
            let results = layer::run_many(contexts, call).await;
            let ends = attempts.iter().zip(results);
            ends.map(|(attempt, result)| transition(result, attempt, backoff)).collect()
        })
    };
    Registered { runner: Runner::Many { jobs, run: Box::new(run) }, run_limit }
}

/// Calls the handler with the jobs whose kwargs fit. Returns one result per context.
async fn call_many<S, H, Args>(handler: H, contexts: Vec<Ctx>, state: Arc<S>) -> Vec<JobResult>
where
    S: Send + Sync + 'static,
    H: ManyHandler<S, Args>,
{
    let mut errors: Vec<Option<JobError>> = Vec::with_capacity(contexts.len());
    let mut items = Vec::with_capacity(contexts.len());
    for ctx in contexts {
        match decode(ctx.kwargs()) {
            Ok(job) => {
                items.push(ManyItem { job, ctx });
                errors.push(None);
            }
            Err(error) => errors.push(Some(undecodable::<H::Job>(&error))),
        }
    }
    let results = if items.is_empty() { Vec::new() } else { handler.call(items, state).await };
    let mut results = results.into_iter();
    let mut next = || {
        let missing = || Err(JobError::retry("the handler returned no result for this job"));
        results.next().unwrap_or_else(missing)
    };
    errors.into_iter().map(|error| error.map_or_else(&mut next, Err)).collect()
}

/// Returns the error of a job whose kwargs do not fit its type.
fn undecodable<J: Job>(error: &serde_json::Error) -> JobError {
    JobError::undecodable(format!("the kwargs do not fit {}: {error}", J::NAME))
}

/// The wait of a job whose handler could not start: 1 to 3 s.
const NOT_STARTED: Backoff =
    Backoff::doubling(Duration::from_secs(2), Duration::from_secs(2)).jitter(Jitter::Share(0.5));

/// Maps the result of a handler to the end of its attempt.
fn transition(result: JobResult, attempt: &Attempt, backoff: Option<Backoff>) -> Transition {
    let (attempts, most) = (attempt.job.attempts, attempt.job.max_attempts);
    let JobError { text: why, reason } = match result {
        Ok(Outcome::Complete) => return Transition::Complete,
        Ok(Outcome::Snooze(wait)) => return Transition::Snooze { wait, why: None },
        Ok(Outcome::Defer { after, why }) => {
            return Transition::Defer { wait: after, why, counted: false };
        }
        Ok(Outcome::Retry { after, why }) => return Transition::Retry { after: Some(after), why },
        Ok(Outcome::Cancel(why)) => return Transition::Cancel { why },
        Ok(Outcome::Release) => return Transition::Release,
        Err(error) => error,
    };
    match reason {
        Reason::Permanent(cause) => Transition::Bury { cause, why },
        Reason::Deferred(wait) => Transition::Defer { wait, why, counted: true },
        Reason::NotStarted => {
            Transition::Snooze { wait: NOT_STARTED.waits().next_wait(), why: Some(why) }
        }
        // During a rolling deploy a worker of the former release may meet kwargs of the next one: the job
        // waits for a worker that can read them, and is dead after its last attempt.
        Reason::Undecodable if attempts >= most => {
            Transition::Bury { cause: Cause::Undecodable, why }
        }
        Reason::Undecodable | Reason::Failed => {
            let after = backoff.map(|backoff| backoff.random_wait(attempts));
            Transition::Retry { after, why }
        }
    }
}

/// Registers a handler for a name without a type.
pub(crate) fn untyped_runner<F, Fut>(job: &UntypedJob, handler: F) -> Registered
where
    F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoJobResult> + Send + 'static,
{
    let runner = Runner::One(Box::new(move |attempt| {
        let handler = handler.clone();
        Box::pin(async move {
            let running = layer::run_one(Ctx(Arc::clone(&attempt)), move |ctx| async move {
                handler(ctx).await.into_job_result()
            });
            transition(running.await, &attempt, None)
        })
    }));
    Registered { runner, run_limit: job.run_limit }
}

/// Registers a handler of several jobs of a name without a type.
pub(crate) fn many_untyped_runner<F, Fut>(
    job: &UntypedJob,
    jobs: ManyJobs,
    handler: F,
) -> Registered
where
    F: Fn(Vec<Ctx>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoManyResult> + Send + 'static,
{
    let run = move |attempts: Vec<Arc<Attempt>>| -> TransitionsFuture {
        let handler = handler.clone();
        Box::pin(async move {
            let contexts: Vec<Ctx> = attempts.iter().cloned().map(Ctx).collect();
            let call = async |contexts: Vec<Ctx>| {
                let jobs = contexts.len();
                handler(contexts).await.into_many_result(jobs)
            };
            let results = layer::run_many(contexts, call).await;
            let ends = attempts.iter().zip(results);
            ends.map(|(attempt, result)| transition(result, attempt, None)).collect()
        })
    };
    Registered { runner: Runner::Many { jobs, run: Box::new(run) }, run_limit: job.run_limit }
}

/// Completes each job without a call of the caller's code.
pub(crate) fn no_op_runner() -> Registered {
    let runner = Runner::One(Box::new(|_| Box::pin(async { Transition::Complete })));
    Registered { runner, run_limit: None }
}
