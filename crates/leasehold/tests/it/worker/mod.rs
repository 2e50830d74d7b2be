//! The claim → run → finish loop.

mod abandoned;
mod ahead;
mod alone;
mod batches;
mod connections;
mod defer;
mod handlers;
mod hooks;
mod isolation;
mod layers;
mod leases;
mod limits;
mod once;
mod order;
mod paused;
mod refused;
mod returns;
mod schedules;
mod services;
mod settings;
mod stopping;
mod texts;
mod transactions;
mod warnings;

use leasehold::{Enqueue, Finished};
use leasehold_testing::TestDatabase;
use tokio::sync::oneshot;
use tokio_postgres::Client;

use crate::fixture::number;
use crate::support::{Note, engine, finished};

/// Takes the jobs of every open lease away, as if their workers had been silent for an hour. In one
/// transaction: a renewal must not slip in between. Returns the number of jobs that went back.
async fn expire_leases(client: &Client) -> i64 {
    let text = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour' \
                 where ended_at is null; \
                select returned from leasehold_internal.reclaim_leases()";
    number(client, text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn job_runs_and_leaves_the_table() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    for n in 0..10 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
    }
    let worker = engine.worker().queue("default", 4).handle(async |_: Note| {});
    let mut events = worker.events().subscribe();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    let done = finished(&mut events, 10).await;
    assert!(done.iter().all(|(_, outcome)| *outcome == Finished::Completed));
    drop(stop);
    running.await.expect("no panic").expect("a clean stop");
    let client = database.connect().await;
    let left: i64 =
        client.query_one("select count(*) from leasehold.job", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    let done: i64 = client
        .query_one("select count(*) from leasehold.jobs where state = 'completed'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(done, 10);
}
