//! Chains, and results of jobs.

use super::*;
use crate::sql::{refused, run};

const CHAIN: &str = "select job_id from leasehold.enqueue('first', \
    on_success => '{\"name\": \"second\", \"on_success\": {\"name\": \"third\"}, \"on_death\": {\"name\": \"alert\"}}')";

#[tokio::test]
async fn k10_chain_runs_each_job_once_in_its_order() {
    let sql = Sql::new().await;
    sql.run(CHAIN).await;
    for name in ["first", "second", "third"] {
        let held = claim(&sql.client, "w", 10).await;
        assert_eq!(held.ids.len(), 1);
        let found: String = sql.one("select name from leasehold.job where held", &[]).await;
        assert_eq!(found, name);
        assert!(complete(&sql.client, held.ids[0], held.generation).await);
        // The reply of the commit was lost, and the worker sends the finish again.
        assert!(!complete(&sql.client, held.ids[0], held.generation).await);
    }
    assert_eq!((look(&sql).await, claim(&sql.client, "w", 10).await.ids.len()), (0, 0));
}

#[tokio::test]
async fn k10_late_finish_after_a_reclaim_starts_no_second_follow_up() {
    let sql = Sql::new().await;
    let id: i64 = sql.one(CHAIN, &[]).await;
    let late = claim(&sql.client, "late", 1).await;
    sql.expire(late.generation).await;
    let held = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, id, held.generation).await);
    assert!(!complete(&sql.client, id, late.generation).await);
    let next: i64 = sql.one("select count(*) from leasehold.job where name = 'second'", &[]).await;
    assert_eq!(next, 1);
    let second = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.bury({}, {}, 'no')", second.ids[0], second.generation))
        .await;
    assert_eq!(follow_ups(&sql).await.last().expect("a job"), "alert");
    // A redrive of the dead job of a chain starts it alone.
    sql.run(&format!("select leasehold.redrive(array[{}]::bigint[], 'me')", second.ids[0])).await;
    let count: i64 = sql.one("select count(*) from leasehold.job where name = 'third'", &[]).await;
    assert_eq!((count, look(&sql).await), (0, 0));
}

#[tokio::test]
async fn k10_chain_whose_first_job_is_enqueued_twice_with_a_key_is_one_chain() {
    let sql = Sql::new().await;
    let keyed = "select inserted from leasehold.enqueue('first', key => 'k', on_success => '{\"name\": \"second\"}')";
    assert!(sql.one::<bool>(keyed, &[]).await);
    assert!(!sql.one::<bool>(keyed, &[]).await);
    assert_eq!(sql.one::<i64>("select count(*) from leasehold.batches", &[]).await, 1);
}

#[tokio::test]
async fn k17_result_is_kept_with_the_completion_and_only_by_the_owner() {
    let sql = Sql::new().await;
    let id: i64 = sql.one(CHAIN, &[]).await;
    let late = claim(&sql.client, "late", 1).await;
    sql.expire(late.generation).await;
    let held = claim(&sql.client, "w", 1).await;
    let keep = "select leasehold.complete($1::bigint, $2, $3)";
    let (mine, theirs) = (serde_json::json!({"n": 1}), serde_json::json!({"n": 2}));
    assert!(!sql.one::<bool>(keep, &[&id, &late.generation, &theirs]).await);
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(one::<bool>(&worker, keep, &[&id, &held.generation, &mine]).await);
    run(&worker, "rollback").await;
    assert_eq!(sql.count("job_result").await, 0, "rolled back with the completion");
    assert!(sql.one::<bool>(keep, &[&id, &held.generation, &mine]).await);
    let next = claim(&sql.client, "w", 1).await.ids[0];
    let read = "select result from leasehold.batch_results(leasehold.followed_batch($1))";
    assert_eq!(sql.one::<serde_json::Value>(read, &[&next]).await, mine);
    let direct: serde_json::Value = sql.one("select leasehold.result($1)", &[&id]).await;
    assert_eq!(direct, mine);
    let large = "select leasehold.complete(1, 1, to_jsonb(repeat('x', 70000)))";
    assert!(refused(&sql.client, large, &[]).await.1.contains("64 KiB"));
}
