//! Idle queues cost nothing.

use crate::sql::{Sql, all, one, run};
use crate::watch::{a_minute_passes, a_worker, up, value};

#[tokio::test]
async fn c24_idle_queues_write_no_rows() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold_internal.queue (name) select 'tenant' || i from generate_series(1, 5000) i",
    )
    .await;
    let names = "select array_agg(name) from leasehold_internal.queue";
    let names: Vec<String> = one(&sql.client, names, &[]).await;
    // A worker that serves all of them writes no rows either.
    sql.client
        .execute(
            "select leasehold_internal.register_worker('w/1', 'w', 'host', 1, '0', $1, '{}', 1, 0, false)",
            &[&names],
        )
        .await
        .expect("a worker");
    a_minute_passes(&sql).await;
    let rows = "select count(*) from leasehold_internal.measure where kind in ('queue', 'tag')";
    assert_eq!(one::<i64>(&sql.client, rows, &[]).await, 0);
    // Readers still see zeros, and the worker.
    assert_eq!(value(&sql.client, "queue", "default", "ready").await, 0.0);
    assert_eq!(value(&sql.client, "queue", "default", "workers").await, 1.0);
    // A queue with a waiting job writes what it has.
    sql.run("insert into leasehold.job (queue, name) values ('tenant7', 'note')").await;
    a_minute_passes(&sql).await;
    let metrics: Vec<String> = all(
        &sql.client,
        "select metric from leasehold_internal.measure where kind = 'queue' order by metric",
        &[],
    )
    .await;
    assert_eq!(metrics, ["length", "oldest_ready_age", "ready", "watched_length", "workers"]);
}

#[tokio::test]
async fn c24_queues_without_settings_jobs_or_watch_are_pruned() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold_internal.queue (name) values ('idle'), ('busy'), ('dead'), ('watched'), ('fed'), ('served'), ('young'), ('held'); \
         insert into leasehold_internal.queue (name, run_limit) values ('set', '2 hours'); \
         insert into leasehold_internal.queue (name, owner) values ('owned', 'ann'); \
         insert into leasehold_internal.queue (name, paused_at, paused_by) values ('paused', now(), 'ann'); \
         insert into leasehold.job (queue, name) values ('busy', 'note'); \
         insert into leasehold.job (queue, name, scheduled_at, expires_at) values ('dead', 'note', now() - interval '1 hour', now()); \
         select leasehold_internal.expire_jobs(); \
         insert into leasehold_internal.watch (queue, changed_by) values ('watched', 'ann'); \
         insert into leasehold_internal.schedule (name, cron, job_name, queue, next_slot) values ('s', '* * * * *', 'x', 'fed', now()); \
         insert into leasehold_internal.lease (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, job_ids) \
             values (1, now() + interval '1 hour', '30 s', true, 'held', 'w', '{}'); \
         update leasehold_internal.queue set created_at = now() - interval '2 days' where name <> 'young'",
    )
    .await;
    a_worker(&sql.client, "served").await;
    let forgotten: i32 =
        sql.one("select removed from leasehold_internal.prune_kind('queues')", &[]).await;
    assert_eq!(forgotten, 1);
    let left: Vec<String> =
        all(&sql.client, "select name from leasehold_internal.queue order by name", &[]).await;
    assert_eq!(
        left,
        [
            "busy", "dead", "default", "fed", "held", "owned", "paused", "served", "set",
            "watched", "young"
        ]
    );
}

#[tokio::test]
async fn c24_missing_row_counts_as_zero_where_a_sample_was_taken() {
    let sql = Sql::new().await;
    // Of the six minutes of a step four were sampled, and in one of those there were twelve jobs.
    let text = "with base as (select date_bin('6 minutes', now() - interval '12 minutes', '2000-01-01Z') as at) \
        insert into leasehold_internal.measure (at, kind, subject, metric, flow, value) \
        select b.at + make_interval(mins => i), 'database', '', 'sampled', false, 1 from base b, generate_series(0, 3) i \
        union all select b.at, 'queue', 'mail', 'length', false, 12 from base b";
    run(&sql.client, text).await;
    let values: Vec<Option<f64>> = all(
        &sql.client,
        "select value from leasehold_internal.series('queue', '{length}', null, '30 minutes', '6 minutes') where minutes > 0",
        &[],
    )
    .await;
    assert_eq!(values, [Some(3.0)]);
    let gaps: i64 = one(
        &sql.client,
        "select count(*) from leasehold_internal.series('queue', '{length}', null, '30 minutes', '6 minutes') where value is null",
        &[],
    )
    .await;
    assert!(gaps >= 3, "where nothing was sampled there is a gap: {gaps}");
    // The same when the hour is rolled up.
    run(&sql.client, "update leasehold_internal.measure set at = at - interval '5 hours'").await;
    run(&sql.client, "select leasehold_internal.measure_hours('-infinity', now())").await;
    let hour: f64 = one(
        &sql.client,
        "select sum(value * minutes) / sum(minutes) from leasehold_internal.measure_hour where metric = 'length'",
        &[],
    )
    .await;
    let hours: i64 = one(
        &sql.client,
        "select count(*) from leasehold_internal.measure_hour where metric = 'sampled'",
        &[],
    )
    .await;
    // The minutes may span two hours.
    assert!(hour == 3.0 || hours == 2, "{hour}");
}

#[tokio::test]
async fn c24_watched_queue_without_completions_raises_its_alarm_without_any_row() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.watch_queue('mail', 'ann', over => '2 minutes')").await;
    sql.run("update leasehold_internal.watch set since = now() - interval '1 hour'").await;
    let mut passed = 0;
    while up(&sql.client).await.is_empty() && passed < 10 {
        a_minute_passes(&sql).await;
        passed += 1;
    }
    assert_eq!(up(&sql.client).await, ["completion_rate_low mail"]);
    let rows =
        "select count(*) from leasehold_internal.measure where kind = 'queue' and subject = 'mail'";
    assert_eq!(one::<i64>(&sql.client, rows, &[]).await, 0);
}
