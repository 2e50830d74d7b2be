//! Cancel of a whole batch.

use super::*;
use crate::sql::run;

async fn step(sql: &Sql, batch: i64, up_to: i32) -> (i32, i32, bool) {
    let row = sql
        .client
        .query_one(
            "select * from leasehold.cancel_batch($1, 'ann', up_to => $2)",
            &[&batch, &up_to],
        )
        .await
        .expect("a cancel");
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test]
async fn k8_cancel_goes_in_steps_and_may_be_repeated() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    let other = open(&sql).await;
    add(&sql, other, 5).await;
    assert_eq!(step(&sql, other, 2).await, (2, 0, true));
    assert_eq!(step(&sql, other, 2).await, (2, 0, true));
    assert_eq!(step(&sql, other, 2).await, (1, 0, false));
    assert_eq!(step(&sql, other, 2).await, (0, 0, false), "closed");
    assert_eq!(seen(&sql, other).await, ("cancelled".to_owned(), vec![5, 0, 5, 0, 0]));
    assert_eq!(follow_ups(&sql).await, ["ended"]);
    // Running jobs are asked once, and how they end is up to their handlers.
    assert_eq!(step(&sql, batch, 10).await, (0, 2, false));
    assert_eq!(step(&sql, batch, 10).await, (0, 0, false));
    assert!(complete(&sql.client, ids[0], generation).await);
    sql.run(&format!("select leasehold.finish_cancelled({}, {generation}, 'asked')", ids[1])).await;
    assert_eq!(follow_ups(&sql).await, ["ended", "ended"]);
    let audit: i64 =
        sql.one("select count(*) from leasehold.audit where action = 'cancel'", &[]).await;
    assert_eq!(audit, 2, "one record per cancel");
}

#[tokio::test]
async fn k8_batch_that_is_cancelled_after_all_completed_but_before_the_close_is_no_success() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    add(&sql, batch, 1).await;
    let held = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, held.ids[0], held.generation).await);
    assert_eq!(step(&sql, batch, 10).await, (0, 0, false));
    assert_eq!(follow_ups(&sql).await, ["ended"]);
}

#[tokio::test]
async fn k8_cancel_meets_the_end_of_a_member_and_each_counts_once() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, ids[0], generation).await);
    let (cancelled, requested, more) = step(&sql, batch, 10).await;
    assert_eq!((cancelled, requested, more), (0, 1, true), "a locked job is skipped");
    run(&worker, "commit").await;
    sql.run(&format!("select leasehold.fail({}, {generation}, 'stopped')", ids[1])).await;
    assert_eq!(seen(&sql, batch).await, ("cancelled".to_owned(), vec![2, 1, 1, 0, 0]));
    assert_eq!((look(&sql).await, follow_ups(&sql).await), (0, vec!["ended".to_owned()]));
}

#[tokio::test]
async fn k8_housekeeping_continues_a_cancel_that_stopped_half_way() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    add(&sql, batch, 5).await;
    step(&sql, batch, 1).await;
    look(&sql).await;
    assert_eq!(seen(&sql, batch).await, ("cancelled".to_owned(), vec![5, 0, 5, 0, 0]));
    assert_eq!(follow_ups(&sql).await, ["ended"]);
}
