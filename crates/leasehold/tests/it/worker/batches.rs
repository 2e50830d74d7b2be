//! Handlers that take many jobs at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::worker::ManyItem;
use leasehold::{Finished, Job, JobError, JobResult, Outcome, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::fixture::{completed, count, jobs, queue_settings, run};
use crate::support::{Note, engine};

#[tokio::test(flavor = "multi_thread")]
async fn one_result_counts_for_the_whole_batch() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..10).map(|n| Note { n })).await.expect("enqueued");
    let largest = Arc::new(AtomicUsize::new(0));
    let handler = async |items: Vec<ManyItem<Note>>, State(largest): State<Arc<AtomicUsize>>| {
        largest.fetch_max(items.len(), Ordering::SeqCst);
        Ok::<(), JobError>(())
    };
    let worker =
        engine.worker_with(Arc::clone(&largest)).queue("default", 10).handle_many(4, handler);
    let mut worker = run(worker);
    let ends = worker.finished(10).await;
    assert!(ends.iter().all(|end| end.1 == Finished::Completed));
    assert_eq!(largest.load(Ordering::SeqCst), 4, "no batch is larger than the handler takes");
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (10, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_of_a_batch_has_its_own_result() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..4).map(|n| Note { n })).await.expect("enqueued");
    let handler = async |items: Vec<ManyItem<Note>>| -> Vec<JobResult> {
        let result = |item: ManyItem<Note>| match item.job.n {
            0 => Ok(Outcome::Complete),
            1 => Err(JobError::permanent("one")),
            2 => Ok(Outcome::Cancel("two".into())),
            _ => Err(JobError::retry("three")),
        };
        items.into_iter().map(result).collect()
    };
    let mut worker = run(engine.worker().queue("default", 4).handle_many(4, handler));
    let mut ends: Vec<_> = worker.finished(4).await;
    ends.sort_by_key(|end| end.0);
    let ends: Vec<_> = ends.into_iter().map(|end| end.1).collect();
    assert_eq!(
        ends,
        [Finished::Completed, Finished::Buried, Finished::Cancelled, Finished::Retried]
    );
    worker.stop().await;
    assert_eq!(jobs(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_for_which_a_batch_handler_returns_no_result_are_retried() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // Long enough that they do not return while the test looks.
    queue_settings(&client, "backoff_base = '1 hour'").await;
    engine.enqueue_many((0..3).map(|n| Note { n })).await.expect("enqueued");
    let handler = async |_: Vec<ManyItem<Note>>| -> Vec<JobResult> { vec![Ok(Outcome::Complete)] };
    let mut worker = run(engine.worker().queue("default", 3).handle_many(3, handler));
    let ends: Vec<_> = worker.finished(3).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends.iter().filter(|end| **end == Finished::Completed).count(), 1);
    assert_eq!(ends.iter().filter(|end| **end == Finished::Retried).count(), 2);
    let retried = "select count(*) from leasehold.job where last_error like '%returned 1 results for 3 jobs%'";
    assert_eq!(count(&client, retried).await, 2);
    worker.stop().await;
}

/// A job that does not return while a test looks.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "brittle", backoff = "1h..1h")]
struct Brittle {
    n: i64,
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_panic_fails_the_jobs_of_its_batch_and_no_others() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |items: Vec<ManyItem<Brittle>>| -> Result<(), JobError> {
        assert!(items.iter().all(|item| item.job.n > 0), "zero");
        Ok(())
    };
    let mut worker = run(engine.worker().queue("default", 8).handle_many(2, handler));
    engine.enqueue_many([Brittle { n: 0 }, Brittle { n: 1 }]).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Retried, Finished::Retried]);
    engine.enqueue_many([Brittle { n: 2 }, Brittle { n: 3 }]).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Completed, Finished::Completed]);
    assert_eq!(
        count(
            &client,
            "select count(*) from leasehold.job where last_error like '%panicked: zero%'"
        )
        .await,
        2
    );
    worker.stop().await;
}
