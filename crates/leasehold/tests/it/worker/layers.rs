//! Layers around attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::worker::{ManyItem, Next};
use leasehold::{
    Ctx, Enqueue, Finished, FinishedCounts, Job, JobError, JobResult, Leasehold, Outcome, State,
};
use leasehold_testing::TestDatabase;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;

use super::expire_leases;
use crate::fixture::{completed, count, jobs, run, soon, sql};
use crate::support::engine;

/// A job that does not return while a test looks.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter", backoff = "1h..1h")]
struct Letter {
    n: i64,
}

type Trail = Arc<Mutex<Vec<String>>>;

async fn enqueue(engine: &Leasehold, letters: impl IntoIterator<Item = i64>) {
    for n in letters {
        Letter { n }.enqueue(engine).await.expect("enqueued");
    }
}

/// Returns a layer that notes when it begins and how the attempt ended.
fn note(
    trail: &Trail,
    name: &'static str,
) -> impl Fn(Ctx, Next) -> futures_util::future::BoxFuture<'static, JobResult> + use<> {
    let trail = Arc::clone(trail);
    move |ctx, next| {
        let trail = Arc::clone(&trail);
        Box::pin(async move {
            trail.lock().push(format!("{name} begins"));
            let result = next.run(ctx).await;
            trail.lock().push(match &result {
                Ok(outcome) => format!("{name} sees {outcome:?}"),
                Err(error) => format!("{name} sees {error}"),
            });
            result
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_nest_in_the_order_of_their_registration() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    enqueue(&engine, [1]).await;
    let trail = Trail::default();
    let handler = async |_: Letter, State(trail): State<Trail>| {
        trail.lock().push("the handler runs".to_owned());
    };
    let worker = engine.worker_with(Arc::clone(&trail)).layer(note(&trail, "outer"));
    let worker = worker.handle(handler).layer(note(&trail, "inner"));
    worker.run_until_idle().await.expect("a worker");
    let expected = [
        "outer begins",
        "inner begins",
        "the handler runs",
        "inner sees Complete",
        "outer sees Complete",
    ];
    assert_eq!(*trail.lock(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_sees_the_context_of_its_attempt() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let draft = Letter { n: 7 }.draft().expect("a draft").trace_context(trace);
    let id = draft.enqueue(&engine).await.expect("enqueued").id();
    let (seen, mut contexts) = unbounded_channel();
    let worker = engine.worker().handle(async |_: Letter| {}).layer(move |ctx, next| {
        let _ = seen.send(ctx.clone());
        next.run(ctx)
    });
    worker.run_until_idle().await.expect("a worker");
    let ctx = contexts.try_recv().expect("a call");
    assert_eq!((ctx.id(), ctx.name(), ctx.queue(), ctx.attempt()), (id, "letter", "default", 1));
    assert_eq!((ctx.kwargs(), ctx.trace_context()), (&b"{\"n\": 7}"[..], Some(trace)));
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_sees_an_error_a_panic_and_kwargs_that_do_not_fit() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue(&engine, [1, 2]).await;
    sql(&client, "insert into leasehold.job (name, kwargs) values ('letter', '{\"n\": \"x\"}')")
        .await;
    let trail = Trail::default();
    let handler = async |job: Letter| -> Result<(), &'static str> {
        assert_eq!(job.n, 1, "the wrong number");
        Err("no stamp")
    };
    let worker = engine.worker().queue("default", 1).handle(handler).layer(note(&trail, "layer"));
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Retried, 3)]));
    let trail = trail.lock().join("\n");
    for text in
        ["sees no stamp", "sees the handler panicked: ", "sees the kwargs do not fit letter"]
    {
        assert!(trail.contains(text), "{text:?} is not in:\n{trail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_in_a_layer_reaches_the_layers_outside_as_an_error() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue(&engine, [1]).await;
    let trail = Trail::default();
    let worker = engine
        .worker()
        .handle(async |_: Letter| {})
        .layer(note(&trail, "outer"))
        .layer(async |_, _| -> JobResult { panic!("out of ink") });
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Retried, 1)]));
    assert_eq!(*trail.lock(), ["outer begins", "outer sees a layer panicked: out of ink"]);
    let failed =
        "select count(*) from leasehold.job where last_error = 'a layer panicked: out of ink'";
    assert_eq!(count(&client, failed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_that_does_not_call_the_handler_decides_the_outcome() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    enqueue(&engine, [1]).await;
    let worker = engine
        .worker()
        .handle(async |_: Letter| -> () { panic!("the handler runs") })
        .layer(async |_, _| Outcome::Cancel("not in this country".to_owned()));
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Cancelled, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_can_turn_an_error_into_a_permanent_one() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue(&engine, [1]).await;
    let worker = engine
        .worker()
        .handle(async |_: Letter| Err::<(), _>("no such street"))
        .layer(async |ctx: Ctx, next: Next| next.run(ctx).await.map_err(JobError::permanent));
    worker.run_until_idle().await.expect("a worker");
    let dead = "select count(*) from leasehold_internal.dead_job \
                 where cause = 'rejected' and last_error = 'no such street'";
    assert_eq!(count(&client, dead).await, 1);
}

/// Reports every attempt as done.
async fn always_done(ctx: Ctx, next: Next) -> Outcome {
    drop(next.run(ctx).await);
    Outcome::Complete
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_cannot_complete_a_job_whose_lease_was_lost() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Letter, State(gate): State<Arc<Semaphore>>| {
        drop(gate.acquire().await);
    };
    let gate = Arc::new(Semaphore::new(0));
    let worker = engine.worker_with(Arc::clone(&gate)).without_housekeeping();
    let mut worker = run(worker.queue("default", 1).handle(handler).layer(always_done));
    let id = Letter { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let first = worker.started(id).await;
    sql(&client, "select leasehold.pause('default', 'test', 'so that it is not claimed again')")
        .await;
    assert_eq!(expire_leases(&client).await, 1);
    gate.add_permits(1);
    assert_eq!(worker.end_of(first).await, Finished::Lost);
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_cannot_hide_a_completion_that_failed() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue(&engine, [1]).await;
    let handler = async |_: Letter, ctx: Ctx| -> JobResult {
        let mut session = ctx.engine().pool().get().await?;
        let transaction = session.transaction().await?;
        // The error aborts the transaction, and the completion fails in it.
        drop(transaction.batch_execute("select 1 / 0").await);
        ctx.complete_in(&transaction).await?;
        Ok(Outcome::Complete)
    };
    let worker = engine.worker().handle(handler).layer(always_done);
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Retried, 1)]));
    assert_eq!(completed(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn layer_that_passes_the_context_of_another_attempt_fails_its_own() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue(&engine, [1, 2]).await;
    let first: Arc<Mutex<Option<Ctx>>> = Arc::default();
    let worker = engine.worker().queue("default", 1).handle(async |_: Letter| {});
    let worker = worker.layer(move |ctx, next| {
        let first = first.lock().get_or_insert(ctx).clone();
        next.run(first)
    });
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Completed, 1), (Finished::Retried, 1)]));
    let failed =
        "select count(*) from leasehold.job where last_error like '%context of another attempt%'";
    assert_eq!(count(&client, failed).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn value_of_a_layer_reaches_the_handler_of_its_attempt() {
    struct Tenant(i64);
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    enqueue(&engine, 0..10).await;
    let handler = async |job: Letter, ctx: Ctx| {
        assert_eq!(ctx.get::<Tenant>().map(|tenant| tenant.0), Some(job.n * 10));
        assert!(ctx.get::<String>().is_none(), "no value of another type");
    };
    let worker = engine.worker().queue("default", 10).handle(handler);
    let worker = worker.layer(async |ctx: Ctx, next: Next| -> JobResult {
        let letter: Letter = serde_json::from_slice(ctx.kwargs())?;
        ctx.insert(Tenant(letter.n * 10));
        next.run(ctx).await
    });
    let counts = worker.run_until_idle().await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Completed, 10)]));
}

/// The numbers of the letters of each call, in order.
type Calls = Arc<Mutex<Vec<Vec<i64>>>>;

async fn take_batch(letters: Vec<ManyItem<Letter>>, State(calls): State<Calls>) -> Vec<JobResult> {
    calls.lock().push(letters.iter().map(|letter| letter.job.n).collect());
    let result = |letter: ManyItem<Letter>| match letter.job.n {
        3 => Err(JobError::permanent("three")),
        _ => Ok(Outcome::Complete),
    };
    letters.into_iter().map(result).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_of_a_batch_has_its_own_layers_and_the_handler_runs_once() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    engine.enqueue_many((0..5).map(|n| Letter { n })).await.expect("enqueued");
    let (calls, seen): (Calls, Calls) = Default::default();
    let (worker, noted) = (engine.worker_with(Arc::clone(&calls)), Arc::clone(&seen));
    let worker = worker.queue("default", 5).handle_many(5, take_batch);
    let worker = worker.layer(move |ctx, next| {
        let noted = Arc::clone(&noted);
        async move {
            let letter: Letter = serde_json::from_slice(ctx.kwargs())?;
            match letter.n {
                0 => return Ok(Outcome::Cancel("zero".to_owned())),
                1 => panic!("one"),
                _ => {}
            }
            // The others wait for this one.
            tokio::task::yield_now().await;
            let result = next.run(ctx).await;
            noted.lock().push(vec![letter.n, i64::from(result.is_ok())]);
            result
        }
    });
    let counts = worker.run_until_idle().await.expect("a worker");
    let expected = FinishedCounts::from([
        (Finished::Completed, 2),
        (Finished::Buried, 1),
        (Finished::Cancelled, 1),
        (Finished::Retried, 1),
    ]);
    assert_eq!(counts, expected);
    assert_eq!(*calls.lock(), [[2, 3, 4]]);
    seen.lock().sort();
    assert_eq!(*seen.lock(), [[2, 1], [3, 0], [4, 1]], "each layer sees the result of its own job");
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_that_wait_for_each_other_do_not_block_a_batch() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    engine.enqueue_many((0..3).map(|n| Letter { n })).await.expect("enqueued");
    let (calls, one_at_a_time) = (Calls::default(), Arc::new(Semaphore::new(1)));
    let worker = engine.worker_with(Arc::clone(&calls)).queue("default", 3);
    let worker = worker.handle_many(3, take_batch).layer(move |ctx, next| {
        let one_at_a_time = Arc::clone(&one_at_a_time);
        async move {
            let _permit = one_at_a_time.acquire().await;
            next.run(ctx).await
        }
    });
    let counts = soon(worker.run_until_idle()).await.expect("a worker");
    assert_eq!(counts, FinishedCounts::from([(Finished::Completed, 3)]));
    assert_eq!(calls.lock().len(), 3, "one call per job");
}

#[tokio::test(flavor = "multi_thread")]
async fn canaries_pass_no_layers() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    assert_eq!(engine.canary(["default"]).send_once().await.expect("enqueued"), 1);
    let called = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&called);
    let worker = engine.worker().handle(async |_: Letter| {}).layer(move |ctx, next| {
        counting.fetch_add(1, Ordering::SeqCst);
        next.run(ctx)
    });
    let mut worker = run(worker);
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
    assert_eq!((completed(&client).await, called.load(Ordering::SeqCst)), (1, 0));
}
