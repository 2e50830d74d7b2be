//! Handlers that defer their jobs, or release them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::worker::ManyItem;
use leasehold::{Ctx, Enqueue, Finished, JobError, JobResult, Outcome};
use leasehold_testing::TestDatabase;

use crate::fixture::{count, run};
use crate::logs::Logs;
use crate::support::{Note, engine};

const HOUR: Duration = Duration::from_secs(3600);

fn deferred() -> JobResult {
    Ok(Outcome::Defer { after: HOUR, why: "the store is away".into() })
}

#[tokio::test(flavor = "multi_thread")]
async fn x23_deferred_job_waits_behind_the_others_and_its_attempt_does_not_count() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let mut worker = run(engine.worker().handle(async |_: Note| deferred()));
    assert_eq!(worker.finished(1).await, [(id, Finished::Deferred)]);
    worker.stop().await;
    let job = engine.jobs().get(id).await.expect("an answer").expect("the job");
    assert!(job.deferred);
    assert_eq!((job.attempts, job.last_error.as_deref()), (0, Some("the store is away")));
    assert_eq!(
        count(&client, "select count(*) from leasehold.job where scheduled_at > now()").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn x23_handler_knows_that_its_job_was_deferred() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let handler = async |_: Note, ctx: Ctx| match ctx.is_deferred() {
        false => Ok(Outcome::Defer { after: Duration::ZERO, why: "later".into() }),
        true => JobResult::Ok(Outcome::Complete),
    };
    let mut worker = run(engine.worker().handle(handler));
    let ends: Vec<Finished> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Deferred, Finished::Completed]);
    worker.stop().await;
}

#[tokio::test]
async fn x23_deferred_failure_counts_and_the_last_attempt_buries() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let logs = Logs::collect();
    let draft = Note { n: 1 }.draft().expect("a draft").max_attempts(2);
    let id = draft.enqueue(&engine).await.expect("enqueued").id();
    let handler = async |_: Note| Err::<(), _>(JobError::retry("busy").deferred(Duration::ZERO));
    let mut worker = run(engine.worker().handle(handler));
    assert_eq!(worker.finished(2).await, [(id, Finished::Deferred), (id, Finished::Buried)]);
    worker.stop().await;
    assert!(logs.has("WARN", "attempt 1 of 2 failed, next in"), "{}", logs.text());
    assert!(logs.has("ERROR", "attempt 2 of 2 failed, the job is dead: busy"), "{}", logs.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn x23_jobs_of_one_lease_end_each_in_its_own_way() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let first = engine.enqueue_many((0..4).map(|n| Note { n })).await.expect("enqueued");
    assert_eq!(first, 4);
    let released = Arc::new(AtomicBool::new(false));
    let handler = move |items: Vec<ManyItem<Note>>| {
        let released = Arc::clone(&released);
        async move {
            let end = |item: ManyItem<Note>| match item.job.n {
                0 => Ok(Outcome::Complete),
                1 => deferred(),
                2 if !released.swap(true, Ordering::SeqCst) => Ok(Outcome::Release),
                2 => Ok(Outcome::Complete),
                _ => Err(JobError::permanent("useless")),
            };
            items.into_iter().map(end).collect::<Vec<JobResult>>()
        }
    };
    let mut worker = run(engine.worker().queue("default", 4).handle_many(4, handler));
    let mut ends: Vec<_> = worker.finished(5).await;
    ends.sort_by_key(|end| end.0);
    let ends: Vec<_> = ends.into_iter().map(|end| end.1).collect();
    let [Finished::Completed, Finished::Deferred, a, b, Finished::Buried] = ends[..] else {
        panic!("{ends:?}")
    };
    assert_eq!([a, b], [Finished::Released, Finished::Completed]);
    worker.stop().await;
}
