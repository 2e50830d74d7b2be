//! Back-pressure, debounce and throttle: what an enqueue does when a key has jobs already.

use leasehold::{Draft, EnqueueError};
use serde_json::json;

use super::{complete, enqueue, ids, look_now, take};
use crate::sql::{Sql, refused, run};
use crate::support::engine;

async fn limited(limit: &str) -> Sql {
    let sql = Sql::new().await;
    sql.run(&format!("select leasehold.set_limit('default', {limit})")).await;
    sql
}

/// Enqueues with a number in the kwargs, and returns the id and whether a job was stored.
async fn note(client: &tokio_postgres::Client, key: &str, n: i32) -> (i64, bool) {
    let sql = "select job_id, inserted from leasehold.enqueue('note', jsonb_build_object('n', $2::int), limit_key => $1)";
    let row = client.query_one(sql, &[&key, &n]).await.expect("an enqueue");
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn l26_enqueue_beyond_the_waiting_jobs_of_a_key_is_refused_and_stores_nothing() {
    let sql = limited("'tenant', 'ann', max_waiting => 2").await;
    enqueue(&sql.client, "tenant:7", 2).await;
    enqueue(&sql.client, "tenant:8", 1).await;
    let full = "select leasehold.enqueue('note', '{}', limit_key => 'tenant:7')";
    let (code, text) = refused(&sql.client, full, &[]).await;
    assert_eq!(code, "LH005");
    assert!(text.starts_with("limit tenant:7 of queue default has 2 waiting jobs; it may have 2 "));
    let many = "select leasehold.enqueue_many(array['note', 'note'], array['{}', '{}']::jsonb[], limit_key => 'tenant:8')";
    assert_eq!(refused(&sql.client, many, &[]).await.0, "LH005");
    assert_eq!(sql.count("job").await, 3);
    let engine = engine(&sql.database).await;
    let draft = || Draft::untyped("note", &json!({})).expect("a draft").limit_key("tenant:7");
    let error = draft().enqueue(&engine).await.expect_err("full");
    assert!(matches!(error, EnqueueError::Full(_)), "{error}");
    // What runs does not wait.
    take(&sql.client, 1).await;
    assert!(draft().enqueue(&engine).await.is_ok());
}

#[tokio::test]
async fn l26_repeated_enqueue_of_a_stored_job_is_not_refused() {
    let sql = limited("'tenant', 'ann', max_waiting => 1").await;
    let keyed =
        "select inserted from leasehold.enqueue('note', '{}', key => 'k', limit_key => 'tenant:7')";
    assert!(sql.one::<bool>(keyed, &[]).await);
    assert!(!sql.one::<bool>(keyed, &[]).await);
}

#[tokio::test]
async fn l26_enqueue_beyond_the_waiting_jobs_of_a_queue_is_refused() {
    let sql = limited("null, 'ann', max_waiting => 3").await;
    sql.enqueue(2).await;
    enqueue(&sql.client, "tenant:7", 1).await;
    for full in [
        "select leasehold.enqueue('note', '{}')",
        "select leasehold.enqueue('note', '{}', limit_key => 'tenant:8')",
        "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[])",
    ] {
        let (code, text) = refused(&sql.client, full, &[]).await;
        assert_eq!(code, "LH005", "{full}");
        assert!(text.starts_with("queue default has 3 waiting jobs; it may have 3 "), "{text}");
    }
    sql.one::<i64>("select job_id from leasehold.enqueue('note', '{}', queue => 'other')", &[])
        .await;
}

#[tokio::test]
async fn l18_later_enqueue_replaces_the_kwargs_and_moves_the_due_time_up_to_a_maximum() {
    let sql = limited("'doc', 'ann', debounce => '10 minutes', debounce_max => '1 hour'").await;
    let (first, stored) = note(&sql.client, "doc:7", 1).await;
    assert!(stored);
    sql.run("update leasehold.job set enqueued_at = enqueued_at - interval '5 minutes', scheduled_at = scheduled_at - interval '5 minutes'").await;
    assert_eq!(note(&sql.client, "doc:7", 2).await, (first, false));
    let due = "select round(extract(epoch from scheduled_at - now()) / 60)::int from leasehold.job";
    assert_eq!(sql.one::<i32>(due, &[]).await, 10);
    let why: String = sql.one("select leasehold.why_waiting($1)", &[&first]).await;
    assert!(why.starts_with("limit doc:7 collects enqueues until "), "{why}");
    sql.run("update leasehold.job set enqueued_at = now() - interval '55 minutes'").await;
    assert_eq!(note(&sql.client, "doc:7", 3).await, (first, false));
    assert_eq!(sql.one::<i32>(due, &[]).await, 5, "an hour after the first enqueue");
    assert_eq!(sql.one::<i32>("select (kwargs ->> 'n')::int from leasehold.job", &[]).await, 3);
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 1).await, [0_i64; 0]);
}

#[tokio::test]
async fn l18_two_producers_at_once_wait_for_neither_and_make_one_job() {
    let sql = limited("'doc', 'ann', debounce => '10 minutes', debounce_max => '1 hour'").await;
    let (first, _) = note(&sql.client, "doc:7", 1).await;
    let (one, two) = (sql.actor().await, sql.actor().await);
    run(&two, "set lock_timeout = '1ms'").await;
    run(&one, "begin").await;
    assert_eq!(note(&one, "doc:7", 2).await, (first, false));
    let (second, stored) = note(&two, "doc:7", 3).await;
    assert!(stored, "the first one is locked");
    run(&one, "rollback").await;
    // Its newest value wins, and the first enqueue counts for the latest due time.
    sql.run("update leasehold.job set enqueued_at = enqueued_at - interval '2 hours'").await;
    look_now(&sql).await;
    let job = take(&sql.client, 10).await;
    assert_eq!(job.iter().map(|job| job.0).collect::<Vec<_>>(), [second]);
    let why: String = sql
        .one("select note from leasehold_internal.history where outcome = 'cancelled'", &[])
        .await;
    assert_eq!(why, format!("replaced by job {second}"));
    assert_eq!(sql.count("job").await, 1);
    // While one runs, the next one collects.
    let (third, stored) = note(&sql.client, "doc:7", 4).await;
    assert!(stored);
    sql.run("update leasehold.job set scheduled_at = now() where not held").await;
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "one at a time");
    assert!(complete(&sql.client, job[0]).await);
    assert_eq!(ids(&sql.client, 10).await, [third]);
}

#[tokio::test]
async fn l18_job_that_failed_is_not_replaced() {
    let sql = limited("'doc', 'ann', debounce => '10 minutes'").await;
    let (first, _) = note(&sql.client, "doc:7", 1).await;
    sql.due().await;
    look_now(&sql).await;
    let job = take(&sql.client, 1).await[0];
    sql.client
        .execute("select leasehold.fail($1, $2, 'x', '1 hour')", &[&job.0, &job.1])
        .await
        .unwrap();
    let (second, stored) = note(&sql.client, "doc:7", 2).await;
    assert!(stored && second != first);
    let kept = "select (kwargs ->> 'n')::int from leasehold.job where id = $1";
    assert_eq!(sql.one::<i32>(kept, &[&first]).await, 1);
}

#[tokio::test]
async fn l27_enqueue_within_the_throttle_stores_nothing_and_returns_the_first_job() {
    let sql = limited("'doc', 'ann', throttle => '10 minutes'").await;
    let (first, stored) = note(&sql.client, "doc:7", 1).await;
    assert!(stored);
    assert_eq!(note(&sql.client, "doc:7", 2).await, (first, false));
    assert!(note(&sql.client, "doc:8", 1).await.1, "each key has its own");
    let many = "select count(*) filter (where inserted) from leasehold.enqueue_many(array['note', 'note'], array['{}', '{}']::jsonb[], limit_key => 'doc:9')";
    assert_eq!(sql.one::<i64>(many, &[]).await, 1);
    // It holds though the first job is over.
    for job in take(&sql.client, 10).await {
        assert!(complete(&sql.client, job).await);
    }
    assert_eq!(note(&sql.client, "doc:7", 3).await, (first, false));
    sql.run("update leasehold_internal.limit_throttle set ends_at = now()").await;
    assert!(note(&sql.client, "doc:7", 4).await.1);
}

#[tokio::test]
async fn l27_enqueue_that_is_rolled_back_throttles_none() {
    let sql = limited("'doc', 'ann', throttle => '10 minutes'").await;
    let producer = sql.actor().await;
    run(&producer, "begin").await;
    assert!(note(&producer, "doc:7", 1).await.1);
    run(&producer, "rollback").await;
    assert!(note(&sql.client, "doc:7", 2).await.1);
    sql.run("update leasehold_internal.limit_throttle set ends_at = now() - interval '1 s'").await;
    sql.run("select * from leasehold_internal.prune_kind('limits', 100)").await;
    assert_eq!(sql.count("limit_throttle").await, 0);
}
