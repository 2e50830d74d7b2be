//! Jobs that fall due while their worker sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Enqueue, Finished, JobError, JobResult, Outcome, State};

use super::{Place, next_end};
use crate::fixture::queue_settings;
use crate::support::Note;

const SOON: Duration = Duration::from_millis(700);

#[tokio::test]
async fn b17_job_starts_when_it_falls_due_while_its_worker_sleeps() {
    let place = Place::new().await;
    // The first is there when the worker falls asleep; the others come while it sleeps.
    let draft = |n| Note { n }.draft().expect("a draft").run_after(SOON);
    draft(0).run_after(Duration::from_secs(3)).enqueue(&place.engine).await.expect("enqueued");
    let mut worker = place.idle_worker().await;
    assert_eq!(next_end(&mut worker).await, Finished::Completed);
    for n in 1..4 {
        draft(n).priority(n as i32 * 10).enqueue(&place.engine).await.expect("enqueued");
        assert_eq!(next_end(&mut worker).await, Finished::Completed);
    }
    worker.stop().await;
}

/// Fails, then snoozes, then is done.
async fn third_time(_: Note, State(runs): State<Arc<AtomicUsize>>) -> JobResult {
    match runs.fetch_add(1, Ordering::SeqCst) {
        0 => Err(JobError::retry("the first time")),
        1 => Ok(Outcome::Snooze(SOON)),
        _ => Ok(Outcome::Complete),
    }
}

#[tokio::test]
async fn b17_retried_and_snoozed_jobs_start_when_they_are_due() {
    let place = Place::new().await;
    queue_settings(&place.client, "backoff_base = '1 second'").await;
    let runs = Arc::new(AtomicUsize::new(0));
    let worker = place.engine.worker_with(runs).queue("default", 2).handle(third_time);
    let mut worker = place.idle(worker).await;
    Note { n: 1 }.enqueue(&place.engine).await.expect("enqueued");
    for end in [Finished::Retried, Finished::Snoozed, Finished::Completed] {
        assert_eq!(next_end(&mut worker).await, end);
    }
    worker.stop().await;
}

#[tokio::test]
async fn b17_promoted_returned_and_released_jobs_wake_an_idle_worker() {
    let place = Place::new().await;
    let later = Note { n: 1 }.draft().expect("a draft").run_after(Duration::from_secs(3600));
    let later = later.enqueue(&place.engine).await.expect("enqueued").id().0;
    let mut worker = place.idle_worker().await;
    place.sql(&format!("select leasehold.promote(array[{later}::bigint], 'me')")).await;
    assert_eq!(next_end(&mut worker).await, Finished::Completed);

    for give_back in [
        "select leasehold.release(job_ids, lease_generation) from leasehold_internal.lease \
          where claimed_by = 'another'",
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour' \
          where claimed_by = 'another'; \
         select leasehold_internal.reclaim_leases()",
    ] {
        // Stored without a wake-up, and claimed by another worker, which hands it back or dies. On a slow machine
        // the idle worker polls before that worker claims, and completes the job itself.
        place
            .sql(
                "begin; set local session_replication_role = replica;
                 insert into leasehold.job (name, kwargs) values ('note', '{\"n\": 2}'); commit",
            )
            .await;
        place.sql("select leasehold.claim('another')").await;
        place.sql(give_back).await;
        assert_eq!(next_end(&mut worker).await, Finished::Completed);
    }
    worker.stop().await;
}

#[tokio::test]
async fn b17_next_due_names_the_first_job_that_the_worker_can_run() {
    let place = Place::new().await;
    place
        .sql(
            "insert into leasehold.job (name, priority, scheduled_at)
             select 'foreign', 5, now() + interval '10 seconds' + n * interval '1 millisecond'
               from generate_series(1, 1000) n
             union all values ('ours', 5, now() + interval '5 minutes'),
                              ('ours', -3, now() + interval '9 minutes'), ('ours', 0, now())",
        )
        .await;
    let ask = async |arguments: &str| {
        let sql =
            format!("select coalesce(leasehold_internal.next_due('default', {arguments}), -1)");
        place.client.query_one(&sql, &[]).await.expect("an answer").get::<_, f64>(0)
    };
    // The result must not depend on which priorities the worker has cursors for.
    for known in [
        "'{}', '{}'",
        "'{f}', '{5}'",
        "'{f,f,f}', '{-3,0,5}'",
        "'{f,f,f}', '{-100,3,7}'",
        "'{f,t}', '{5,-100}'",
    ] {
        let ours = ask(&format!("array['ours'], {known}, interval '1 hour'")).await;
        assert!(ours > 5.0 && ours < 11.0, "the hundredth foreign one: {ours}");
        let all = ask(&format!("null, {known}, interval '1 hour'")).await;
        assert!(all > 5.0 && all <= ours, "{all} is before {ours}");
        let near = ask(&format!("array['ours'], {known}, interval '5 seconds'")).await;
        assert!(near < 0.0, "nothing falls due in 5 s: {near}");
    }
    place.sql("delete from leasehold.job where name = 'foreign'").await;
    let ours = ask("array['ours'], '{f}', '{5}', interval '1 hour'").await;
    assert!(ours > 200.0 && ours <= 300.0, "{ours}");
    place
        .sql("select leasehold_internal.queue_settings('default'); select leasehold.pause('default', 'me')")
        .await;
    assert_eq!(ask("array['ours'], '{f}', '{5}', interval '1 hour'").await, f64::INFINITY);
}
