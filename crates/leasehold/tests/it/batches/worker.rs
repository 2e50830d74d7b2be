//! Batches and chains through the library: drafts, handlers, housekeeping, administration.

use std::time::Duration;

use leasehold::admin::{BatchState, By, JobFilter, Page};
use leasehold::database::Database;
use leasehold::{
    AdminError, BatchDraft, BatchId, Ctx, Draft, Enqueue, JobResult, Leasehold, Outcome,
};
use leasehold_testing::TestDatabase;
use tokio::sync::mpsc::unbounded_channel;

use crate::fixture::{count, run, soon};
use crate::support::{Note, engine};

fn draft(name: &str) -> Draft {
    Draft::untyped(name, &serde_json::json!({})).expect("a draft")
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_follow_up_reads_the_counts_and_the_results_of_its_batch() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (sender, mut sums) = unbounded_channel();
    let worker = engine
        .worker()
        .queue("default", 4)
        .handle(async |job: Note, ctx: Ctx| -> JobResult {
            ctx.keep_result(&job.n)?;
            if job.n == 2 && ctx.attempt() == 1 {
                // Not recorded: the attempt does not complete.
                return Ok(Outcome::Retry { after: Duration::ZERO, why: "once more".to_owned() });
            }
            if job.n == 3 {
                let mut client = ctx.engine().pool().get().await?;
                let tx = client.transaction().await?;
                let batch = ctx.extend_batch(&tx).await?;
                batch.add(&tx, Note { n: 40 }.draft()?).await?;
                ctx.complete_in(&tx).await?;
                tx.commit().await?;
            }
            Ok(Outcome::Complete)
        })
        .handle_untyped("sum", move |ctx: Ctx| {
            let sender = sender.clone();
            async move {
                let batch = ctx.batch().await.expect("a read").expect("a batch");
                let (mut sum, mut after) = (0, None);
                loop {
                    let page = ctx.batch_results(after, 2).await.expect("results");
                    let Some(last) = page.last() else { break };
                    after = Some(last.job_id);
                    sum += page.iter().filter_map(|one| one.result.as_i64()).sum::<i64>();
                }
                let _ = sender.send((batch.completed, sum));
            }
        });
    let running = run(worker);
    let mut client = engine.pool().get().await.expect("a connection");
    let tx = client.transaction().await.expect("a transaction");
    let batch =
        BatchDraft::new().description("sums").then(draft("sum")).open(&tx).await.expect("open");
    assert_eq!(batch.add_many(&tx, (1..=3).map(|n| Note { n })).await.expect("jobs"), 3);
    assert!(batch.add(&tx, Note { n: 4 }.draft().expect("a draft")).await.expect("a job").is_new());
    assert!(batch.seal(&tx).await.expect("sealed"));
    tx.commit().await.expect("committed");
    assert_eq!(soon(sums.recv()).await, Some((5, 50)));
    let seen = engine.batches().get(batch.id()).await.expect("a read").expect("a batch");
    assert_eq!((seen.state, seen.total, seen.ended()), (BatchState::Closed, 5, 5));
    assert_eq!(seen.description.as_deref(), Some("sums"));
    let late =
        batch.add(&engine, Note { n: 9 }.draft().expect("a draft")).await.expect_err("closed");
    assert!(late.to_string().contains("is closed"), "{late}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k10_chain_hands_results_on_from_job_to_job() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (sender, mut ends) = unbounded_channel();
    let step = move |ctx: Ctx| {
        let sender = sender.clone();
        async move {
            let before = ctx.batch_results(None, 1).await.expect("results");
            let before = before.first().and_then(|one| one.result.as_i64()).unwrap_or(0);
            ctx.keep_result(&(before + 1))?;
            let _ = sender.send((ctx.name().to_owned(), before));
            Ok::<_, leasehold::JobError>(Outcome::Complete)
        }
    };
    let worker = engine
        .worker()
        .queue("default", 2)
        .handle_untyped("one", step.clone())
        .handle_untyped("two", step.clone())
        .handle_untyped("three", step);
    let running = run(worker);
    draft("one").then(draft("two")).then(draft("three")).enqueue(&engine).await.expect("a chain");
    for expected in [("one", 0), ("two", 1), ("three", 2)] {
        let (name, before) = soon(ends.recv()).await.expect("an end");
        assert_eq!((name.as_str(), before), expected);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k1_housekeeping_of_a_worker_closes_what_an_overlap_left() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let batch = BatchDraft::new().on_end(draft("ended")).open(&engine).await.expect("open");
    let client = database.connect_directly().await;
    // As after an overlap: sealed, without a member, with an end that was not looked at.
    crate::fixture::sql(
        &client,
        &format!(
            "update leasehold_internal.batch set sealed_at = now() where id = {0}; \
             insert into leasehold_internal.batch_end (batch_id, outcome, n) values ({0}, 'completed', 1)",
            batch.id()
        ),
    )
    .await;
    let running = run(engine.worker().queue("default", 1).handle_untyped("ended", |_| async {}));
    crate::fixture::until("the follow-up ran", async || {
        count(
            &client,
            "select count(*) from leasehold.jobs where name = 'ended' and state = 'completed'",
        )
        .await
            == 1
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k8_batches_are_listed_by_pages_and_cancelled_by_the_library() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let batch = BatchDraft::new().open(&engine).await.expect("open");
        batch.add(&engine, Note { n }.draft().expect("a draft")).await.expect("a job");
        ids.push(batch.id());
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = engine.batches().list(Some(BatchState::Open), after, 2).await.expect("a page");
        listed.extend(page.batches.iter().map(|batch| batch.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ids.reverse();
    assert_eq!(listed, ids);
    let filter: JobFilter = format!("batch:{}", ids[0]).parse().expect("a filter");
    assert_eq!(engine.jobs().list(&filter, &Page::first(10)).await.expect("jobs").jobs.len(), 1);
    let by = By::new("ann").why("wrong");
    let done = engine.batches().cancel(ids[0], &by).await.expect("cancelled");
    assert_eq!((done.cancelled, done.requested, done.more), (1, 0, false));
    let seen = engine.batches().get(ids[0]).await.expect("a read").expect("a batch");
    assert_eq!((seen.state, seen.cancelled_by.as_deref()), (BatchState::Cancelled, Some("ann")));
    assert!(engine.batches().get(BatchId(9999)).await.expect("a read").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn k17_result_that_is_too_large_ends_the_job_with_its_reason() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let mut running =
        run(engine.worker().queue("default", 1).handle(async |_: Note, ctx: Ctx| -> JobResult {
            ctx.keep_result(&"x".repeat(70_000))?;
            Ok(Outcome::Complete)
        }));
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    assert_eq!(running.next_end().await, leasehold::Finished::Buried);
    let job = engine.jobs().get(id).await.expect("a read").expect("a job");
    assert!(job.last_error.as_deref().unwrap_or_default().contains("64 KiB"), "{job:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn k15_worker_with_no_other_rights_ends_and_extends_a_batch() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let user = format!("plain_{:08x}", rand::random::<u32>());
    let role = format!("create role {user} login in role leasehold_worker, leasehold_producer");
    crate::fixture::sql(&client, &role).await;
    let mut config = database.direct_config();
    config.user(&user);
    let plain = Leasehold::from_database(Database::from_config(config).expect("a config"))
        .await
        .expect("an engine");
    let worker =
        plain.worker().queue("default", 1).handle(async |job: Note, ctx: Ctx| -> JobResult {
            ctx.keep_result(&job.n)?;
            if job.n == 1 {
                let mut client = ctx.engine().pool().get().await?;
                let tx = client.transaction().await?;
                let batch = ctx.extend_batch(&tx).await?;
                batch.add(&tx, Note { n: 2 }.draft()?).await?;
                ctx.complete_in(&tx).await?;
                tx.commit().await?;
            }
            Ok(Outcome::Complete)
        });
    let (sender, mut sums) = unbounded_channel();
    let running = run(worker.handle_untyped("sum", move |ctx: Ctx| {
        let sender = sender.clone();
        async move {
            let completed = ctx.batch().await.expect("a read").map(|batch| batch.completed);
            let results = ctx.batch_results(None, 10).await.expect("results");
            let _ = sender.send((completed, results.len()));
        }
    }));
    let batch = BatchDraft::new().then(draft("sum")).open(&plain).await.expect("open");
    batch.add(&plain, Note { n: 1 }.draft().expect("a draft")).await.expect("a job");
    assert!(batch.seal(&plain).await.expect("sealed"));
    assert_eq!(soon(sums.recv()).await, Some((Some(2), 2)));
    let refused = plain.batches().cancel(batch.id(), &By::new("ann")).await.expect_err("no right");
    assert!(matches!(refused, AdminError::Forbidden(_)), "{refused}");
    running.stop().await;
    drop(plain);
}

#[tokio::test(flavor = "multi_thread")]
async fn k8_cancel_within_a_transaction_takes_effect_with_its_commit() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let batch = BatchDraft::new().open(&engine).await.expect("open");
    batch.add(&engine, Note { n: 1 }.draft().expect("a draft")).await.expect("a job");
    let state =
        async || engine.batches().get(batch.id()).await.expect("a read").map(|seen| seen.state);
    let mut client = engine.pool().get().await.expect("a connection");
    for (commits, expected) in [(false, BatchState::Open), (true, BatchState::Cancelled)] {
        let tx = client.transaction().await.expect("a transaction");
        let inside = engine.batches().within(&tx);
        let done = inside.cancel(batch.id(), &By::new("ann")).await.expect("cancelled");
        assert_eq!((done.cancelled, done.more), (1, false));
        if commits {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
        assert_eq!(state().await, Some(expected));
    }
}
