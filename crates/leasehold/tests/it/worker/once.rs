//! Effects that must not repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::once::Step;
use leasehold::{Ctx, Enqueue, Finished, JobError, JobResult, Outcome, State};
use leasehold_testing::TestDatabase;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::expire_leases;
use crate::fixture::{completed, count, run, soon, sql};
use crate::support::{Note, engine};

fn again(why: &str) -> JobResult {
    Ok(Outcome::Retry { after: Duration::ZERO, why: why.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn step_is_first_then_unfinished_then_finished_with_its_result() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (seen, mut phases) = unbounded_channel();
    let handler =
        async |_: Note, ctx: Ctx, State(seen): State<UnboundedSender<String>>| -> JobResult {
            let _ = match ctx.once::<i64>("charge").await? {
                Step::First(_) if ctx.attempt() == 1 => seen.send("first".into()),
                // The effect is known not to have taken place: begin anew.
                Step::Unfinished(step) if ctx.attempt() == 2 => {
                    step.forget(&ctx).await?;
                    seen.send("forgotten".into())
                }
                Step::First(_) => seen.send("first again".into()),
                Step::Unfinished(step) => {
                    step.finish(&ctx, &42_i64).await?;
                    seen.send("unfinished".into())
                }
                Step::Finished(result) => {
                    let _ = seen.send(format!("finished with {result}"));
                    return Ok(Outcome::Complete);
                }
            };
            again("once more")
        };
    let mut worker = run(engine.worker_with(seen).queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    worker.finished(5).await;
    worker.stop().await;
    let mut seen = Vec::new();
    while let Ok(phase) = phases.try_recv() {
        seen.push(phase);
    }
    assert_eq!(seen, ["first", "forgotten", "first again", "unfinished", "finished with 42"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_do_repeats_a_failed_effect_and_never_a_finished_one() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let effects = Arc::new(AtomicUsize::new(0));
    let handler = async |_: Note, ctx: Ctx, State(effects): State<Arc<AtomicUsize>>| -> JobResult {
        let receipt: String = ctx
            .once_do("charge", async || match effects.fetch_add(1, Ordering::SeqCst) {
                0 => Err(JobError::retry("the bank is closed")),
                n => Ok(format!("receipt {n}")),
            })
            .await?;
        assert_eq!(receipt, "receipt 1");
        if ctx.attempt() < 4 { again("something else failed") } else { Ok(Outcome::Complete) }
    };
    let mut worker =
        run(engine.worker_with(Arc::clone(&effects)).queue("default", 1).handle(handler));
    let draft = Note { n: 1 }.draft().expect("a draft");
    draft.enqueue(&engine).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(4).await.into_iter().map(|end| end.1).collect();
    assert_eq!(
        ends,
        [Finished::Retried, Finished::Retried, Finished::Retried, Finished::Completed]
    );
    assert_eq!(effects.load(Ordering::SeqCst), 2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_one_scope_share_its_step() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let effects = Arc::new(AtomicUsize::new(0));
    let handler = async |_: Note, ctx: Ctx, State(effects): State<Arc<AtomicUsize>>| -> JobResult {
        match ctx.once_for::<()>("order:9182", "ship").await? {
            Step::First(step) => {
                effects.fetch_add(1, Ordering::SeqCst);
                step.finish(&ctx, &()).await?;
            }
            Step::Unfinished(_) => return Ok(Outcome::Snooze(Duration::from_millis(10))),
            Step::Finished(()) => {}
        }
        Ok(Outcome::Complete)
    };
    engine.enqueue_many((0..20).map(|n| Note { n })).await.expect("enqueued");
    let mut worker =
        run(engine.worker_with(Arc::clone(&effects)).queue("default", 20).handle(handler));
    let client = database.connect().await;
    crate::fixture::until("all are done", async || completed(&client).await == 20).await;
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    worker.seen();
    worker.stop().await;
}

/// Applies the effect together with a marker. Then the first attempt hangs, like one whose worker died.
async fn effect_then_silence(
    job: Note,
    ctx: Ctx,
    State(done): State<UnboundedSender<()>>,
) -> JobResult {
    let mut client = ctx.engine().pool().get().await?;
    let transaction = client.transaction().await?;
    if ctx.mark_in(&transaction, "effect").await? {
        let sql = "insert into ledger values ($1)";
        transaction.query_typed(sql, &[(&job.n, tokio_postgres::types::Type::INT8)]).await?;
    }
    transaction.commit().await?;
    if ctx.attempt() == 1 {
        let _ = done.send(());
        std::future::pending::<()>().await;
    }
    Ok(Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_effect_with_a_mark_is_applied_once_although_its_worker_died_before_the_finish() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(&client, "create table ledger (n bigint)").await;
    let (done, mut applied) = unbounded_channel();
    let worker =
        || engine.worker_with(done.clone()).queue("default", 1).handle(effect_then_silence);
    let dead = run(worker().grace(Duration::ZERO).without_housekeeping());
    let id = Note { n: 7 }.enqueue(&engine).await.expect("enqueued").id();
    soon(applied.recv()).await.expect("the effect");
    assert_eq!(expire_leases(&client).await, 1);
    let mut second = run(worker());
    assert_eq!(second.finished(1).await, [(id, Finished::Completed)]);
    assert_eq!(count(&client, "select sum(n) from ledger").await, 7);
    assert_eq!(completed(&client).await, 1);
    second.stop().await;
    dead.stop().await;
}
