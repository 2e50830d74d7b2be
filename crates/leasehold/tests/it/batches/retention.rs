//! How long batches and results are kept.

use super::*;

const PRUNE: &str =
    "select removed from leasehold_internal.prune_kind('batches', 1000, '7 days', true)";

#[tokio::test]
async fn k16_closed_batches_and_results_go_with_the_history_and_open_ones_stay() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    sql.run(&format!("select leasehold.complete({}, {generation}, '7')", ids[0])).await;
    let open_one = open(&sql).await;
    add(&sql, open_one, 1).await;
    assert_eq!(sql.one::<i32>(PRUNE, &[]).await, 0);
    sql.run(
        "update leasehold_internal.batch set created_at = now() - interval '40 days', \
             sealed_at = sealed_at - interval '40 days', closed_at = closed_at - interval '8 days'",
    )
    .await;
    assert_eq!(sql.one::<i32>(PRUNE, &[]).await, 0, "its follow-up may read the results");
    sql.run("select leasehold.cancel(id, 'me') from leasehold.job where name = 'succeeded'").await;
    assert_eq!(sql.one::<i32>(PRUNE, &[]).await, 2, "the batch and a result");
    let left: Vec<i64> = all(&sql.client, "select id from leasehold.batches", &[]).await;
    assert_eq!(
        (left, sql.count("job_result").await),
        (vec![open_one], 0),
        "an open batch with a job stays"
    );
    assert_ne!(batch, open_one);
    // Without a job it is pruned after 30 days.
    let empty = open(&sql).await;
    sql.run(&format!("update leasehold_internal.batch set created_at = now() - interval '31 days' where id = {empty}")).await;
    assert_eq!(sql.one::<i32>(PRUNE, &[]).await, 1);
    assert_eq!(sql.one::<i64>("select count(*) from leasehold.batches", &[]).await, 1);
}

#[tokio::test]
async fn k16_results_of_single_jobs_go_with_the_history() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run(&format!("select leasehold.complete({id}, {generation}, '7')")).await;
    let prune =
        "select removed from leasehold_internal.prune_kind('results', 1000, '7 days', true)";
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0);
    sql.run("update leasehold_internal.job_result set kept_at = now() - interval '8 days'").await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 1);
}
