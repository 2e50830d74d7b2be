//! What runs first, and which jobs a worker finds behind its cursor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::events::Event;
use leasehold::{Ctx, Enqueue, JobId, Leasehold, State};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::fixture::{Running, completed, count, run, sql, until};
use crate::support::{Note, engine, wait_for};

async fn enqueue_with_priority(engine: &Leasehold, n: i64, priority: i32) -> JobId {
    let draft = Note { n }.draft().expect("a draft").priority(priority);
    draft.enqueue(engine).await.expect("enqueued").id()
}

/// Waits until a job is done. Reads its row: a receiver that falls behind a busy worker misses events.
async fn done(client: &Client, id: JobId) {
    let left = format!("select count(*) from leasehold.job where id = {id}");
    until("the job is done", async || count(client, &left).await == 0).await;
}

async fn starts(worker: &mut Running, many: usize) -> Vec<JobId> {
    let mut order = Vec::new();
    wait_for(&mut worker.events, |event| {
        if let Event::Started { job, .. } = event {
            order.push(*job);
        }
        (order.len() == many).then_some(())
    })
    .await;
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_by_priority_then_by_due_time() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let mut expected = Vec::new();
    for (n, priority) in [5, 1, 3, 1, -2, 5].into_iter().enumerate() {
        let id = enqueue_with_priority(&engine, n as i64, priority).await;
        expected.push((priority, id));
    }
    // Stable. Ids are not in this order: each connection draws its own.
    expected.sort_by_key(|job| job.0);
    let mut worker = run(engine.worker().queue("default", 1).handle(async |_: Note| {}));
    let order = starts(&mut worker, 6).await;
    assert_eq!(order, expected.into_iter().map(|job| job.1).collect::<Vec<_>>());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_job_runs_at_its_due_time_and_not_before() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let draft = Note { n: 1 }.draft().expect("a draft").run_after(Duration::from_secs(3600));
    let delayed = draft.enqueue(&engine).await.expect("enqueued").id();
    let prompt = Note { n: 2 }.enqueue(&engine).await.expect("enqueued").id();
    let mut worker = run(engine.worker().queue("default", 4).handle(async |_: Note| {}));
    assert_eq!(worker.finished(1).await[0].0, prompt);
    assert_eq!(count(&client, "select count(*) from leasehold.job where attempts = 0").await, 1);
    sql(&client, "update leasehold.job set scheduled_at = now()").await;
    assert_eq!(worker.finished(1).await[0].0, delayed);
    worker.stop().await;
}

/// Keeps a worker busy: each job enqueues the next, until the test ends the chain.
async fn chain(job: Note, ctx: Ctx, State(running): State<Arc<AtomicBool>>) {
    if job.n == 0 && running.load(Ordering::SeqCst) {
        Note { n: 0 }.enqueue(ctx.engine()).await.expect("enqueued");
    }
}

/// Starts a worker that always finds new work at its cursor.
async fn busy_worker(engine: &Leasehold, chains: i64) -> (Running, Arc<AtomicBool>) {
    let running = Arc::new(AtomicBool::new(true));
    engine.enqueue_many((0..chains).map(|_| Note { n: 0 })).await.expect("enqueued");
    let worker = engine.worker_with(Arc::clone(&running)).queue("default", 4).handle(chain);
    let mut worker = run(worker);
    worker.finished(50).await;
    (worker, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_worker_finds_the_job_of_a_producer_that_committed_late() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    // It takes its place in the order before all others, and commits after them.
    let mut client = database.connect_directly().await;
    let transaction = client.transaction().await.expect("a transaction");
    let late = Note { n: 1 }.enqueue(&transaction).await.expect("enqueued").id();
    let (worker, running) = busy_worker(&engine, 8).await;
    transaction.commit().await.expect("committed");
    done(&client, late).await;
    running.store(false, Ordering::SeqCst);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_worker_finds_other_priorities_and_jobs_before_its_cursor() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // One slot is left, so that jobs that are due later or less urgent get their turn, too.
    let (worker, running) = busy_worker(&engine, 3).await;
    for priority in [-7, 7] {
        let id = enqueue_with_priority(&engine, 1, priority).await;
        done(&client, id).await;
    }
    // Like a job that another worker released: due since yesterday.
    let given_back = "select (leasehold.enqueue('note', '{\"n\": 1}', scheduled_at => now() - interval '1 day')).job_id";
    let id = JobId(count(&client, given_back).await);
    done(&client, id).await;
    running.store(false, Ordering::SeqCst);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_that_is_due_runs_although_newer_jobs_have_run() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |job: Note, ctx: Ctx| -> leasehold::JobResult {
        if job.n == 1 && ctx.attempt() == 1 {
            return Ok(leasehold::Outcome::Retry {
                after: Duration::from_secs(3600),
                why: "later".into(),
            });
        }
        Ok(leasehold::Outcome::Complete)
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    worker.finished(1).await;
    engine.enqueue_many((2..50).map(|n| Note { n })).await.expect("enqueued");
    worker.finished(48).await;
    // Due before all that have run since.
    sql(&client, "update leasehold.job set scheduled_at = enqueued_at").await;
    worker.finished(1).await;
    assert_eq!(completed(&client).await, 49);
    worker.stop().await;
}
