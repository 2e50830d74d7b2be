//! Deferred jobs: behind all others of their queue, with their priority and their limits unchanged.

use crate::sql::{Sql, all, claim};

const DEFER: &str = "select leasehold.defer($1, $2, '0', 'the store is away')";

/// Returns what a deferral must not change, and what it must.
async fn row(sql: &Sql) -> (i32, Option<i32>, i32, bool, bool) {
    let text = "select priority, max_attempts, attempts, deferred, held from leasehold.job";
    let row = sql.client.query_one(text, &[]).await.expect("the only job");
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
}

/// Returns a running job that was deferred before.
async fn deferred_and_claimed() -> (Sql, i64, i64) {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    assert!(sql.one::<bool>(DEFER, &[&id, &generation]).await);
    let again = claim(&sql.client, "w", 1).await;
    assert_eq!(again.ids, [id]);
    (sql, id, again.generation)
}

#[tokio::test]
async fn x23_deferral_changes_neither_priority_nor_attempts() {
    let sql = Sql::new().await;
    sql.run("select leasehold.enqueue('note', priority => 7, max_attempts => 3)").await;
    for _ in 0..5 {
        let held = claim(&sql.client, "w", 1).await;
        assert_eq!(row(&sql).await.2, 1, "the attempt is charged");
        assert!(sql.one::<bool>(DEFER, &[&held.ids[0], &held.generation]).await);
        assert_eq!(row(&sql).await, (7, Some(3), 0, true, false));
    }
    let why: String = sql.one("select last_error from leasehold.job", &[]).await;
    assert_eq!(why, "the store is away");
}

#[tokio::test]
async fn x23_deferred_jobs_come_last_whatever_their_priority() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (id, name, priority, scheduled_at, deferred) overriding system value \
         values (1, 'note', -100, now() - interval '1 day', true), (2, 'note', 1000000, now(), false), \
                (3, 'note', 5, now() - interval '1 hour', true), (4, 'note', 0, now(), false)",
    )
    .await;
    let sql_order = "select id from leasehold.claim('w', claim_size => 1)";
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(all::<i64>(&sql.client, sql_order, &[]).await);
    }
    assert_eq!(order, [4, 2, 1, 3]);
}

#[tokio::test]
async fn x23_claim_leaves_the_lane_of_a_job_to_the_end_of_the_attempt() {
    let (sql, id, generation) = deferred_and_claimed().await;
    assert!(row(&sql).await.3, "a claim changes nothing that the index knows");
    let shown = "select deferred from leasehold.jobs where id = $1";
    assert!(!sql.one::<bool>(shown, &[&id]).await, "it does not wait");
    sql.run(&format!("select leasehold.release(array[{id}::bigint], {generation})")).await;
    assert!(row(&sql).await.3, "it did not run");
    assert!(sql.one::<bool>(shown, &[&id]).await);
}

#[tokio::test]
async fn x23_job_leaves_its_lane_when_an_attempt_ends_in_another_way() {
    for end in [
        "select leasehold.fail(ID, GENERATION, 'no', '0')",
        "select leasehold.snooze(ID, GENERATION, '0')",
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second'; \
         select leasehold_internal.reclaim_leases()",
    ] {
        let (sql, id, generation) = deferred_and_claimed().await;
        let end = end.replace("ID", &id.to_string()).replace("GENERATION", &generation.to_string());
        sql.run(&end).await;
        let (_, _, _, deferred, held) = row(&sql).await;
        assert_eq!((deferred, held), (false, false), "{end}");
    }
}

#[tokio::test]
async fn x23_operator_who_promotes_or_changes_a_job_takes_it_out_of_its_lane() {
    for (change, stays) in [
        ("select leasehold.promote(array[ID::bigint], 'ann')", false),
        ("select leasehold.update_job(ID, 'ann', priority => 3)", false),
        ("select leasehold.update_job(ID, 'ann', scheduled_at => now())", false),
        ("select leasehold.update_job(ID, 'ann', tag => 'x')", true),
    ] {
        let sql = Sql::new().await;
        let (id, generation) = sql.running().await;
        sql.run(&format!("select leasehold.defer({id}, {generation}, '1 hour')")).await;
        sql.run(&change.replace("ID", &id.to_string())).await;
        assert_eq!(row(&sql).await.3, stays, "{change}");
    }
}

#[tokio::test]
async fn x23_deferral_that_counts_is_a_failure_and_the_last_one_buries() {
    let sql = Sql::new().await;
    sql.run("select leasehold.enqueue('note', max_attempts => 2)").await;
    let outcome = "select outcome from leasehold_internal.defer_many(array[$1::bigint], $2, array[0], array['busy'], array[true])";
    for (attempt, wanted) in [(1, "deferred"), (2, "buried")] {
        let held = claim(&sql.client, "w", 1).await;
        let ended: String = sql.one(outcome, &[&held.ids[0], &held.generation]).await;
        assert_eq!(ended, wanted, "attempt {attempt}");
    }
    let dead = "select cause || ' ' || attempts || ' ' || last_error || ' ' || jsonb_array_length(errors) \
                  from leasehold.jobs where state = 'dead'";
    assert_eq!(sql.one::<String>(dead, &[]).await, "exhausted 2 busy 2");
    sql.run("select leasehold.redrive(array(select id from leasehold.jobs), 'ann')").await;
    assert!(!row(&sql).await.3, "a job that is redriven starts anew");
}

#[tokio::test]
async fn a19_job_with_a_cancel_request_is_cancelled_instead_of_deferred() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run(&format!("select leasehold.cancel({id}, 'ann')")).await;
    assert!(sql.one::<bool>(DEFER, &[&id, &generation]).await);
    assert_eq!(sql.state(id).await, "cancelled");
}
