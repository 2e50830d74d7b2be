//! Stopping and pausing a worker while handlers run.

use std::sync::Arc;
use std::time::Duration;

use leasehold::events::Event;
use leasehold::worker::StopReason;
use leasehold::{Ctx, Draft, Enqueue, Finished, JobError, JobResult, State};
use leasehold_testing::TestDatabase;
use tokio::sync::{Semaphore, oneshot};

use crate::fixture::{completed, count, ended, jobs, run, sql, until};
use crate::support::{Note, engine, finished, wait_for};

const GIVEN_BACK: &str = "select count(*) from leasehold.job where not held and attempts = 0 \
                          and lost_count = 0 and scheduled_at <= now()";
const OPEN_LEASES: &str = "select count(*) from leasehold_internal.lease where ended_at is null";

#[tokio::test(flavor = "multi_thread")]
async fn a23_job_that_still_runs_after_the_grace_is_released_with_its_attempt() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let first = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let handler = async |_: Note| std::future::pending::<()>().await;
    let worker =
        engine.worker().queue("default", 1).grace(Duration::from_millis(50)).handle(handler);
    let mut worker = run(worker);
    worker.started(first).await;
    let (mut events, task) = worker.ask_to_stop();
    assert_eq!(finished(&mut events, 1).await, [(first, Finished::Released)]);
    ended(task).await.expect("a clean stop");
    assert_eq!(count(&client, GIVEN_BACK).await, 1);
    assert_eq!(count(&client, OPEN_LEASES).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_attempt_of_a_handler_that_stops_on_request_does_not_count() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let first = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let handler = async |_: Note, ctx: Ctx| -> JobResult {
        assert_eq!(ctx.stopped().await, StopReason::Shutdown);
        Err(JobError::retry("asked to stop"))
    };
    let worker =
        engine.worker().queue("default", 1).grace(Duration::from_millis(50)).handle(handler);
    let mut worker = run(worker);
    worker.started(first).await;
    worker.stop().await;
    assert_eq!(count(&client, GIVEN_BACK).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_claimed_jobs_that_did_not_start_are_released() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // The worker gets the stop signal while its claim is under way.
    let watcher = database.connect_directly().await;
    sql(
        &watcher,
        "create function public.stall() returns trigger language plpgsql as \
         'begin if new.held then perform pg_advisory_xact_lock(41); end if; return new; end'; \
         create trigger stall before update on leasehold.job for each row execute function public.stall(); \
         select pg_advisory_lock(41)",
    )
    .await;
    engine.enqueue_many((1..6).map(|n| Note { n })).await.expect("enqueued");
    let worker = run(engine.worker().queue("default", 10).handle(async |_: Note| {}));
    let claiming = "select count(*) from pg_stat_activity where datname = current_database() \
                    and wait_event_type = 'Lock' and query like '%claim_next%'";
    until("the claim waits", async || count(&watcher, claiming).await == 1).await;
    let (mut events, task) = worker.ask_to_stop();
    wait_for(&mut events, |event| (*event == Event::Draining).then_some(())).await;
    sql(&watcher, "select pg_advisory_unlock(41)").await;
    ended(task).await.expect("a clean stop");
    assert_eq!(count(&client, GIVEN_BACK).await, 5);
    assert_eq!((completed(&client).await, jobs(&client).await), (0, 5));
    assert_eq!(count(&client, OPEN_LEASES).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_leases_are_renewed_while_a_draining_worker_waits_for_its_handlers() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let id = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    let gate = Arc::new(Semaphore::new(0));
    let handler = async |_: Note, State(gate): State<Arc<Semaphore>>| {
        let _ = gate.acquire().await;
    };
    let worker = engine.worker_with(Arc::clone(&gate)).grace(Duration::from_secs(3600));
    let mut worker = run(worker.queue("default", 1).handle(handler));
    worker.started(id).await;
    let (mut events, task) = worker.ask_to_stop();
    wait_for(&mut events, |event| (*event == Event::Draining).then_some(())).await;
    wait_for(&mut events, |event| matches!(event, Event::Renewed { .. }).then_some(())).await;
    // A draining worker claims nothing new.
    Note { n: 2 }.enqueue(&engine).await.expect("enqueued");
    gate.add_permits(1);
    assert_eq!(finished(&mut events, 1).await, [(id, Finished::Completed)]);
    ended(task).await.expect("a clean stop");
    assert_eq!((completed(&client).await, jobs(&client).await), (1, 1));
    assert_eq!(count(&client, GIVEN_BACK).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_second_request_cuts_the_grace_short() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let worker = engine.worker().queue("default", 1).grace(Duration::from_secs(3600));
    let worker = worker.handle(async |_: Note| std::future::pending::<()>().await);
    let mut events = worker.events().subscribe();
    let (stop, stopped) = oneshot::channel::<()>();
    let (immediate, cut_short) = oneshot::channel::<()>();
    let running =
        worker.run_with_shutdown(async { drop(stopped.await) }, async { drop(cut_short.await) });
    let task = tokio::spawn(running);
    wait_for(&mut events, |event| matches!(event, Event::Started { .. }).then_some(())).await;
    drop(stop);
    wait_for(&mut events, |event| (*event == Event::Draining).then_some(())).await;
    drop(immediate);
    ended(task).await.expect("a clean stop");
    assert_eq!(count(&client, GIVEN_BACK).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_paused_queue_is_not_claimed_from_until_it_is_resumed() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(&client, "select leasehold.pause('default', 'test', 'maintenance')").await;
    let held_up = Note { n: 0 }.enqueue(&engine).await.expect("enqueued").id();
    let worker = engine.worker().queue("default", 2).queue("other", 2).handle(async |_: Note| {});
    let mut worker = run(worker);
    // Many rounds of claiming go by; the other queue is not paused.
    for n in 1..=20 {
        let draft = Draft::of(&Note { n }).expect("a draft").queue("other");
        let id = draft.enqueue(&engine).await.expect("enqueued").id();
        assert_eq!(worker.finished(1).await[0].0, id);
    }
    assert_eq!(count(&client, GIVEN_BACK).await, 1);
    sql(&client, "select leasehold.resume('default', 'test')").await;
    assert_eq!(worker.finished(1).await[0].0, held_up);
    worker.stop().await;
}

/// Runs a job, changes its queue meanwhile, and lets the job end after its lease was renewed.
async fn ends_as_usual_after(change: &str) {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let gate = Arc::new(Semaphore::new(0));
    let handler = async |_: Note, State(gate): State<Arc<Semaphore>>| {
        if let Ok(permit) = gate.acquire().await {
            permit.forget();
        }
    };
    let worker = engine.worker_with(Arc::clone(&gate)).queue("default", 1).handle(handler);
    let mut worker = run(worker);
    let first = Note { n: 1 }.enqueue(&engine).await.expect("enqueued").id();
    worker.started(first).await;
    sql(&client, change).await;
    let second = Note { n: 2 }.enqueue(&engine).await.expect("enqueued").id();
    worker.seen();
    worker.renewed(1).await;
    gate.add_permits(2);
    assert_eq!(worker.finished(1).await, [(first, Finished::Completed)], "{change}");
    sql(&client, "select leasehold.resume('default', 'test')").await;
    assert_eq!(worker.finished(1).await, [(second, Finished::Completed)], "{change}");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i6_running_job_completes_when_its_queue_is_paused_or_its_settings_are_removed() {
    tokio::join!(
        ends_as_usual_after("select leasehold.pause('default', 'test', 'maintenance')"),
        ends_as_usual_after("delete from leasehold_internal.queue where name = 'default'"),
    );
}
