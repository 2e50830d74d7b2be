use std::convert::Infallible;

use leasehold::worker::{Next, WorkerBuilder};
use leasehold::{Ctx, Enqueue, EnqueueError, Job, JobResult, Leasehold};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "photo.resize")]
pub struct ResizePhoto {
    pub photo: i64,
}

/// The producer passes the context of its trace on with the job.
pub async fn enqueue(leasehold: &Leasehold, traceparent: &str) -> Result<(), EnqueueError> {
    ResizePhoto { photo: 7 }.draft()?.trace_context(traceparent).enqueue(leasehold).await?;
    Ok(())
}

/// The worker runs a handler in a span with the id, name, queue and attempt of the job.
pub async fn resize(job: ResizePhoto, ctx: Ctx) {
    tracing::info!(photo = job.photo, traceparent = ctx.trace_context(), "resizing");
}

/// A layer runs around every attempt: it sees errors, panics and kwargs that do not fit.
pub async fn report_errors(ctx: Ctx, next: Next) -> JobResult {
    let result = next.run(ctx.clone()).await;
    if let Err(error) = &result {
        tracing::warn!(name = ctx.name(), attempt = ctx.attempt(), %error, "an attempt failed");
    }
    result
}

pub fn worker(leasehold: &Leasehold) -> WorkerBuilder<()> {
    leasehold
        .worker()
        .layer(report_errors)
        .handle(resize)
        .on_finished(|job| async move {
            tracing::info!(name = job.name(), finished = ?job.finished(), "an attempt has ended");
            Ok::<_, Infallible>(())
        })
        .on_buried(|job| async move {
            tracing::error!(name = job.name(), cause = ?job.cause(), "a job is dead");
            Ok::<_, Infallible>(())
        })
}
