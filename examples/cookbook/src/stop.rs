use std::time::Duration;

use leasehold::worker::WorkerBuilder;
use leasehold::{Ctx, Job, JobError, WorkerError};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

#[derive(Job, Serialize, Deserialize)]
#[job(name = "pages.crawl")]
pub struct CrawlPages {
    pub pages: u32,
}

/// A long handler stops between two pages, so that the next attempt starts soon.
pub async fn crawl(job: CrawlPages, ctx: Ctx) -> Result<(), JobError> {
    for page in 0..job.pages {
        if ctx.stop_reason().is_some() {
            return Err(JobError::retry(format!("stopped after {page} pages")));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Runs a worker beside a server: one token stops both. Handlers have 10 s to end; jobs that are
/// still running then are released and due at once.
pub async fn run(worker: WorkerBuilder<()>, stop: CancellationToken) -> Result<(), WorkerError> {
    worker.handle(crawl).grace(Duration::from_secs(10)).run_until(stop.cancelled()).await
}
