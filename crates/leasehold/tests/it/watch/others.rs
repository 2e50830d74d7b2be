//! Every rule beyond those about one fault of a queue: raised, and cleared when the cause is gone.

use leasehold::alarm;

use super::{a_minute_passes, a_worker, age, happened, up, value};
use crate::sql::{Sql, claim, one, run};

async fn minutes(sql: &Sql, count: usize) {
    for _ in 0..count {
        a_minute_passes(sql).await;
    }
}

#[tokio::test]
async fn old_ready_job_of_an_unwatched_queue_raises_an_alarm() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    age(&sql.client, "59 minutes").await;
    a_worker(&sql.client, "default").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["oldest_ready_age default"]);
    // A paused queue makes its jobs wait on purpose.
    run(&sql.client, "select leasehold.pause('default', 'ann', 'a move')").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    run(&sql.client, "select leasehold.resume('default', 'ann')").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["oldest_ready_age default"]);
    let claimed = claim(&sql.client, "w", 1).await;
    assert_eq!(claimed.ids, [id]);
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn dead_jobs_raise_an_alarm_until_fifteen_minutes_without() {
    let sql = Sql::new().await;
    for _ in 0..10 {
        let (id, generation) = sql.running().await;
        run(&sql.client, &format!("select leasehold.bury({id}, {generation}, 'no')")).await;
    }
    let minute = a_minute_passes(&sql).await.minute;
    assert_eq!(up(&sql.client).await, ["dead_jobs_growing default"]);
    // Evaluates the same sample as if they had died `minutes` before it, so that the clock does not matter.
    let judged = async |minutes: i32| {
        run(&sql.client, "delete from leasehold_internal.measure where metric = 'buried'").await;
        let text = "insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) values \
             ($1::timestamptz - make_interval(mins => $2), 'queue', 'default', 'buried', true, 10)";
        sql.client.execute(text, &[&minute, &minutes]).await.unwrap();
        alarm::evaluate(&sql.client, minute).await.unwrap();
        up(&sql.client).await
    };
    assert_eq!(judged(14).await, ["dead_jobs_growing default"]);
    assert_eq!(judged(15).await, Vec::<String>::new());
}

#[tokio::test]
async fn queue_with_ready_jobs_and_no_worker_raises_an_alarm_after_five_minutes() {
    let (sql, logs) = (Sql::new().await, crate::logs::Logs::collect());
    sql.enqueue(1).await;
    // Samples of the last five minutes. One is missing if the clock's minute turns between two samples.
    let seen = "select count(*) from leasehold_internal.measure where metric = 'sampled' and at > \
        (select max(at) from leasehold_internal.measure where metric = 'sampled') - interval '5 minutes'";
    let mut sampled = 0;
    while sampled < 5 {
        assert_eq!(up(&sql.client).await, Vec::<String>::new(), "after {sampled} minutes");
        minutes(&sql, 1).await;
        sampled = one::<i64>(&sql.client, seen, &[]).await;
    }
    assert_eq!(up(&sql.client).await, ["no_workers default"]);
    // The one warning about a job that was enqueued in the caller's transaction.
    assert!(logs.has("WARN", "queue default has ready jobs and no live worker"), "{}", logs.text());
    a_worker(&sql.client, "default").await;
    minutes(&sql, 1).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    assert_eq!(value(&sql.client, "queue", "default", "workers").await, 1.0);
}

#[tokio::test]
async fn workers_that_die_under_their_jobs_raise_an_alarm() {
    let sql = Sql::new().await;
    a_worker(&sql.client, "default").await;
    sql.enqueue(10).await;
    let claimed = claim(&sql.client, "w", 10).await;
    sql.overdue(claimed.generation).await;
    run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["lease_losses default"]);
    // The jobs complete; the losses grow old.
    run(&sql.client, "delete from leasehold.job").await;
    minutes(&sql, 15).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn mirror_that_differs_for_too_long_raises_an_alarm() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.declare_mirror('notes.index', 'public.notes', 'id', 'text', 'version', 'notes', \
             'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500)",
    )
    .await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    assert_eq!(value(&sql.client, "mirror", "notes.index", "differences").await, 0.0);
    run(
        &sql.client,
        "insert into leasehold_internal.mirror_difference (mirror, key, kind, first_seen) \
         values ('notes.index', 'a', 'missing', now() - interval '8 minutes'), ('notes.index', 'b', 'stale', now())",
    )
    .await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    assert_eq!(value(&sql.client, "mirror", "notes.index", "differences").await, 2.0);
    run(
        &sql.client,
        "update leasehold_internal.mirror_difference set first_seen = first_seen - interval '3 minutes'",
    )
    .await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["mirror_difference_age notes.index"]);
    run(&sql.client, "delete from leasehold_internal.mirror_difference where key = 'a'").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn mirror_that_is_not_compared_raises_an_alarm() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.declare_mirror('notes.index', 'public.notes', 'id', 'text', 'version', 'notes', \
             'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500); \
         update leasehold_internal.mirror set created_at = now() - interval '1 day', rows_compared = 9000",
    )
    .await;
    // It may have no store at all.
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    // A round takes ten minutes: ten ranges, a minute each.
    let equal = async |minutes: i32| {
        let text = format!(
            "update leasehold_internal.mirror set equal_as_of = now() - interval '{minutes} minutes'"
        );
        run(&sql.client, &text).await;
        a_minute_passes(&sql).await;
        up(&sql.client).await
    };
    assert_eq!(equal(77).await, Vec::<String>::new());
    assert_eq!(equal(81).await, ["mirror_not_compared notes.index"]);
    let summary: String = one(
        &sql.client,
        "select summary from leasehold_internal.alarm where rule = 'mirror_not_compared'",
        &[],
    )
    .await;
    assert!(summary.contains("is a worker running that can reach its store?"), "{summary}");
    // One fault, one alarm.
    run(
        &sql.client,
        "insert into leasehold_internal.mirror_difference (mirror, key, kind, first_seen) \
         values ('notes.index', 'a', 'missing', now() - interval '11 minutes')",
    )
    .await;
    assert_eq!(equal(81).await, ["mirror_difference_age notes.index"]);
    run(&sql.client, "delete from leasehold_internal.mirror_difference").await;
    assert_eq!(equal(1).await, Vec::<String>::new());
}

#[tokio::test]
async fn rows_of_a_mirror_are_counted_by_outcome_and_tag() {
    let sql = Sql::new().await;
    for (tag, what, n) in [
        ("storage.create_annotation", "synced_missing", 2),
        ("storage.create_annotation", "completed_up_to_date", 5),
        ("reindex_user", "completed_up_to_date", 7),
    ] {
        run(&sql.client, &format!("insert into leasehold_internal.tally (queue, tag, what, n, subject) values ('notes', '{tag}', '{what}', {n}, 'notes.index')")).await;
    }
    a_minute_passes(&sql).await;
    let counted = async |kind: &str, subject: &str, metric: &str| {
        happened(&sql.client, kind, subject, metric).await
    };
    assert_eq!(counted("mirror", "notes.index", "completed_up_to_date").await, 12.0);
    assert_eq!(counted("mirror", "notes.index", "synced_missing").await, 2.0);
    let of_tag = counted("mirror_tag", "notes.index/reindex_user", "completed_up_to_date").await;
    assert_eq!(of_tag, 7.0);
    assert!(counted("queue", "notes", "synced_missing").await.is_nan());
}
