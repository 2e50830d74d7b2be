//! Functions that run after the end of an attempt is recorded.

use std::convert::Infallible;

use leasehold::{Cause, Enqueue, Finished, FinishedJob, Job, JobError, JobResult, Outcome};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::{count, run, soon};
use crate::support::{Note, engine};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "once", max_attempts = 1)]
struct Once {}

/// Completes 0, fails 1, buries the rest.
async fn handle(note: Note) -> JobResult {
    match note.n {
        0 => Ok(Outcome::Complete),
        1 => Err(JobError::from("try again")),
        _ => Err(JobError::permanent("no such user")),
    }
}

async fn next(
    calls: &mut UnboundedReceiver<FinishedJob>,
) -> (Finished, Option<Cause>, Option<String>) {
    let job = soon(calls.recv()).await.expect("a call");
    (job.finished(), job.cause(), job.error().map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_called_after_the_end_is_recorded() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let (finished, mut calls) = unbounded_channel();
    let (buried, mut dead) = unbounded_channel();
    let worker = engine
        .worker()
        .queue("default", 1)
        .handle(handle)
        .handle(async |_: Once| -> JobResult { Err(JobError::from("no")) })
        .on_finished(move |job| {
            let finished = finished.clone();
            async move { finished.send(job).map_err(|error| error.to_string()) }
        })
        .on_buried(move |job| {
            let buried = buried.clone();
            async move { buried.send(job).map_err(|error| error.to_string()) }
        });
    let worker = run(worker);
    Note { n: 0 }.enqueue(&engine).await.expect("enqueued");
    let job = soon(calls.recv()).await.expect("a call");
    assert_eq!((job.name(), job.queue(), job.attempt()), ("note", "default", 1));
    assert_eq!(
        (job.kwargs(), job.finished(), job.cause()),
        (&b"{\"n\": 0}"[..], Finished::Completed, None)
    );
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 0, "it is recorded");
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(next(&mut calls).await, (Finished::Retried, None, Some("try again".to_owned())));
    Note { n: 2 }.enqueue(&engine).await.expect("enqueued");
    let end = (Finished::Buried, Some(Cause::Rejected), Some("no such user".to_owned()));
    assert_eq!(next(&mut calls).await, end);
    assert_eq!(next(&mut dead).await, end);
    Once {}.enqueue(&engine).await.expect("enqueued");
    let end = (Finished::Buried, Some(Cause::Exhausted), Some("no".to_owned()));
    assert_eq!(next(&mut dead).await, end);
    worker.stop().await;
    assert!(dead.try_recv().is_err(), "only burials");
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_that_fails_or_panics_changes_nothing() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let (finished, mut calls) = unbounded_channel();
    let worker = engine
        .worker()
        .handle(async |_: Note| {})
        .on_finished(|_| -> std::future::Ready<Result<(), Infallible>> { panic!("in the call") })
        .on_finished(async |_| -> Result<(), Infallible> { panic!("in the future") })
        .on_finished(async |_| Err::<(), _>("no"))
        .on_finished(move |job| {
            let finished = finished.clone();
            async move { finished.send(job).map_err(|error| error.to_string()) }
        });
    let worker = run(worker);
    for n in 0..20 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
    }
    for _ in 0..20 {
        assert_eq!(next(&mut calls).await.0, Finished::Completed);
    }
    worker.stop().await;
    assert_eq!(
        count(&client, "select count(*) from leasehold.jobs where state = 'completed'").await,
        20
    );
}
