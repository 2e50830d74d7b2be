//! Limits of a whole queue and of a name.

use super::{complete, enqueue, ids, take};
use crate::sql::{Sql, claim, code, one, run};

async fn limited(limit: &str) -> Sql {
    let sql = Sql::new().await;
    sql.run(&format!("select leasehold.set_limit('default', {limit})")).await;
    sql
}

#[tokio::test]
async fn l28_queue_runs_no_more_jobs_than_its_limit_with_and_without_keys() {
    let sql = limited("null, 'ann', 3").await;
    let plain = sql.enqueue(5).await;
    enqueue(&sql.client, "tenant:7", 5).await;
    let first = claim(&sql.client, "w", 2).await;
    let mut running = first.ids.len() + take(&sql.client, 10).await.len();
    while running < 3 {
        running += claim(&sql.client, "w", 10).await.ids.len();
    }
    assert_eq!(running, 3);
    for _ in 0..4 {
        assert_eq!(claim(&sql.client, "w", 10).await.ids, [0_i64; 0]);
        assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    }
    let why: String = sql.one("select leasehold.why_waiting($1)", &[&plain[4]]).await;
    assert_eq!(why, "it waits for the limit of queue default, 3 of 3 running");
    assert!(complete(&sql.client, (first.ids[0], first.generation)).await);
    assert_eq!(claim(&sql.client, "w", 10).await.ids.len(), 1);
    assert_eq!(claim(&sql.client, "w", 10).await.ids, [0_i64; 0]);
    sql.run("select leasehold.remove_limit('default', null, 'ann')").await;
    let mut more = 0;
    for _ in 0..3 {
        more += claim(&sql.client, "w", 10).await.ids.len();
    }
    assert!(more > 1, "{more} more jobs without the limit");
}

#[tokio::test]
async fn l28_claimer_that_meets_another_at_a_queue_limit_takes_nothing() {
    let sql = limited("null, 'ann', 1").await;
    sql.enqueue(4).await;
    // The row of the queue exists from now on.
    let first = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, (first.ids[0], first.generation)).await);
    sql.run("set lock_timeout = '1s'").await;
    let other = sql.actor().await;
    run(&other, "begin").await;
    assert_eq!(claim(&other, "other", 5).await.ids.len(), 1);
    assert_eq!(claim(&sql.client, "w", 5).await.ids, [0_i64; 0], "its job is not visible yet");
    run(&other, "commit").await;
    assert_eq!(claim(&sql.client, "w", 5).await.ids, [0_i64; 0]);
}

#[tokio::test]
async fn l28_claimer_with_an_older_snapshot_is_refused_at_a_queue_limit() {
    let sql = limited("null, 'ann', 1").await;
    sql.enqueue(3).await;
    let first = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, (first.ids[0], first.generation)).await);
    let old = sql.actor().await;
    run(&old, "begin isolation level repeatable read").await;
    one::<i64>(&old, "select count(*) from leasehold.job", &[]).await;
    assert_eq!(claim(&sql.client, "w", 1).await.ids.len(), 1);
    let error = crate::sql::try_claim(&old, "old", 1).await.expect_err("its count is stale");
    assert_eq!(code(&error), "40001");
}

#[tokio::test]
async fn l28_rate_of_a_queue_counts_every_start() {
    let sql = limited("null, 'ann', rate => 60, per => '1 hour', burst => 2").await;
    sql.enqueue(5).await;
    enqueue(&sql.client, "tenant:7", 5).await;
    let mut started = 0;
    for _ in 0..4 {
        started += claim(&sql.client, "w", 10).await.ids.len() + take(&sql.client, 10).await.len();
    }
    assert_eq!(started, 2);
    sql.run("update leasehold_internal.limit_key set full_at = full_at - interval '1 minute' where key = ''").await;
    started = 0;
    for _ in 0..4 {
        started += claim(&sql.client, "w", 10).await.ids.len() + take(&sql.client, 10).await.len();
    }
    assert_eq!(started, 1);
}

#[tokio::test]
async fn l29_limit_of_a_name_holds_for_its_jobs_however_they_were_stored() {
    let sql = Sql::new().await;
    // Stored before the limit, by enqueue after it, and by a plain INSERT.
    sql.enqueue(2).await;
    sql.run("select leasehold.set_limit('default', 'note', 'ann', 2, by_name => true)").await;
    sql.enqueue(2).await;
    sql.run("insert into leasehold.job (name) values ('note'), ('other')").await;
    let names = "select name from leasehold.job where held order by 1";
    for _ in 0..5 {
        claim(&sql.client, "w", 10).await;
    }
    let running: Vec<String> = crate::sql::all(&sql.client, names, &[]).await;
    assert_eq!(running, ["note", "note", "other"]);
    let plain: i64 = sql
        .one("select id from leasehold.job where limit_key is null and name = 'note'", &[])
        .await;
    let why: String = sql.one("select leasehold.why_waiting($1)", &[&plain]).await;
    assert_eq!(why, "it waits until it gets the limit key note of its name");
    super::walk(&sql).await;
    sql.run("select leasehold.complete(id, lease_generation) from leasehold.job where held").await;
    let mut ran = 0;
    for _ in 0..10 {
        ran += claim(&sql.client, "w", 10).await.ids.len();
        sql.run("select leasehold.complete(id, lease_generation) from leasehold.job where held")
            .await;
    }
    assert_eq!((ran, sql.count("job").await), (3, 0));
}
