//! The last end of a batch, alone and with others.

use super::*;
use crate::sql::{blocked, joined, pid, run};

#[tokio::test]
async fn k1_last_two_ends_overlap_and_one_follow_up_comes() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    let (one, two) = (sql.actor().await, sql.actor().await);
    for (client, id) in [(&one, ids[0]), (&two, ids[1])] {
        run(client, "begin").await;
        assert!(complete(client, id, generation).await);
    }
    assert_eq!(look(&sql).await, 0, "nothing is committed");
    run(&one, "commit").await;
    assert_eq!(look(&sql).await, 0, "one end is committed");
    run(&two, "commit").await;
    assert!(follow_ups(&sql).await.is_empty(), "no end saw the other");
    assert_eq!((look(&sql).await, look(&sql).await), (1, 0), "the next look closes it, once");
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
    assert_eq!(seen(&sql, batch).await, ("closed".to_owned(), vec![2, 2, 0, 0, 0]));
}

#[tokio::test]
async fn k1_end_that_is_alone_closes_its_batch_in_its_own_transaction() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    assert!(complete(&sql.client, ids[0], generation).await);
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, ids[1], generation).await);
    let inside: bool = one(
        &worker,
        "select closed_at is not null from leasehold.batches where id = $1",
        &[&batch],
    )
    .await;
    assert!(inside);
    assert!(follow_ups(&sql).await.is_empty(), "not before the commit");
    run(&worker, "commit").await;
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
    assert!(!complete(&sql.client, ids[1], generation).await, "a late finish");
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (0, 1));
}

#[tokio::test]
async fn k2_last_end_rolls_back_beside_another_one() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    let (one, two) = (sql.actor().await, sql.actor().await);
    for (client, id) in [(&one, ids[0]), (&two, ids[1])] {
        run(client, "begin").await;
        assert!(complete(client, id, generation).await);
    }
    run(&one, "commit").await;
    run(&two, "rollback").await;
    assert_eq!((look(&sql).await, seen(&sql, batch).await.1), (0, vec![2, 1, 0, 0, 0]));
    assert!(complete(&sql.client, ids[1], generation).await);
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k2_close_that_rolls_back_comes_again() {
    let sql = Sql::new().await;
    let (_, ids, generation) = running(&sql, 1).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, ids[0], generation).await);
    run(&worker, "rollback").await;
    assert!(follow_ups(&sql).await.is_empty());
    assert!(complete(&sql.client, ids[0], generation).await);
    assert_eq!((look(&sql).await, follow_ups(&sql).await), (0, vec!["succeeded".to_owned()]));
}

#[tokio::test]
async fn k3_batch_that_is_sealed_after_its_last_end_closes() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    let ids = add(&sql, batch, 2).await;
    let held = claim(&sql.client, "w", 10).await;
    for id in ids {
        assert!(complete(&sql.client, id, held.generation).await);
    }
    // Counted before the seal, so that no end is left to find.
    assert_eq!((look(&sql).await, seen(&sql, batch).await.0), (0, "open".to_owned()));
    assert!(sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await);
    assert!(!sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await, "again");
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k3_seal_that_overlaps_the_last_end_leaves_the_batch_to_the_next_look() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    add(&sql, batch, 1).await;
    let held = claim(&sql.client, "w", 10).await;
    let (worker, producer) = (sql.actor().await, sql.actor().await);
    run(&worker, "begin").await;
    assert!(complete(&worker, held.ids[0], held.generation).await);
    run(&producer, "begin").await;
    assert!(one::<bool>(&producer, "select leasehold.seal_batch($1)", &[&batch]).await);
    run(&worker, "commit").await;
    run(&producer, "commit").await;
    assert_eq!((look(&sql).await, follow_ups(&sql).await), (1, vec!["succeeded".to_owned()]));
}

#[tokio::test]
async fn k4_empty_batch_closes_when_it_is_sealed() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    assert!(follow_ups(&sql).await.is_empty());
    sql.run(&format!("select leasehold.seal_batch({batch})")).await;
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
    assert_eq!(seen(&sql, batch).await, ("closed".to_owned(), vec![0; 5]));
    // In a transaction with a snapshot of its own nothing may be closed; the next look does it.
    let (second, worker) = (open(&sql).await, sql.actor().await);
    run(&worker, "begin isolation level repeatable read").await;
    assert!(one::<bool>(&worker, "select leasehold.seal_batch($1)", &[&second]).await);
    run(&worker, "commit").await;
    assert_eq!((seen(&sql, second).await.0, look(&sql).await), ("sealed".to_owned(), 1));
}

#[tokio::test]
async fn k5_session_that_is_killed_while_it_closes_changes_nothing() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, ids[0], generation).await);
    let killed: bool =
        sql.one("select pg_terminate_backend($1, 60000)", &[&pid(&worker).await]).await;
    assert!(killed);
    assert_eq!((seen(&sql, batch).await.0, look(&sql).await), ("sealed".to_owned(), 0));
    // Its lease runs out, and another worker completes the job.
    sql.expire(generation).await;
    let held = claim(&sql.client, "second", 1).await;
    assert!(complete(&sql.client, ids[0], held.generation).await);
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k9_each_way_to_end_counts_a_job_once() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    let ids = add(&sql, batch, 7).await;
    sql.run(&format!("select leasehold.seal_batch({batch})")).await;
    // Deleted, cancelled and expired while they wait.
    sql.run(&format!("select leasehold.delete_jobs(array[{0}, {0}]::bigint[], 'me')", ids[0]))
        .await;
    sql.run(&format!("select leasehold.cancel({}, 'me')", ids[1])).await;
    sql.run(&format!(
        "update leasehold.job set scheduled_at = now() - interval '2 days', \
                      expires_at = now() - interval '1 day' where id = {}",
        ids[2]
    ))
    .await;
    sql.run("select leasehold_internal.expire_jobs()").await;
    let held = claim(&sql.client, "w", 4).await;
    assert_eq!(held.ids, ids[3..]);
    let generation = held.generation;
    // Buried, completed, lost at its last attempt, retried and completed.
    sql.run(&format!("select leasehold.bury({}, {generation}, 'no')", ids[3])).await;
    assert!(complete(&sql.client, ids[4], generation).await);
    sql.run(&format!("select leasehold.fail({}, {generation}, 'again', '0')", ids[6])).await;
    assert_eq!(seen(&sql, batch).await.1, [7, 1, 1, 2, 1], "a retry is no end");
    sql.run(&format!("update leasehold.job set max_attempts = 1 where id = {}", ids[5])).await;
    sql.expire(generation).await;
    assert!(!complete(&sql.client, ids[5], generation).await, "a late finish");
    assert_eq!(seen(&sql, batch).await.1, [7, 1, 1, 3, 1]);
    let held = claim(&sql.client, "w", 4).await;
    assert!(complete(&sql.client, ids[6], held.generation).await);
    assert_eq!(seen(&sql, batch).await, ("closed".to_owned(), vec![7, 2, 1, 3, 1]));
    assert_eq!((follow_ups(&sql).await, look(&sql).await), (vec!["died".to_owned()], 0));
}

#[tokio::test]
async fn k9_without_a_death_the_follow_up_is_the_one_for_any_end() {
    let sql = Sql::new().await;
    let (_, ids, generation) = running(&sql, 2).await;
    assert!(complete(&sql.client, ids[0], generation).await);
    sql.run(&format!("select leasehold.finish_cancelled({}, {generation}, 'not needed')", ids[1]))
        .await;
    assert_eq!(follow_ups(&sql).await, ["ended"]);
}

#[tokio::test]
async fn k11_end_in_a_transaction_with_an_old_snapshot_leaves_the_close_to_the_next_look() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    let worker = sql.actor().await;
    run(&worker, "begin isolation level repeatable read").await;
    one::<i64>(&worker, "select count(*) from leasehold.job", &[]).await;
    // The other member adds one that this snapshot does not see.
    sql.run("begin").await;
    sql.run(&format!("select leasehold.extend_batch({}, {generation})", ids[0])).await;
    let third = add(&sql, batch, 1).await[0];
    sql.run("commit").await;
    assert!(complete(&worker, ids[1], generation).await);
    run(&worker, "commit").await;
    assert!(complete(&sql.client, ids[0], generation).await);
    assert!(follow_ups(&sql).await.is_empty(), "one job is left");
    let held = claim(&sql.client, "w", 10).await;
    assert_eq!(held.ids, [third]);
    run(&worker, "begin isolation level repeatable read").await;
    assert!(complete(&worker, third, held.generation).await);
    run(&worker, "commit").await;
    assert_eq!((follow_ups(&sql).await.len(), look(&sql).await), (0, 1));
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k14_follow_up_that_is_refused_fails_no_finish() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    sql.run(
        "alter table leasehold.job add constraint no_success check (name <> 'succeeded') not valid",
    )
    .await;
    assert!(complete(&sql.client, ids[0], generation).await);
    assert_eq!(
        (look(&sql).await, seen(&sql, batch).await),
        (0, ("sealed".to_owned(), vec![1, 1, 0, 0, 0]))
    );
    sql.run("alter table leasehold.job drop constraint no_success").await;
    assert_eq!((look(&sql).await, follow_ups(&sql).await), (1, vec!["succeeded".to_owned()]));
}

#[tokio::test]
async fn k14_end_does_not_wait_for_a_batch_that_is_locked() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    let other = sql.actor().await;
    run(&other, "begin").await;
    run(&other, &format!("select from leasehold_internal.batch where id = {batch} for update"))
        .await;
    assert!(complete(&sql.client, ids[0], generation).await, "without waiting");
    assert_eq!(look(&sql).await, 0);
    run(&other, "rollback").await;
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (1, 1));
}

/// Leaves sealed batches of one job whose end did not close them, and returns them with their jobs.
async fn left_by_ends(sql: &Sql, count: usize) -> Vec<(i64, i64)> {
    let worker = sql.actor().await;
    let mut left = Vec::new();
    for _ in 0..count {
        let (batch, ids, generation) = running(sql, 1).await;
        run(&worker, "begin isolation level repeatable read").await;
        assert!(complete(&worker, ids[0], generation).await);
        run(&worker, "commit").await;
        left.push((batch, ids[0]));
    }
    left
}

#[tokio::test]
async fn k1_look_stops_after_its_budget_and_the_next_one_continues() {
    let sql = Sql::new().await;
    left_by_ends(&sql, 3).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let sql_text = "select * from leasehold_internal.look_at_batches('1 hour', '0')";
        let row = sql.client.query_one(sql_text, &[]).await.expect("a look");
        seen.push((row.get::<_, i32>(0), row.get::<_, bool>(1)));
    }
    // The interval between two looks does not hold back the rest of one.
    assert_eq!(seen, [(1, true), (1, true), (1, true), (0, false)]);
    assert_eq!(follow_ups(&sql).await.len(), 3);
}

#[tokio::test]
async fn k14_follow_up_that_is_refused_keeps_no_other_batch_open() {
    let sql = Sql::new().await;
    let left = left_by_ends(&sql, 2).await;
    let refuse =
        "update leasehold_internal.batch set on_success = '{\"name\": \"refused\"}' where id = $1";
    sql.client.execute(refuse, &[&left[0].0]).await.expect("a change");
    sql.run(
        "alter table leasehold.job add constraint no_success check (name <> 'refused') not valid",
    )
    .await;
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (1, 1));
    sql.run("alter table leasehold.job drop constraint no_success").await;
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (1, 2));
}

#[tokio::test]
async fn k11_look_with_an_old_snapshot_does_not_close_a_batch_that_got_a_member_back() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    let (worker, housekeeper) = (sql.actor().await, sql.actor().await);
    run(&worker, "begin isolation level repeatable read").await;
    run(&worker, &format!("select leasehold.bury({}, {generation}, 'no')", ids[0])).await;
    run(&worker, "commit").await;
    assert_eq!(seen(&sql, batch).await.0, "sealed", "the next look would close it");
    run(&housekeeper, "begin isolation level repeatable read").await;
    one::<i64>(&housekeeper, "select count(*) from leasehold.job", &[]).await;
    sql.run(&format!("select leasehold.redrive(array[{}]::bigint[], 'me')", ids[0])).await;
    run(&housekeeper, "select leasehold_internal.look_at_batches('-1 day', '1 minute')").await;
    run(&housekeeper, "commit").await;
    assert_eq!((seen(&sql, batch).await.0, look(&sql).await), ("sealed".to_owned(), 0));
    let held = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, ids[0], held.generation).await);
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k21_completion_without_a_batch_reads_no_batch() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    let extras: bool = sql
        .one(
            "select has_extras from leasehold_internal.lease where lease_generation = $1",
            &[&generation],
        )
        .await;
    assert!(!extras);
    // Locked against every read: a completion that looked would wait.
    let other = sql.actor().await;
    run(
        &other,
        "begin; lock table leasehold_internal.batch, leasehold_internal.batch_member, \
                 leasehold_internal.batch_end, leasehold_internal.job_result",
    )
    .await;
    assert!(complete(&sql.client, id, generation).await);
    run(&other, "rollback").await;
    // A member waits for the lock: the flag is what decides.
    let (_, ids, generation) = running(&sql, 1).await;
    run(&other, "begin; lock table leasehold_internal.batch_member").await;
    let worker = sql.actor().await;
    let waiting = pid(&worker).await;
    let task = tokio::spawn(async move { complete(&worker, ids[0], generation).await });
    blocked(&sql.client, waiting).await;
    run(&other, "rollback").await;
    assert!(joined(task).await);
}
