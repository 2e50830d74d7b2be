//! The parts that every service has: one answers requests, one works.

use axum::Router;
use leasehold::Leasehold;
use leasehold::worker::WorkerBuilder;
use tokio::net::TcpListener;
use tokio_postgres::types::{ToSql, Type};

use crate::dev::services::{Service, Stopping};
use crate::exit::Failure;

/// The most jobs that wait before somebody is told, without those of bulk tags.
const MOST_WAITING: i64 = 10_000;

/// Has a queue watched: an alarm is raised when nothing gets done in it, or too much waits. What a
/// person has said about the queue goes before this.
pub async fn watch(engine: &Leasehold, queue: &str, bulk_tags: &[&str]) -> Result<(), Failure> {
    let client = engine.pool().get().await.map_err(Failure::failed)?;
    let sql = "select leasehold.watch_queue($1, 'leasehold serve', true, of_max_length => $2, \
               of_bulk_tags => $3)";
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&queue, Type::TEXT), (&MOST_WAITING, Type::INT8), (&bulk_tags, Type::TEXT_ARRAY)];
    client.query_typed(sql, &params).await?;
    Ok(())
}

/// The part that answers requests. As long as something can be made here, its queue hears of it, if
/// there is somebody to take what is in it.
pub fn answering(
    name: &'static str,
    base_url: &str,
    (engine, queue): (&Leasehold, Option<&str>),
    (router, listener): (Router, TcpListener),
    stopping: &Stopping,
) -> Service {
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    let canary = engine.canary(queue).run_until(stopping.clone().asked());
    Service::new(name, format!("{base_url}/"), async move {
        let serving = leasehold_http::server::serve(listener, router, stop.asked());
        let serving = async { tokio::join!(serving, canary) };
        tokio::select! {
            _ = serving => {}
            () = hurry.hurried() => {}
        }
        Ok(())
    })
}

/// The part that does the jobs of a service.
pub fn working(
    name: &'static str,
    says: &'static str,
    worker: WorkerBuilder<impl Send + Sync + 'static>,
    stopping: &Stopping,
) -> Service {
    let (stop, hurry) = (stopping.clone(), stopping.clone());
    Service::new(name, says, async move {
        Ok(worker.run_until_or_hurry(stop.asked(), hurry.hurried()).await?)
    })
}
