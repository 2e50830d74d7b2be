//! A table of jobs that is too large to be read every minute. How large that is, is a parameter.

use super::up;
use crate::sql::{Sql, all, one, run};

/// The minute that these tests measure.
const MINUTE: &str = "date_trunc('minute', now()) - interval '1 minute'";

async fn measured(sql: &Sql, subject: &str, metric: &str) -> f64 {
    let text = format!(
        "select coalesce(max(value), 'NaN') from leasehold.measure \
          where kind = 'queue' and subject = '{subject}' and metric = '{metric}'"
    );
    one(&sql.client, &text, &[]).await
}

/// Looks at about a hundred pages, as it would at a share of a very large table.
async fn measure(sql: &Sql) {
    let text = format!(
        "begin; select leasehold.measure_queues({MINUTE}, 100), leasehold.recount_queues({MINUTE}); commit"
    );
    run(&sql.client, "delete from leasehold.measure").await;
    run(&sql.client, &text).await;
    let share: f64 = one(
        &sql.client,
        "select value from leasehold.measure where metric = 'jobs_looked_at_percent'",
        &[],
    )
    .await;
    assert!(share < 50.0, "{share} % of the pages");
}

#[tokio::test]
async fn a_very_long_queue_is_estimated_and_short_ones_are_counted() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold.watch_queue('mail', 'ann', of_max_length => 2000); \
         insert into leasehold.job (queue, name) select 'long', 'note' from generate_series(1, 30000); \
         insert into leasehold.job (queue, name) select 'small', 'note' from generate_series(1, 50); \
         insert into leasehold.job (queue, name, scheduled_at) \
             select 'small', 'note', now() + interval '1 hour' from generate_series(1, 7); \
         insert into leasehold.job (queue, name) select 'mail', 'note' from generate_series(1, 1900)",
    )
    .await;
    measure(&sql).await;
    assert_eq!(measured(&sql, "small", "length").await, 57.0);
    assert_eq!(measured(&sql, "small", "ready").await, 50.0);
    assert_eq!(measured(&sql, "small", "scheduled").await, 7.0);
    assert_eq!(measured(&sql, "small", "workers").await, 0.0);
    assert_eq!(measured(&sql, "mail", "watched_length").await, 1900.0, "counted up to its limit");
    let long = measured(&sql, "long", "length").await;
    assert!((10_000.0..60_000.0).contains(&long), "{long}");
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn live_work_behind_a_very_long_reindex_is_counted_and_not_guessed() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold.watch_queue('notes', 'ann', of_max_length => 1000); \
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
async fn dead_rows_make_the_table_large_and_not_the_reading() {
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
async fn every_queue_with_an_expired_job_is_known() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (queue, name, expires_at) select 'loud', 'note', now() from generate_series(1, 600); \
         insert into leasehold.job (queue, name, expires_at) values ('quiet', 'note', now()); \
         select leasehold.expire_jobs(up_to => 10000)",
    )
    .await;
    run(&sql.client, &format!("select leasehold.measure_queues({MINUTE})")).await;
    let known: Vec<String> = all(
        &sql.client,
        "select subject from leasehold.measure where metric = 'expired_kept' and value > 0 order by 1",
        &[],
    )
    .await;
    assert_eq!(known, ["loud", "quiet"]);
}
