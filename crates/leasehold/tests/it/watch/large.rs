//! A job table that is too large to be read every minute. The threshold is a parameter.

use leasehold::alarm;

use super::up;
use crate::sql::{Sql, all, one, run};

/// The minute that these tests measure.
const MINUTE: &str = "date_trunc('minute', now()) - interval '1 minute'";

async fn measured(sql: &Sql, subject: &str, metric: &str) -> f64 {
    let text = format!(
        "select coalesce(max(value) filter (where kind = 'queue' and subject = '{subject}' and metric = '{metric}'), \
                         0 * max(value) filter (where metric = 'sampled'), 'NaN') from leasehold_internal.measure"
    );
    one(&sql.client, &text, &[]).await
}

/// Samples about a hundred pages, like a share of a very large table, without a time limit. Returns
/// how many queues were counted in full.
async fn measure(sql: &Sql) -> i32 {
    measure_by(sql, &format!("leasehold_internal.recount_queues({MINUTE})")).await
}

async fn measure_by(sql: &Sql, recount: &str) -> i32 {
    run(&sql.client, "delete from leasehold_internal.measure").await;
    run(&sql.client, &format!("begin; select leasehold_internal.measure_queues({MINUTE}, 100)"))
        .await;
    let counted = sql.client.query_one(&format!("select {recount}"), &[]).await.unwrap();
    run(&sql.client, "commit").await;
    let share: f64 = one(
        &sql.client,
        "select value from leasehold_internal.measure where metric = 'jobs_looked_at_percent'",
        &[],
    )
    .await;
    assert!(share < 50.0, "{share} % of the pages");
    counted.get("recount_queues")
}

/// Evaluates the last sample, and returns the alarms that are up.
async fn judged(sql: &Sql) -> Vec<String> {
    let measured = "select at from leasehold_internal.measure where metric = 'sampled'";
    let minute: jiff::Timestamp = one(&sql.client, measured, &[]).await;
    // Only the last sample is evaluated.
    let last = "update leasehold_internal.duty set ran_at = $1::timestamptz + interval '1 minute' where name = 'measure'";
    assert_eq!(sql.client.execute(last, &[&minute]).await.unwrap(), 1);
    alarm::evaluate(&sql.client, minute).await.unwrap();
    up(&sql.client).await
}

#[tokio::test]
async fn very_long_queue_is_estimated_and_short_ones_are_counted() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.watch_queue('mail', 'ann', max_length => 2000); \
         insert into leasehold.job (queue, name) select 'long', 'note' from generate_series(1, 30000); \
         insert into leasehold.job (queue, name) select 'small', 'note' from generate_series(1, 50); \
         insert into leasehold.job (queue, name, scheduled_at) \
             select 'small', 'note', now() + interval '1 hour' from generate_series(1, 7); \
         insert into leasehold.job (queue, name) select 'mail', 'note' from generate_series(1, 1900)",
    )
    .await;
    let whole = measure(&sql).await;
    let known =
        "select count(distinct subject)::int from leasehold_internal.measure where kind = 'queue'";
    assert_eq!(whole, one::<i32>(&sql.client, known, &[]).await - 1, "all but the long one");
    assert_eq!(measured(&sql, "small", "length").await, 57.0);
    assert_eq!(measured(&sql, "small", "ready").await, 50.0);
    assert_eq!(measured(&sql, "small", "scheduled").await, 7.0);
    assert_eq!(measured(&sql, "small", "workers").await, 0.0);
    assert_eq!(measured(&sql, "mail", "watched_length").await, 1900.0, "counted up to its limit");
    let long = measured(&sql, "long", "length").await;
    assert!((10_000.0..60_000.0).contains(&long), "{long}");
}

#[tokio::test]
async fn estimated_length_raises_no_alarm() {
    let sql = Sql::new().await;
    // A few pages of each queue are sampled, and the estimate may be on either side of the limit.
    run(
        &sql.client,
        "select leasehold_internal.watch_queue('below', 'ann', max_length => 2000); \
         select leasehold_internal.watch_queue('above', 'ann', max_length => 2000); \
         insert into leasehold.job (queue, name) select 'long', 'note' from generate_series(1, 30000); \
         insert into leasehold.job (queue, name, tag) select 'below', 'note', 'api' from generate_series(1, 2000); \
         insert into leasehold.job (queue, name, tag) select 'above', 'note', 'api' from generate_series(1, 2001); \
         insert into leasehold.job (queue, name, tag, priority) \
             select queue, 'note', 'reindex_all', 1000 from unnest('{below,above}'::text[]) queue, generate_series(1, 5000)",
    )
    .await;
    for _ in 0..5 {
        measure(&sql).await;
        assert_eq!(measured(&sql, "below", "watched_length").await, 2000.0);
        assert!(measured(&sql, "above", "watched_length").await > 2000.0);
        assert_eq!(judged(&sql).await, ["queue_length_high above"]);
        run(&sql.client, "delete from leasehold_internal.alarm").await;
    }
}

#[tokio::test]
async fn queue_that_is_not_counted_in_time_raises_no_alarm() {
    let sql = Sql::new().await;
    // The count meets the bulk jobs first, and the sampled pages show thousands of other jobs.
    run(
        &sql.client,
        "select leasehold_internal.watch_queue('notes', 'ann', max_length => 10); \
         insert into leasehold.job (queue, name, tag) select 'notes', 'a', 'reindex_all' from generate_series(1, 20000); \
         insert into leasehold.job (queue, name, tag) select 'notes', 'b', 'api' from generate_series(1, 10000)",
    )
    .await;
    // The function's time is over when it begins. The statement itself has no timeout: the server
    // reads that setting when a statement starts.
    let late = format!(
        "set_config('statement_timeout', '1ms', true), pg_sleep(0.01), leasehold_internal.recount_queues({MINUTE}), \
         set_config('statement_timeout', '0', true)"
    );
    measure_by(&sql, &late).await;
    assert_eq!(measured(&sql, "notes", "watched_length").await, 10.0, "no more than it may have");
    assert_eq!(judged(&sql).await, Vec::<String>::new());
    measure(&sql).await;
    assert!(measured(&sql, "notes", "watched_length").await > 10.0);
    assert_eq!(judged(&sql).await, ["queue_length_high notes"]);
}

#[tokio::test]
async fn jobs_behind_a_very_long_reindex_are_counted_and_not_estimated() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.watch_queue('notes', 'ann', max_length => 1000); \
         insert into leasehold.job (queue, name, tag, priority) \
             select 'notes', 'index', 'reindex_all', 1000 from generate_series(1, 30000); \
         insert into leasehold.job (queue, name, tag) \
             select 'notes', 'index', 'api' from generate_series(1, 40)",
    )
    .await;
    for _ in 0..5 {
        measure(&sql).await;
        assert_eq!(measured(&sql, "notes", "watched_length").await, 40.0);
    }
}

#[tokio::test]
async fn dead_rows_do_not_slow_down_the_count() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "alter table leasehold.job set (autovacuum_enabled = off); \
         insert into leasehold.job (queue, name) select 'gone', 'note' from generate_series(1, 30000); \
         delete from leasehold.job; \
         insert into leasehold.job (queue, name) select 'mail', 'note' from generate_series(1, 3)",
    )
    .await;
    measure(&sql).await;
    assert_eq!(measured(&sql, "mail", "length").await, 3.0);
}

#[tokio::test]
async fn every_queue_with_an_expired_job_is_sampled() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (queue, name, scheduled_at, expires_at) select 'loud', 'note', now() - interval '1 minute', now() from generate_series(1, 600); \
         insert into leasehold.job (queue, name, scheduled_at, expires_at) values ('quiet', 'note', now() - interval '1 minute', now()); \
         select leasehold_internal.expire_jobs(up_to => 10000)",
    )
    .await;
    run(&sql.client, &format!("select leasehold_internal.measure_queues({MINUTE})")).await;
    let known: Vec<String> = all(
        &sql.client,
        "select subject from leasehold_internal.measure where metric = 'dead_expired' and value > 0 order by 1",
        &[],
    )
    .await;
    assert_eq!(known, ["loud", "quiet"]);
}
