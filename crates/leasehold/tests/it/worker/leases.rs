//! Leases: kept while the worker lives, lost when they must be, and the loss noticed in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::events::Event;
use leasehold::worker::StopReason;
use leasehold::{Ctx, Enqueue, Finished, JobError, JobResult, State};
use leasehold_testing::TestDatabase;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::expire_leases;
use crate::fixture::{
    back_date_leases, completed, count, jobs, queue_settings, run, soon, sql, until,
};
use crate::support::{Note, engine, wait_for};

/// Waits for the gate.
async fn gated(_: Note, State(gate): State<Arc<Semaphore>>) {
    let _ = gate.acquire().await;
}

const ALL_IN_ONE_ATTEMPT: &str =
    "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
const HELD: &str = "select count(*) from leasehold.job where held";
/// Held jobs whose lease was prolonged since they were claimed.
const RENEWED: &str = "select count(*) from leasehold.job j join leasehold_internal.lease l using (lease_generation) \
     where j.held and l.ended_at is null and l.lease_expires_at > l.claimed_at + l.lease";
const LOSSES: &str = "select coalesce(sum(cardinality(lost_ids)), 0) from leasehold_internal.lease";

#[tokio::test(flavor = "multi_thread")]
async fn a10_jobs_that_wait_for_the_only_slot_lose_no_lease() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..100).map(|n| Note { n })).await.expect("enqueued");
    let gate = Arc::new(Semaphore::new(0));
    let mut worker = run(engine.worker_with(Arc::clone(&gate)).queue("default", 1).handle(gated));
    until("what runs is renewed", async || count(&client, RENEWED).await == 1).await;
    assert_eq!(count(&client, HELD).await, 1, "what waits is not claimed");
    gate.add_permits(1000);
    worker.finished(100).await;
    worker.stop().await;
    assert_eq!(count(&client, ALL_IN_ONE_ATTEMPT).await, 100);
    assert_eq!(count(&client, LOSSES).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_two_workers_of_one_name_do_not_share_leases() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let gate = Arc::new(Semaphore::new(0));
    let worker =
        || engine.worker_with(Arc::clone(&gate)).name("pod-1").queue("default", 1).handle(gated);
    let mut old = run(worker().without_housekeeping());
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let old_generation = old.started(id).await;
    assert_eq!(expire_leases(&client).await, 1);
    let mut new = run(worker());
    let new_generation = new.started(id).await;
    assert!(new_generation > old_generation);
    let holders = "select count(distinct claimed_by) from leasehold_internal.lease where claimed_by like 'pod-1/%'";
    assert_eq!(count(&client, holders).await, 2);
    // A late call of the old process.
    let late = format!("select leasehold.complete({id}, {old_generation})::int");
    assert_eq!(count(&client, &late).await, 0);
    gate.add_permits(10);
    assert_eq!(old.next_end().await, Finished::Lost);
    assert_eq!(new.next_end().await, Finished::Completed);
    old.stop().await;
    new.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a16_handlers_that_spin_on_every_thread_lose_no_lease() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..4).map(|n| Note { n })).await.expect("enqueued");
    let enough = Arc::new(AtomicBool::new(false));
    let handler = async |_: Note, State(enough): State<Arc<AtomicBool>>| {
        let limit = Instant::now() + Duration::from_secs(60);
        while !enough.load(Ordering::SeqCst) && Instant::now() < limit {
            // Keeps its thread; whether it burns the processor too makes no difference here.
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    let mut worker =
        run(engine.worker_with(Arc::clone(&enough)).queue("default", 4).handle(handler));
    // No timer of this runtime can fire now; the keeper's own thread wakes the test.
    wait_for(&mut worker.events, |event| match event {
        Event::Renewed { .. } => Some(()),
        Event::LeaseLost { .. } => panic!("a lease was lost"),
        _ => None,
    })
    .await;
    enough.store(true, Ordering::SeqCst);
    worker.finished(4).await;
    worker.stop().await;
    assert_eq!(count(&client, ALL_IN_ONE_ATTEMPT).await, 4);
    assert_eq!(count(&client, LOSSES).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_lease_that_ran_out_and_was_not_reclaimed_still_belongs_to_its_owner() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let gate = Arc::new(Semaphore::new(0));
    let worker = engine.worker_with(Arc::clone(&gate)).queue("default", 1).without_housekeeping();
    let mut worker = run(worker.handle(gated));
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    worker.started(id).await;
    back_date_leases(&client).await;
    gate.add_permits(1);
    assert_eq!(worker.finished(1).await, [(id, Finished::Completed)]);
    worker.stop().await;
    assert_eq!(count(&client, ALL_IN_ONE_ATTEMPT).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a5_handler_is_asked_to_stop_when_its_lease_was_reclaimed() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '15 seconds'").await;
    let (stops, mut reasons) = unbounded_channel();
    let handler =
        async |_: Note, ctx: Ctx, State(stops): State<UnboundedSender<StopReason>>| -> JobResult {
            let _ = stops.send(ctx.stopped().await);
            Err(JobError::permanent("a verdict that must not count"))
        };
    let mut worker =
        run(engine.worker_with(stops).queue("default", 1).without_housekeeping().handle(handler));
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let generation = worker.started(id).await;
    // The lease is lost by an expiry in the database, not by its age; the next renewal learns of it.
    sql(&client, "update leasehold_internal.queue set paused_at = now(), paused_by = 'test'").await;
    assert_eq!(expire_leases(&client).await, 1);
    assert_eq!(worker.lost_a_lease().await, generation);
    assert_eq!(soon(reasons.recv()).await, Some(StopReason::LeaseLost));
    assert_eq!(worker.next_end().await, Finished::Lost);
    worker.stop().await;
    assert_eq!(
        count(&client, "select count(*) from leasehold.job where not held and lost_count = 1")
            .await,
        1
    );
}
