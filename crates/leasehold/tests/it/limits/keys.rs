//! Rows of limit keys: who makes them, and who prunes them.

use super::{complete, enqueue, ids, take, tenants};
use crate::sql::run;

const PRUNE: &str = "select removed from leasehold_internal.prune_kind('limits', anyway => true)";

#[tokio::test]
async fn l24_two_claimers_make_one_row_and_neither_waits() {
    let sql = tenants(1).await;
    let jobs = enqueue(&sql.client, "tenant:7", 1).await;
    let (first, second) = (sql.actor().await, sql.actor().await);
    run(&first, "begin").await;
    assert_eq!(ids(&first, 10).await, jobs);
    run(&second, "set lock_timeout = '1ms'").await;
    assert_eq!(ids(&second, 10).await, [0_i64; 0]);
    run(&first, "rollback").await;
    assert_eq!(ids(&second, 10).await, jobs);
    assert_eq!(sql.count("limit_key").await, 1);
}

#[tokio::test]
async fn l24_pruned_key_that_gets_a_job_is_found() {
    let sql = tenants(1).await;
    enqueue(&sql.client, "tenant:7", 1).await;
    let job = take(&sql.client, 10).await[0];
    assert_eq!(sql.one::<i32>(PRUNE, &[]).await, 0, "it has a job");
    assert!(complete(&sql.client, job).await);
    // The look that finds it empty also takes it off the list.
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    let pruning = sql.actor().await;
    run(&pruning, "begin").await;
    assert_eq!(crate::sql::one::<i32>(&pruning, PRUNE, &[]).await, 1);
    let jobs = enqueue(&sql.client, "tenant:7", 1).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "the row is locked");
    run(&pruning, "commit").await;
    assert_eq!(ids(&sql.client, 10).await, jobs);
}

#[tokio::test]
async fn queue_with_only_limited_jobs_is_counted_like_any_other() {
    let sql = tenants(1).await;
    enqueue(&sql.client, "tenant:7", 3).await;
    sql.enqueue(2).await;
    take(&sql.client, 1).await;
    let row = sql
        .client
        .query_one(
            "select c.whole, c.running, c.ready, c.length, leasehold_internal.oldest_ready_age('default') > 0, \
                    (select array_agg(q) from leasehold_internal.waiting_queues() q) \
               from leasehold_internal.count_queue('default', '{}', 2, 100, null) c",
            &[],
        )
        .await
        .unwrap();
    let counted: (bool, i64, i64, i64) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(counted, (true, 1, 4, 5));
    assert!(row.get::<_, bool>(4));
    assert_eq!(row.get::<_, Vec<String>>(5), ["default"]);
}
