//! Rates: how many jobs start per time.

use super::{enqueue, ids, look_now, take};
use crate::sql::{Sql, run};

/// A database in which each tenant starts `rate` jobs per hour, after `burst` at once.
async fn rated(rate: i32, burst: i32) -> Sql {
    let sql = Sql::new().await;
    sql.run(&format!("select leasehold.set_limit('default', 'tenant', 'ann', rate => {rate}, per => '1 hour', burst => {burst})")).await;
    sql
}

/// Lets time pass for the buckets.
async fn pass(sql: &Sql, time: &str) {
    sql.run(&format!(
        "update leasehold_internal.limit_key set full_at = full_at - interval '{time}'"
    ))
    .await;
    look_now(sql).await;
}

#[tokio::test]
async fn l14_bucket_gives_its_burst_and_then_a_start_per_interval() {
    let sql = rated(60, 3).await;
    let jobs = enqueue(&sql.client, "tenant:7", 10).await;
    let other = enqueue(&sql.client, "tenant:8", 1).await;
    let mut started = ids(&sql.client, 100).await;
    started.sort_unstable();
    assert_eq!(started, [&jobs[..3], &other].concat(), "each key has a bucket of its own");
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 100).await, [0_i64; 0]);
    let why: String = sql.one("select leasehold.why_waiting($1)", &[&jobs[4]]).await;
    assert!(
        why.starts_with("it waits for the rate of limit tenant:7, 60 per 01:00:00, until "),
        "{why}"
    );
    assert!(why.ends_with(", 1 before it"), "{why}");
    // The key is looked at when it has its next token, and not before.
    let in_time = "select look_at between now() + interval '50 s' and now() + interval '60 s' \
                     from leasehold_internal.limit_key where key = 'tenant:7'";
    sql.run("update leasehold_internal.limit_key set look_at = now() where key = 'tenant:7'").await;
    assert_eq!(ids(&sql.client, 100).await, [0_i64; 0]);
    assert!(sql.one::<bool>(in_time, &[]).await);
    pass(&sql, "1 minute").await;
    assert_eq!(ids(&sql.client, 100).await, jobs[3..4]);
    pass(&sql, "2 minutes").await;
    assert_eq!(ids(&sql.client, 100).await, jobs[4..6]);
    // A long pause fills the bucket and no more.
    pass(&sql, "1 day").await;
    assert_eq!(ids(&sql.client, 100).await, jobs[6..9]);
}

#[tokio::test]
async fn l14_start_that_is_released_or_retried_takes_a_token_each_time() {
    let sql = rated(60, 2).await;
    enqueue(&sql.client, "tenant:7", 1).await;
    for verb in ["leasehold.release(array[$1::bigint], $2)", "leasehold.fail($1, $2, 'x', '0')"] {
        let job = take(&sql.client, 1).await[0];
        let call = format!("select count(*) from (select {verb}) done");
        sql.one::<i64>(&call, &[&job.0, &job.1]).await;
        look_now(&sql).await;
    }
    assert_eq!(ids(&sql.client, 1).await, [0_i64; 0], "both tokens are gone");
}

#[tokio::test]
async fn l14_clock_that_goes_back_empties_the_bucket_and_does_not_stop_the_key() {
    let sql = rated(60, 2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 5).await;
    assert_eq!(ids(&sql.client, 10).await, jobs[..2]);
    // The clock went back by a year: the bucket seems full only in a year.
    sql.run("update leasehold_internal.limit_key set full_at = full_at + interval '1 year'").await;
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    sql.run("select leasehold.set_limit('default', 'tenant', 'ann', rate => 1000000, per => '1 second', burst => 2)").await;
    sql.run("update leasehold_internal.limit_key set full_at = now() + interval '1 year'").await;
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "empty, but not for a year");
    let soon = "select coalesce(look_at < now() + interval '1 minute', false) from leasehold_internal.limit_key";
    assert!(sql.one::<bool>(soon, &[]).await);
}

#[tokio::test]
async fn l14_rolled_back_claim_gives_its_tokens_back() {
    let sql = rated(60, 2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 3).await;
    let claimer = sql.actor().await;
    run(&claimer, "begin").await;
    assert_eq!(ids(&claimer, 10).await, jobs[..2]);
    run(&claimer, "rollback").await;
    assert_eq!(ids(&sql.client, 10).await, jobs[..2]);
}

#[tokio::test]
async fn l14_prune_keeps_the_bucket_of_a_key_until_it_is_full() {
    let sql = rated(60, 1).await;
    enqueue(&sql.client, "tenant:7", 1).await;
    let job = take(&sql.client, 1).await[0];
    assert!(super::complete(&sql.client, job).await);
    assert_eq!(ids(&sql.client, 1).await, [0_i64; 0]);
    let prune = "select removed from leasehold_internal.prune_kind('limits', 100)";
    sql.run(prune).await;
    enqueue(&sql.client, "tenant:7", 1).await;
    assert_eq!(ids(&sql.client, 1).await, [0_i64; 0], "the token is still gone");
}
