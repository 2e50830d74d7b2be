//! Handlers hold every pooled connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Ctx, Enqueue, JobResult, Leasehold, Outcome, State};
use leasehold_testing::TestDatabase;
use tokio::sync::Semaphore;

use crate::fixture::{completed, count, queue_settings, run, until};
use crate::support::Note;

type Shared = (Arc<Semaphore>, Arc<AtomicUsize>);

async fn hold_a_connection(_: Note, ctx: Ctx, State((gate, holding)): State<Shared>) -> JobResult {
    // The pool refuses a caller that waits too long, and the test may take longer.
    let _connection = loop {
        if let Ok(connection) = ctx.engine().pool().get().await {
            break connection;
        }
    };
    holding.fetch_add(1, Ordering::SeqCst);
    let _ = gate.acquire().await?;
    Ok(Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_handlers_that_hold_every_connection_keep_no_lease_from_being_renewed() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    // Long enough that a slow machine does not lose the lease.
    queue_settings(&client, "lease = '24 seconds'").await;
    engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
    let (gate, holding) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let state = (Arc::clone(&gate), Arc::clone(&holding));
    let mut worker = run(engine.worker_with(state).queue("default", 50).handle(hold_a_connection));
    let size = engine.pool().status().max_size;
    until("no connection is left", async || holding.load(Ordering::SeqCst) == size).await;
    assert!(size < 50, "the pool is smaller than the worker");
    worker.seen();
    worker.renewed(1).await;
    gate.add_permits(1000);
    worker.finished(50).await;
    // The pool is usable again, and nothing was lost or repeated.
    Note { n: 51 }.enqueue(&engine).await.expect("enqueued");
    worker.finished(1).await;
    worker.stop().await;
    assert_eq!(completed(&client).await, 51);
    assert_eq!(
        count(
            &client,
            "select coalesce(sum(cardinality(lost_ids)), 0) from leasehold_internal.lease"
        )
        .await,
        0
    );
    assert_eq!(
        count(
            &client,
            "select count(*) from leasehold_internal.history, unnest(attempts) a where a > 1"
        )
        .await,
        0
    );
}
