//! Lease generations after their sequence was set back.

use crate::sql::{Sql, all, blocked, claim, joined, one, pid, run};

/// Sets the sequences back to an earlier state, as if the database were on another server.
const SET_BACK: &str =
    "select setval('leasehold_internal.generation', 1), setval('leasehold_internal.epoch', 1)";
const NEXT: &str = "select leasehold_internal.next_generation()";

#[tokio::test]
async fn b14_first_generation_on_another_server_is_greater_than_all_before() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.next_generation() from generate_series(1, 10)").await;
    let (id, before) = sql.running().await;
    sql.run(SET_BACK).await;
    sql.expire(before).await;
    let after = claim(&sql.client, "second", 1).await;
    assert_eq!(after.ids, [id]);
    assert!(after.generation > before, "{before}, then {}", after.generation);
}

#[tokio::test]
async fn b14_generation_grows_when_a_dump_was_loaded_into_the_same_server() {
    let sql = Sql::new().await;
    let mut before: i64 = sql.one(NEXT, &[]).await;
    for _ in 0..3 {
        // As pg_restore does it: the sequences are created anew and get the values of the dump.
        sql.run(
            "do $$ declare \
                generations bigint := (select last_value from leasehold_internal.generation) - 1; \
                epochs bigint := (select last_value from leasehold_internal.epoch); \
             begin \
                drop sequence leasehold_internal.generation, leasehold_internal.epoch; \
                create sequence leasehold_internal.generation; create sequence leasehold_internal.epoch; \
                perform setval('leasehold_internal.generation', generations); \
                perform setval('leasehold_internal.epoch', epochs); \
             end $$",
        )
        .await;
        let after: i64 = sql.one(NEXT, &[]).await;
        assert!(after >> 20 > before >> 20, "{before}, then {after}");
        before = after;
    }
}

#[tokio::test]
async fn b14_new_epoch_begins_above_what_a_standby_can_lose_and_above_the_clock() {
    let sql = Sql::new().await;
    // More claims than milliseconds have passed since 2025.
    sql.run("select setval('leasehold_internal.generation', 1099511627776), setval('leasehold_internal.epoch', 1)")
        .await;
    let high: i64 = sql.one(NEXT, &[]).await;
    assert!(high >> 20 >= 1_099_511_627_776 + (1 << 26), "{high}");
    sql.run(SET_BACK).await;
    let low: i64 = sql.one(NEXT, &[]).await;
    let milliseconds: i64 = sql
        .one("select (extract(epoch from now() - '2025-01-01 00:00Z') * 1000)::bigint", &[])
        .await;
    assert!((low >> 20) + 60_000 > milliseconds, "{low}");
    // As long as the server is the same, the sequence in a generation (all but its 20 random bits)
    // grows one by one.
    let next: i64 = sql.one(NEXT, &[]).await;
    assert_eq!(next >> 20, (low >> 20) + 1);
}

#[tokio::test]
async fn b14_long_transaction_that_begins_an_epoch_delays_no_claim() {
    let sql = Sql::new().await;
    sql.enqueue(2).await;
    sql.run(SET_BACK).await;
    // Both see the old epoch and wait for the row, the long transaction first.
    let gate = sql.actor().await;
    run(&gate, "begin; select from leasehold_internal.epoch_guard for update").await;
    let (long, other) = (sql.actor().await, sql.actor().await);
    run(&long, "begin").await;
    run(&other, "set lock_timeout = '20s'").await;
    let (long_pid, other_pid) = (pid(&long).await, pid(&other).await);
    let first = tokio::spawn(async move { (claim(&long, "long", 1).await, long) });
    blocked(&sql.client, long_pid).await;
    let second = tokio::spawn(async move { (claim(&other, "other", 1).await, other) });
    blocked(&sql.client, other_pid).await;
    run(&gate, "commit").await;
    let (first, long) = joined(first).await;
    let (second, other) = joined(second).await;
    // Which of them draws first is open once both have the epoch.
    let [first, second] = [first.generation >> 20, second.generation >> 20];
    assert!(first != second && first.min(second) > 1 << 26, "{first}, {second}");
    run(&long, "rollback").await;
    let third = claim(&other, "other", 1).await.generation >> 20;
    assert!(third > first.max(second), "the rollback set nothing back");
}

#[tokio::test]
async fn b14_claims_at_once_begin_one_epoch_together() {
    let sql = Sql::new().await;
    sql.run(SET_BACK).await;
    // All claimers see the old epoch and wait for the row.
    let gate = sql.actor().await;
    run(&gate, "begin; select from leasehold_internal.epoch_guard for update").await;
    let mut claimers = Vec::new();
    for _ in 0..8 {
        let client = sql.actor().await;
        let claimer = pid(&client).await;
        let drawing = tokio::spawn(async move {
            let sql = "select leasehold_internal.next_generation() from generate_series(1, 20)";
            all::<i64>(&client, sql, &[]).await
        });
        blocked(&sql.client, claimer).await;
        claimers.push(drawing);
    }
    run(&gate, "commit").await;
    let mut drawn = Vec::new();
    for claimer in claimers {
        let own = joined(claimer).await;
        assert!(own.is_sorted());
        drawn.extend(own.into_iter().map(|generation| generation >> 20));
    }
    drawn.sort_unstable();
    assert!(drawn.windows(2).all(|two| two[0] + 1 == two[1]), "{drawn:?}");
}

#[tokio::test]
async fn b16_calls_in_serializable_transactions_work_or_fail_to_serialise() {
    for level in ["repeatable read", "serializable"] {
        let sql = Sql::new().await;
        let (first, second) = (sql.actor().await, sql.actor().await);
        for client in [&first, &second] {
            run(client, &format!("set default_transaction_isolation = '{level}'")).await;
            run(client, "begin; select count(*) from leasehold.job").await;
        }
        // The same key twice: the second enqueue waits, and its snapshot does not show what the
        // first stored.
        let enqueue = "select job_id from leasehold.enqueue('note', key => 'k')";
        let id: i64 = one(&first, enqueue, &[]).await;
        let second_pid = pid(&second).await;
        let waiting = tokio::spawn(async move { (second.query(enqueue, &[]).await, second) });
        blocked(&sql.client, second_pid).await;
        run(&first, "commit").await;
        let (answer, second) = joined(waiting).await;
        assert_eq!(crate::sql::code(&answer.expect_err(level)), "40001", "{level}");
        run(&second, "rollback").await;
        assert_eq!(one::<i64>(&second, enqueue, &[]).await, id, "{level}: again, and there is one");
        // The whole life of a job, each step in a transaction of that level; an epoch begins there too.
        sql.run(SET_BACK).await;
        let held = claim(&first, "w", 1).await;
        assert_eq!(held.ids, [id], "{level}");
        let renew = "select state from leasehold.renew(array[$1::bigint])";
        assert_eq!(one::<String>(&first, renew, &[&held.generation]).await, "renewed", "{level}");
        let fail = "select leasehold.fail($1::bigint, $2, 'later', interval '0')";
        let outcome: String = one(&first, fail, &[&id, &held.generation]).await;
        assert_eq!(outcome, "retry", "{level}");
        let held = claim(&first, "w", 1).await;
        let complete = "select leasehold.complete($1::bigint, $2)";
        assert!(one::<bool>(&first, complete, &[&id, &held.generation]).await, "{level}");
        assert_eq!(sql.state(id).await, "completed", "{level}");
    }
}
