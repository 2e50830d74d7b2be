//! What one job cannot do to others.

use leasehold::worker::ManyItem;
use leasehold::{Draft, Enqueue, Finished, Job, JobError, Leasehold};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::fixture::{completed, count, jobs, queue_settings, run, sql};
use crate::support::{Note, engine};

#[tokio::test(flavor = "multi_thread")]
async fn g6_panic_fails_its_own_attempt_only() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // Long enough that it does not return while others still run.
    queue_settings(&client, "backoff_base = '1 hour'").await;
    engine.enqueue_many((0..20).map(|n| Note { n })).await.expect("enqueued");
    let handler = async |job: Note| assert!(job.n != 7, "seven of {}", job.n);
    let mut worker = run(engine.worker().queue("default", 20).handle(handler));
    let ends = worker.finished(20).await;
    assert_eq!(ends.iter().filter(|end| end.1 == Finished::Completed).count(), 19);
    assert_eq!(ends.iter().filter(|end| end.1 == Finished::Retried).count(), 1);
    let failed =
        "select count(*) from leasehold.job where last_error = 'the handler panicked: seven of 7'";
    assert_eq!(count(&client, failed).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_error_text_with_nul_is_recorded() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Note| -> Result<(), JobError> { Err(JobError::permanent("a\0b")) };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Buried);
    assert_eq!(
        count(
            &client,
            "select count(*) from leasehold_internal.dead_job where last_error = 'a\u{fffd}b'"
        )
        .await,
        1
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h15_names_without_a_handler_are_left_alone() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let other = Draft::untyped("of.another.release", &serde_json::json!({})).expect("a draft");
    other.enqueue(&engine).await.expect("enqueued");
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let mut worker = run(engine.worker().queue("default", 4).handle(async |_: Note| {}));
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
    let untouched = "select count(*) from leasehold.job where name = 'of.another.release' \
                     and attempts = 0 and lease_generation = 0 and not held";
    assert_eq!(count(&client, untouched).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h15_hundred_thousand_jobs_of_unknown_names_delay_no_other_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // Older, of higher priority, and of names on both sides of ours in the index.
    let crowd = "insert into leasehold.job (name, priority, scheduled_at) \
                 select case when n % 2 = 0 then 'a.' else 'z.' end || n % 10, -1, now() - interval '1 hour' \
                 from generate_series(1, 100000) n";
    sql(&client, crowd).await;
    let mut worker = run(engine.worker().queue("default", 4).handle(async |_: Note| {}));
    engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
    worker.finished(50).await;
    worker.stop().await;
    assert_eq!(completed(&client).await, 50);
    assert_eq!(
        count(&client, "select count(*) from leasehold.job where attempts = 0").await,
        100_000
    );
}

/// [`Note`] as a newer release changed it.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "note")]
struct NewNote {
    n: i64,
    reader: String,
}

/// [`Note`] in a release that takes no field it does not know.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "note")]
#[serde(deny_unknown_fields)]
struct StrictNote {
    n: i64,
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_kwargs_that_do_not_fit_are_retried_for_a_newer_worker() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    NewNote { n: 1, reader: "you".into() }.enqueue(&engine).await.expect("enqueued");
    // Fields of the next release are unknown here.
    let mut former = run(engine.worker().queue("default", 1).handle(async |_: StrictNote| {}));
    former.finished(1).await;
    former.stop().await;
    let waits = "select count(*) from leasehold.job where attempts = 1 \
                 and last_error like 'the kwargs do not fit note: %reader%'";
    assert_eq!(count(&client, waits).await, 1);
    sql(&client, "update leasehold.job set scheduled_at = now()").await;
    let mut next = run(engine.worker().queue("default", 1).handle(async |_: NewNote| {}));
    next.finished(1).await;
    next.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 0));
}

async fn enqueue_last_attempt(engine: &Leasehold, note: Note) {
    let draft = note.draft().expect("a draft").max_attempts(1);
    draft.enqueue(engine).await.expect("enqueued");
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_kwargs_that_never_fit_are_buried_and_other_jobs_run() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue_last_attempt(&engine, Note { n: 1 }).await;
    NewNote { n: 2, reader: "you".into() }.enqueue(&engine).await.expect("enqueued");
    let mut worker = run(engine.worker().queue("default", 4).handle(async |_: NewNote| {}));
    worker.finished(2).await;
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 0));
    let dead = "select count(*) from leasehold_internal.dead_job where cause = 'undecodable' and attempts = 1 \
                and last_error like 'the kwargs do not fit note: %reader%'";
    assert_eq!(count(&client, dead).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_kwargs_that_do_not_fit_fail_no_other_job_of_their_batch() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    NewNote { n: 1, reader: "you".into() }.enqueue(&engine).await.expect("enqueued");
    enqueue_last_attempt(&engine, Note { n: 2 }).await;
    NewNote { n: 3, reader: "me".into() }.enqueue(&engine).await.expect("enqueued");
    let handler = async |items: Vec<ManyItem<NewNote>>| {
        assert_eq!(items.len(), 2);
        Ok::<(), JobError>(())
    };
    let mut worker = run(engine.worker().queue("default", 4).handle_many(3, handler));
    worker.finished(3).await;
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (2, 0));
    assert_eq!(
        count(
            &client,
            "select count(*) from leasehold_internal.dead_job where cause = 'undecodable'"
        )
        .await,
        1
    );
}
