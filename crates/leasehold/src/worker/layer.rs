//! Layers: functions of the caller around each attempt.
//!
//! # Invariants
//! - The layer that was registered first is the outermost. The innermost calls the handler.
//! - A layer sees every end of an attempt as a [`JobResult`]: what the handler returned, kwargs that do not fit,
//!   an argument that could not be made, and panics, also those of the layers inside it.
//! - What the outermost layer returns is the result of the attempt. It is recorded under the fence of the claim
//!   like any other: a layer that turns a lost lease into a success completes nothing.
//! - Each attempt of a batch has its own layers, and the batch is handled at once when all of them have called
//!   [`Next::run`] or ended without it. Layers that wait for each other cannot block it: after `LINGER` the
//!   attempts that are there are handled without the others.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::context::Ctx;
use super::outcome::{IntoJobResult, JobError, JobResult};
use super::run::span;
use crate::job::{Generation, JobId};
use crate::service;

/// How long a part of a batch waits for attempts whose layers have not called the handler yet.
const LINGER: Duration = Duration::from_millis(50);

type Layer = Arc<dyn Fn(Ctx, Next) -> BoxFuture<'static, JobResult> + Send + Sync>;
type Inner = Box<dyn FnOnce(Ctx) -> BoxFuture<'static, JobResult> + Send>;

/// The layers of a worker, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct Layers(Vec<Layer>);

impl Layers {
    /// Returns the layers for the attempts to share; `None` if there are none.
    pub(super) fn shared(self) -> Option<Arc<Self>> {
        (!self.0.is_empty()).then(|| Arc::new(self))
    }

    pub(super) fn add<F, Fut>(&mut self, layer: F)
    where
        F: Fn(Ctx, Next) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoJobResult> + Send + 'static,
    {
        let layer = Arc::new(layer);
        self.0.push(Arc::new(move |ctx, next| {
            let layer = Arc::clone(&layer);
            // The call itself is inside the future, so that its panic is contained too.
            async move { layer(ctx, next).await.into_job_result() }.boxed()
        }));
    }
}

/// The rest of an attempt: the layers inside, and the handler.
#[must_use = "without `run` the handler is not called"]
pub struct Next {
    layers: Arc<Layers>,
    /// How many layers are outside.
    depth: usize,
    handler: Inner,
    fence: (JobId, Generation),
}

impl Next {
    fn new(layers: &Arc<Layers>, ctx: &Ctx, handler: Inner) -> Self {
        let fence = (ctx.id(), ctx.generation());
        Self { layers: Arc::clone(layers), depth: 0, handler, fence }
    }

    /// Calls the handler, through the layers inside. `ctx` is the context that the layer got: that of another
    /// attempt is an error, because its fence would not protect this job.
    pub async fn run(mut self, ctx: Ctx) -> JobResult {
        if (ctx.id(), ctx.generation()) != self.fence {
            let why = "a layer passed the context of another attempt; pass the one that it got";
            return Err(JobError::retry(why));
        }
        match self.layers.0.get(self.depth).cloned() {
            Some(layer) => {
                self.depth += 1;
                let running = AssertUnwindSafe(layer(ctx, self)).catch_unwind();
                running.await.unwrap_or_else(|panic| {
                    let text = service::panic_text(&*panic);
                    Err(JobError::retry(format!("a layer panicked: {text}")))
                })
            }
            None => {
                let running = AssertUnwindSafe((self.handler)(ctx)).catch_unwind();
                running.await.unwrap_or_else(|panic| Err(JobError::from_panic(&*panic)))
            }
        }
    }
}

/// Runs one attempt: its layers, and `handler` inside them.
pub(super) async fn run_one<F, Fut>(ctx: Ctx, handler: F) -> JobResult
where
    F: FnOnce(Ctx) -> Fut + Send + 'static,
    Fut: Future<Output = JobResult> + Send + 'static,
{
    match &ctx.0.shared.layers {
        // The usual case: no second box.
        None => handler(ctx).await,
        Some(layers) => {
            let handler: Inner = Box::new(|ctx| handler(ctx).boxed());
            Next::new(layers, &ctx, handler).run(ctx).await
        }
    }
}

/// An attempt whose layers have called the handler.
struct Arrival {
    index: usize,
    ctx: Ctx,
    reply: oneshot::Sender<JobResult>,
}

/// Runs the attempts of a batch: each in its own layers, and `handler` for all that its layers let through.
/// `handler` returns one result per context, in order.
pub(super) async fn run_many<F, Fut>(attempts: Vec<Ctx>, handler: F) -> Vec<JobResult>
where
    F: Fn(Vec<Ctx>) -> Fut + Send + Sync,
    Fut: Future<Output = Vec<JobResult>> + Send,
{
    let Some(layers) = attempts.first().and_then(|ctx| ctx.0.shared.layers.clone()) else {
        return handler(attempts).await;
    };
    let mut batch = Batch::new(attempts.len());
    let (arrive, mut arrivals) = mpsc::unbounded_channel::<Arrival>();
    let mut layered: FuturesUnordered<_> = attempts
        .into_iter()
        .enumerate()
        .map(|(index, ctx)| {
            let (arrive, span) = (arrive.clone(), span(&ctx.0));
            let next = Next::new(&layers, &ctx, Box::new(move |ctx| join(arrive, index, ctx)));
            async move { (index, next.run(ctx).await) }.instrument(span)
        })
        .collect();
    let mut handling = FuturesUnordered::new();
    // When every layer has ended, every attempt has its result. A part of the batch that the handler still
    // runs then is abandoned: no layer waits for it.
    while !layered.is_empty() {
        while let Ok(arrival) = arrivals.try_recv() {
            batch.arrived(arrival);
        }
        if let Some(part) = batch.take_due(Instant::now()) {
            handling.push(handle(part, &handler));
        }
        tokio::select! {
            Some(arrival) = arrivals.recv() => batch.arrived(arrival),
            Some((index, result)) = layered.next() => batch.ended(index, result),
            Some(()) = handling.next(), if !handling.is_empty() => {}
            () = tokio::time::sleep_until(batch.due_at.into()), if !batch.waiting.is_empty() => {}
        }
    }
    let missing = || Err(JobError::retry("the layers of this attempt gave no result"));
    batch.results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

/// The attempts of a batch between their layers and its handler.
struct Batch {
    results: Vec<Option<JobResult>>,
    /// Attempts that have neither called the handler nor ended without it.
    outside: HashSet<usize>,
    waiting: Vec<Arrival>,
    /// When those that wait are handled without the others.
    due_at: Instant,
}

impl Batch {
    fn new(count: usize) -> Self {
        Self {
            results: (0..count).map(|_| None).collect(),
            outside: (0..count).collect(),
            waiting: Vec::new(),
            due_at: Instant::now(),
        }
    }

    fn arrived(&mut self, arrival: Arrival) {
        if self.waiting.is_empty() {
            self.due_at = Instant::now() + LINGER;
        }
        self.outside.remove(&arrival.index);
        self.waiting.push(arrival);
    }

    fn ended(&mut self, index: usize, result: JobResult) {
        self.outside.remove(&index);
        if let Some(kept) = self.results.get_mut(index) {
            *kept = Some(result);
        }
    }

    /// Returns the attempts to handle now.
    fn take_due(&mut self, now: Instant) -> Option<Vec<Arrival>> {
        let is_due = self.outside.is_empty() || now >= self.due_at;
        if !is_due || self.waiting.is_empty() {
            return None;
        }
        let mut part = std::mem::take(&mut self.waiting);
        // In the order in which they were claimed, not in the order in which their layers called.
        part.sort_unstable_by_key(|arrival| arrival.index);
        Some(part)
    }
}

/// Submits an attempt to the handler of its batch, and waits for its result.
fn join(
    arrive: mpsc::UnboundedSender<Arrival>,
    index: usize,
    ctx: Ctx,
) -> BoxFuture<'static, JobResult> {
    let (reply, result) = oneshot::channel();
    // The receiver lives until the last of these futures has ended.
    let _ = arrive.send(Arrival { index, ctx, reply });
    async move { result.await.unwrap_or_else(|_| Err(JobError::retry("the batch has ended"))) }
        .boxed()
}

/// Calls the handler for a part of a batch, and passes each result to its layers.
async fn handle<Fut>(part: Vec<Arrival>, handler: &(impl Fn(Vec<Ctx>) -> Fut + Sync))
where
    Fut: Future<Output = Vec<JobResult>> + Send,
{
    let (contexts, replies): (Vec<_>, Vec<_>) =
        part.into_iter().map(|Arrival { ctx, reply, .. }| (ctx, reply)).unzip();
    let handled = AssertUnwindSafe(async { handler(contexts).await }).catch_unwind().await;
    match handled {
        Ok(results) => {
            for (reply, result) in replies.into_iter().zip(results) {
                // A layer that has ended meanwhile needs no result.
                let _ = reply.send(result);
            }
        }
        Err(panic) => {
            let error = JobError::from_panic(&*panic);
            for reply in replies {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
