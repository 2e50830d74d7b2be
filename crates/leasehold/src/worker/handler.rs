//! Handlers are plain async functions: the first argument picks the kind of job, the others are
//! taken from the worker's state and the attempt.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::context::{Attempt, Ctx};
use super::outcome::{IntoJobResult, JobError, JobResult, Outcome};
use crate::job::{Job, Policy};
use crate::queue::finish::Verdict;

/// Something a handler can ask for beside its job: [`Ctx`], [`State`], [`super::JobTx`].
pub trait FromAttempt<S>: Sized + Send {
    fn from_attempt(ctx: &Ctx, state: &S) -> impl Future<Output = Result<Self, JobError>> + Send;
}

/// A part of the worker's state.
#[derive(Clone, Debug)]
pub struct State<T>(pub T);

/// How a part is found in the whole. Every state is a part of itself.
pub trait FromRef<S> {
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

/// An async function that runs jobs of one kind.
#[diagnostic::on_unimplemented(
    message = "this function is not a job handler",
    note = "a handler is an async function whose first argument is the job (a struct with #[derive(Job)]), \
            followed by at most three of State<T>, Ctx and JobTx, \
            and that returns (), Outcome, Result<(), JobError> or JobResult"
)]
pub trait Handler<S, Args>: Clone + Send + Sync + 'static {
    type Job: Job;
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
pub struct BatchItem<J> {
    pub job: J,
    pub ctx: Ctx,
}

/// An async function that runs many jobs of one kind at once. It answers for all of them, or for
/// each in turn.
pub trait BatchHandler<S, Args>: Clone + Send + Sync + 'static {
    type Job: Job;
    fn call(
        self,
        items: Vec<BatchItem<Self::Job>>,
        state: Arc<S>,
    ) -> impl Future<Output = Vec<JobResult>> + Send;
}

/// What a batch handler may return.
pub trait IntoBatchResult {
    fn into_batch_result(self, jobs: usize) -> Vec<JobResult>;
}

/// One answer for all.
impl IntoBatchResult for Result<(), JobError> {
    fn into_batch_result(self, jobs: usize) -> Vec<JobResult> {
        (0..jobs)
            .map(|_| match &self {
                Ok(()) => Ok(Outcome::Done),
                Err(error) => {
                    Err(JobError { text: error.text.clone(), permanent: error.permanent })
                }
            })
            .collect()
    }
}

/// An answer for each job, in the order of the batch.
impl IntoBatchResult for Vec<JobResult> {
    fn into_batch_result(mut self, jobs: usize) -> Vec<JobResult> {
        let given = self.len();
        self.resize_with(jobs, || {
            Err(JobError::retry(format!("the batch handler gave {given} answers for {jobs} jobs")))
        });
        self
    }
}

impl<S, F, Fut, R, J> BatchHandler<S, (J,)> for F
where
    S: Send + Sync + 'static,
    F: Fn(Vec<BatchItem<J>>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoBatchResult,
    J: Job,
{
    type Job = J;
    async fn call(self, items: Vec<BatchItem<J>>, _: Arc<S>) -> Vec<JobResult> {
        let jobs = items.len();
        self(items).await.into_batch_result(jobs)
    }
}

impl<S, F, Fut, R, J, T> BatchHandler<S, (J, State<T>)> for F
where
    S: Send + Sync + 'static,
    T: FromRef<S> + Send,
    F: Fn(Vec<BatchItem<J>>, State<T>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoBatchResult,
    J: Job,
{
    type Job = J;
    async fn call(self, items: Vec<BatchItem<J>>, state: Arc<S>) -> Vec<JobResult> {
        let jobs = items.len();
        self(items, State(T::from_ref(&state))).await.into_batch_result(jobs)
    }
}

pub(crate) type VerdictFuture = Pin<Box<dyn Future<Output = Verdict> + Send>>;
pub(crate) type VerdictsFuture = Pin<Box<dyn Future<Output = Vec<Verdict>> + Send>>;

/// A handler whose types are forgotten, with what its kind says about running.
pub(crate) struct Registered {
    pub(crate) runner: Runner,
    pub(crate) run_limit: Option<std::time::Duration>,
}

pub(crate) enum Runner {
    One(Box<dyn Fn(Arc<Attempt>) -> VerdictFuture + Send + Sync>),
    Many {
        most: usize,
        /// Jobs of priorities for which this is true are not given together with others.
        apart: fn(i32) -> bool,
        run: Box<dyn Fn(Vec<Arc<Attempt>>) -> VerdictsFuture + Send + Sync>,
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
            let job: H::Job = match serde_json::from_slice(attempt.job.kwargs.as_slice()) {
                Ok(job) => job,
                Err(error) => return undecodable::<H::Job>(&error),
            };
            let attempts = attempt.job.attempts;
            let result = handler.call(Ctx(Arc::clone(&attempt)), job, state).await;
            verdict(result, attempts, backoff)
        })
    }));
    Registered { runner, run_limit }
}

pub(crate) fn batch_runner<S, H, Args>(most: usize, handler: H, state: Arc<S>) -> Registered
where
    S: Send + Sync + 'static,
    H: BatchHandler<S, Args>,
{
    let Policy { backoff, run_limit, .. } = H::Job::policy();
    let run = move |attempts: Vec<Arc<Attempt>>| -> VerdictsFuture {
        let (handler, state) = (handler.clone(), Arc::clone(&state));
        Box::pin(async move {
            // Jobs whose arguments do not fit are judged here; the others go to the handler.
            let mut verdicts: Vec<Option<Verdict>> = Vec::with_capacity(attempts.len());
            let mut items = Vec::with_capacity(attempts.len());
            for attempt in &attempts {
                match serde_json::from_slice(attempt.job.kwargs.as_slice()) {
                    Ok(job) => {
                        items.push(BatchItem { job, ctx: Ctx(Arc::clone(attempt)) });
                        verdicts.push(None);
                    }
                    Err(error) => verdicts.push(Some(undecodable::<H::Job>(&error))),
                }
            }
            let results =
                if items.is_empty() { Vec::new() } else { handler.call(items, state).await };
            let mut results = results.into_iter();
            attempts
                .iter()
                .zip(verdicts)
                .map(|(attempt, judged)| match (judged, attempt.job.attempts) {
                    (Some(judged), _) => judged,
                    (None, attempts) => match results.next() {
                        Some(result) => verdict(result, attempts, backoff),
                        None => verdict(Err(JobError::retry("no answer")), attempts, backoff),
                    },
                })
                .collect()
        })
    };
    let runner = Runner::Many { most: most.max(1), apart: |_| false, run: Box::new(run) };
    Registered { runner, run_limit }
}

fn undecodable<J: Job>(error: &serde_json::Error) -> Verdict {
    let why = format!("the arguments do not fit {}: {error}", J::NAME);
    Verdict::Bury { cause: "undecodable", why }
}

/// From what the handler said to what becomes of the job.
fn verdict(result: JobResult, attempts: i32, backoff: Option<crate::job::Backoff>) -> Verdict {
    match result {
        Ok(Outcome::Done) => Verdict::Complete,
        Ok(Outcome::Snooze(wait)) => Verdict::Snooze { wait },
        Ok(Outcome::Retry { after, why }) => Verdict::Retry { after: Some(after), why },
        Ok(Outcome::Cancel(why)) => Verdict::Cancel { why },
        Err(JobError { text, permanent: true }) => Verdict::Bury { cause: "refused", why: text },
        Err(JobError { text, permanent: false }) => {
            let after = backoff.map(|backoff| backoff.wait_after(attempts, rand::random()));
            Verdict::Retry { after, why: text }
        }
    }
}

/// A handler for a name without a type.
pub(crate) fn untyped_runner<F, Fut>(handler: F) -> Registered
where
    F: Fn(Ctx) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = JobResult> + Send + 'static,
{
    let runner = Runner::One(Box::new(move |attempt| {
        let handler = handler.clone();
        Box::pin(async move {
            let attempts = attempt.job.attempts;
            verdict(handler(Ctx(attempt)).await, attempts, None)
        })
    }));
    Registered { runner, run_limit: None }
}
