//! What a handler gets, and how the worker records its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::worker::{FromRef, JobTx};
use leasehold::{Ctx, Enqueue, Finished, Job, JobError, JobResult, Outcome, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::fixture::{completed, count, jobs, run, sql};
use crate::support::{Note, engine};

#[derive(Clone)]
struct Shop {
    sold: Arc<AtomicI64>,
    label: Label,
}

#[derive(Clone)]
struct Label(&'static str);

impl FromRef<Shop> for Label {
    fn from_ref(shop: &Shop) -> Self {
        shop.label.clone()
    }
}

/// A job with a policy of its own.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "careful", max_attempts = 2, backoff = "1ms..2ms", priority = 3)]
struct Careful {}

#[tokio::test(flavor = "multi_thread")]
async fn handler_gets_its_job_the_state_and_the_context() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let sold = Arc::new(AtomicI64::new(0));
    let shop = Shop { sold: Arc::clone(&sold), label: Label("ours") };
    let handler =
        async |job: Note, State(shop): State<Shop>, State(label): State<Label>, ctx: Ctx| {
            assert_eq!(
                (ctx.name(), ctx.queue(), ctx.tag(), ctx.attempt()),
                ("note", "default", "shop", 1)
            );
            assert_eq!((ctx.key(), ctx.max_attempts(), ctx.lost_count()), (Some("k7"), 4, 0));
            assert_eq!(label.0, "ours");
            shop.sold.fetch_add(job.n, Ordering::SeqCst);
        };
    let draft = Note { n: 7 }.draft().expect("a draft").tag("shop").key("k7").max_attempts(4);
    let id = draft.enqueue(&engine).await.expect("enqueued").id();
    let mut worker = run(engine.worker_with(shop).queue("default", 2).handle(handler));
    assert_eq!(worker.finished(1).await, [(id, Finished::Completed)]);
    assert_eq!(sold.load(Ordering::SeqCst), 7);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_a_job_transaction_are_visible_when_the_job_is_completed() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(&client, "create table ledger (n bigint)").await;
    let handler = async |job: Note, tx: JobTx| -> JobResult {
        tx.query_typed(
            "insert into ledger values ($1)",
            &[(&job.n, tokio_postgres::types::Type::INT8)],
        )
        .await?;
        if job.n == 2 {
            return Err(JobError::permanent("rolled back"));
        }
        Ok(tx.complete().await?)
    };
    let mut worker = run(engine.worker().queue("default", 2).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Completed);
    Note { n: 2 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Buried);
    assert_eq!(count(&client, "select sum(n) from ledger").await, 1);
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 0));
    worker.stop().await;
    // The lease of a job that ended in the handler's transaction does not stay open.
    assert_eq!(
        count(&client, "select count(*) from leasehold_internal.lease where ended_at is null")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn snoozed_job_waits_and_keeps_its_attempt() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Note| Outcome::Snooze(Duration::from_secs(600));
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Snoozed);
    let waiting = "select count(*) from leasehold.job where not held and attempts = 0 \
                   and scheduled_at between now() + interval '9 minutes' and now() + interval '11 minutes'";
    assert_eq!(count(&client, waiting).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handler_chooses_when_to_try_again() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler =
        async |_: Note| Outcome::Retry { after: Duration::from_secs(600), why: "busy".into() };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Retried);
    let waiting = "select count(*) from leasehold.job where not held and attempts = 1 and last_error = 'busy' \
                   and scheduled_at between now() + interval '9 minutes' and now() + interval '11 minutes'";
    assert_eq!(count(&client, waiting).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_keeps_failing_is_buried_with_its_last_error() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Careful, ctx: Ctx| -> JobResult {
        Err(JobError::retry(format!("attempt {} failed", ctx.attempt())))
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Careful {}.enqueue(&engine).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Retried, Finished::Buried]);
    let dead = "select count(*) from leasehold_internal.dead_job where cause = 'exhausted' and attempts = 2 \
                and last_error = 'attempt 2 failed' and priority = 3";
    assert_eq!(count(&client, dead).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_error_buries_at_once() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Note| -> JobResult { Err(JobError::permanent("no such user")) };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Buried);
    let dead = "select count(*) from leasehold_internal.dead_job where cause = 'rejected' and last_error = 'no such user'";
    assert_eq!(count(&client, dead).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_by_a_handler_moves_the_job_to_the_history() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Note| -> JobResult { Ok(Outcome::Cancel("not needed".into())) };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Cancelled);
    let filed = "select count(*) from leasehold_internal.history where outcome = 'cancelled' and note = 'not needed'";
    assert_eq!(count(&client, filed).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_handler_is_asked_to_stop_when_its_job_is_cancelled() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Note, ctx: Ctx| -> JobResult {
        Err(JobError::retry(format!("stopped: {:?}", ctx.stopped().await)))
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    worker.started(id).await;
    sql(&client, &format!("select leasehold.cancel({id}, 'test')")).await;
    assert_eq!(worker.next_end().await, Finished::Cancelled);
    assert_eq!(jobs(&client).await, 0);
    worker.stop().await;
}
