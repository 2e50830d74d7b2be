//! The two parts of every service: one serves requests, one runs jobs.

use axum::Router;
use leasehold::Leasehold;
use leasehold::admin::WatchChange;
use leasehold::worker::WorkerBuilder;
use leasehold_http::server::{ServerLimits, serve_within};
use tokio::net::TcpListener;

use crate::exit::Failure;
use crate::run::{Service, Stopping};

/// The threshold of waiting jobs for an alarm, without those of bulk tags.
const MOST_WAITING: u32 = 10_000;

/// Watches a queue: an alarm is raised if no job completes in it, or too many wait. Thresholds that an
/// operator has set take precedence.
pub async fn watch(engine: &Leasehold, queue: &str, bulk_tags: &[&str]) -> Result<(), Failure> {
    let change =
        WatchChange::new().max_length(Some(MOST_WAITING)).bulk_tags(bulk_tags.iter().copied());
    engine.alarms().declare_watch(queue, &change, "leasehold serve").await?;
    Ok(())
}

/// Builds the service that serves requests. It sends canaries to its queue as long as it runs, if a
/// worker can complete them. `proxies`: the number of trusted proxies in front.
pub fn http_service(
    name: &'static str,
    base_url: &str,
    (engine, queue): (&Leasehold, Option<&str>),
    (router, listener): (Router, TcpListener),
    proxies: usize,
    stopping: &Stopping,
) -> Service {
    let (stop, immediate) = (stopping.clone(), stopping.clone());
    let canary = engine.canary(queue).run_until(stopping.clone().asked());
    Service::new(name, format!("{base_url}/"), async move {
        let limits = ServerLimits::behind(proxies);
        let serving = serve_within(listener, router, limits, stop.asked());
        let serving = async { tokio::join!(serving, canary) };
        tokio::select! {
            _ = serving => {}
            () = immediate.cut_short() => {}
        }
        Ok(())
    })
}

/// Builds the service that runs the jobs of a service.
pub fn working(
    name: &'static str,
    description: &'static str,
    worker: WorkerBuilder<impl Send + Sync + 'static>,
    stopping: &Stopping,
) -> Service {
    let (stop, immediate) = (stopping.clone(), stopping.clone());
    Service::new(name, description, async move {
        Ok(worker.run_with_shutdown(stop.asked(), immediate.cut_short()).await?)
    })
}
