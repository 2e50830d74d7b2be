//! Handlers are plain async functions: the first argument selects the type of job, the others are
//! extracted from the worker's state and the attempt.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::context::{Attempt, Ctx};
use super::outcome::{IntoJobResult, JobError, JobResult, Outcome};
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
            eyre::Report, Box<dyn Error + Send + Sync> or an error that is Send, Sync and 'static"
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
pub struct ManyItem<J> {
    /// The job.
    pub job: J,
    /// The context of its attempt.
    pub ctx: Ctx,
}

/// An async function that runs many jobs of one type at once. It returns one result for all of them, or
/// one for each in order.
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
                Ok(()) => Ok(Outcome::Done),
                Err(error) => Err(JobError { text: error.text.clone(), ..*error }),
            })
            .collect()
    }
}

impl IntoManyResult for () {
    fn into_many_result(self, jobs: usize) -> Vec<JobResult> {
        Ok::<(), JobError>(()).into_many_result(jobs)
    }
}

/// One result per job, in the order of the batch.
impl IntoManyResult for Vec<JobResult> {
    fn into_many_result(mut self, jobs: usize) -> Vec<JobResult> {
        let given = self.len();
        self.resize_with(jobs, || {
            Err(JobError::retry(format!("the batch handler gave {given} answers for {jobs} jobs")))
        });
        self
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
    pub(crate) run_limit: Option<std::time::Duration>,
}

pub(crate) enum Runner {
    One(Box<dyn Fn(Arc<Attempt>) -> TransitionFuture + Send + Sync>),
    Many {
        most: usize,
        /// Jobs for whose priority this returns true are not passed together with others.
        apart: fn(i32) -> bool,
        run: Box<dyn Fn(Vec<Arc<Attempt>>) -> TransitionsFuture + Send + Sync>,
    },
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
            let job: H::Job = match decode(attempt.job.kwargs.as_slice()) {
                Ok(job) => job,
                Err(error) => return undecodable::<H::Job>(&attempt, &error, backoff),
            };
            let attempts = attempt.job.attempts;
            let result = handler.call(Ctx(Arc::clone(&attempt)), job, state).await;
            transition(result, attempts, backoff)
        })
    }));
    Registered { runner, run_limit }
}

pub(crate) fn many_runner<S, H, Args>(most: usize, handler: H, state: Arc<S>) -> Registered
where
    S: Send + Sync + 'static,
    H: ManyHandler<S, Args>,
{
    let Policy { backoff, run_limit, .. } = H::Job::policy();
    let run = move |attempts: Vec<Arc<Attempt>>| -> TransitionsFuture {
        let (handler, state) = (handler.clone(), Arc::clone(&state));
        Box::pin(async move {
            // Jobs whose arguments do not decode are judged here; the others go to the handler.
            let mut transitions: Vec<Option<Transition>> = Vec::with_capacity(attempts.len());
            let mut items = Vec::with_capacity(attempts.len());
            for attempt in &attempts {
                match decode(attempt.job.kwargs.as_slice()) {
                    Ok(job) => {
                        items.push(ManyItem { job, ctx: Ctx(Arc::clone(attempt)) });
                        transitions.push(None);
                    }
                    Err(error) => {
                        transitions.push(Some(undecodable::<H::Job>(attempt, &error, backoff)));
                    }
                }
            }
            let results =
                if items.is_empty() { Vec::new() } else { handler.call(items, state).await };
            let mut results = results.into_iter();
            attempts
                .iter()
                .zip(transitions)
                .map(|(attempt, judged)| match (judged, attempt.job.attempts) {
                    (Some(judged), _) => judged,
                    (None, attempts) => match results.next() {
                        Some(result) => transition(result, attempts, backoff),
                        None => transition(Err(JobError::retry("no answer")), attempts, backoff),
                    },
                })
                .collect()
        })
    };
    let runner = Runner::Many { most: most.max(1), apart: |_| false, run: Box::new(run) };
    Registered { runner, run_limit }
}

/// During a rolling deploy a worker of the former release may meet kwargs of the next one: the job waits for a
/// worker that can read them, and is dead after its last attempt.
fn undecodable<J: Job>(
    attempt: &Attempt,
    error: &serde_json::Error,
    backoff: Option<crate::job::Backoff>,
) -> Transition {
    let why = format!("the arguments do not fit {}: {error}", J::NAME);
    if attempt.job.attempts >= attempt.job.max_attempts {
        return Transition::Bury { cause: Cause::Undecodable, why };
    }
    transition(Err(JobError::retry(why)), attempt.job.attempts, backoff)
}

/// The wait of a job whose handler could not start.
const NOT_STARTED_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Maps the result of a handler to the end of its attempt.
fn transition(
    result: JobResult,
    attempts: i32,
    backoff: Option<crate::job::Backoff>,
) -> Transition {
    match result {
        Ok(Outcome::Done) => Transition::Complete,
        Ok(Outcome::Snooze(wait)) => Transition::Snooze { wait, why: None },
        Ok(Outcome::Retry { after, why }) => Transition::Retry { after: Some(after), why },
        Ok(Outcome::Cancel(why)) => Transition::Cancel { why },
        Err(JobError { text, permanent: true, .. }) => {
            Transition::Bury { cause: Cause::Rejected, why: text }
        }
        Err(JobError { not_started: true, text, .. }) => {
            let wait = NOT_STARTED_WAIT.mul_f64(rand::random_range(0.5..1.5));
            Transition::Snooze { wait, why: Some(text) }
        }
        Err(JobError { text, .. }) => {
            let after = backoff.map(|backoff| backoff.wait_after(attempts, rand::random()));
            Transition::Retry { after, why: text }
        }
    }
}

/// Registers a handler for a name without a type.
pub(crate) fn untyped_runner<F, Fut>(handler: F) -> Registered
where
    F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoJobResult> + Send + 'static,
{
    let runner = Runner::One(Box::new(move |attempt| {
        let handler = handler.clone();
        Box::pin(async move {
            let attempts = attempt.job.attempts;
            transition(handler(Ctx(attempt)).await.into_job_result(), attempts, None)
        })
    }));
    Registered { runner, run_limit: None }
}
