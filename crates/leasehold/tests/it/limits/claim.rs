//! Claims of jobs with a limit key, and what gives a key room.

use super::{complete, enqueue, ids, limit, look_now, permits, take, tenants, walk};
use crate::sql::{Sql, blocked, claim, code, joined, one, pid, run, until};

#[tokio::test]
async fn l1_claimer_that_meets_another_at_a_key_takes_nothing() {
    let sql = tenants(1).await;
    let jobs = enqueue(&sql.client, "tenant:7", 4).await;
    let (first, second) = (sql.actor().await, sql.actor().await);
    run(&second, "set lock_timeout = '1ms'").await;
    // The row of the key exists from now on.
    let before = take(&sql.client, 10).await[0];
    assert!(complete(&sql.client, before).await);
    run(&first, "begin").await;
    assert_eq!(ids(&first, 10).await, jobs[1..2]);
    // The other one's permit is not visible yet; the lock of the key is.
    assert_eq!(ids(&second, 10).await, [0_i64; 0]);
    run(&first, "commit").await;
    assert_eq!(ids(&second, 10).await, [0_i64; 0]);
    assert_eq!(permits(&sql).await, ["tenant:7 1"]);
}

#[tokio::test]
async fn l2_permit_of_an_expired_lease_comes_back_once() {
    let sql = tenants(1).await;
    let jobs = enqueue(&sql.client, "tenant:7", 2).await;
    let lost = take(&sql.client, 10).await[0];
    sql.expire(lost.1).await;
    sql.run(
        "update leasehold.job set scheduled_at = now() + interval '1 hour' where lost_count > 0",
    )
    .await;
    let next = take(&sql.client, 10).await;
    assert_eq!(next.iter().map(|job| job.0).collect::<Vec<_>>(), jobs[1..]);
    assert!(!complete(&sql.client, lost).await, "its lease is over");
    assert_eq!(permits(&sql).await, ["tenant:7 1"]);
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    assert!(complete(&sql.client, next[0]).await);
    assert_eq!(permits(&sql).await, [""; 0]);
}

#[tokio::test]
async fn l3_every_end_of_an_attempt_lets_exactly_one_job_start() {
    let sql = tenants(1).await;
    for (n, verb) in [
        "leasehold.complete($1, $2)",
        "leasehold.fail($1, $2, 'an error')",
        "leasehold.snooze($1, $2, '1 hour')",
        "leasehold.defer($1, $2, '1 hour')",
        "leasehold.bury($1, $2, 'an error')",
        "leasehold.finish_cancelled($1, $2)",
        "leasehold.release(array[$1::bigint], $2)",
    ]
    .into_iter()
    .enumerate()
    {
        enqueue(&sql.client, &format!("tenant:{n}"), 3).await;
        let (id, generation) = take(&sql.client, 10).await[0];
        assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "{verb}");
        let call = format!("select count(*) from (select {verb}) done");
        assert_eq!(one::<i64>(&sql.client, &call, &[&id, &generation]).await, 1);
        assert_eq!(take(&sql.client, 10).await.len(), 1, "{verb}");
        assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "{verb}");
    }
}

#[tokio::test]
async fn l3_what_operators_do_with_waiting_jobs_lets_them_start() {
    let sql = tenants(2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 2).await;
    sql.run("update leasehold.job set scheduled_at = now() + interval '1 hour'; delete from leasehold_internal.limit_signal").await;
    sql.client.execute("select leasehold.promote($1, 'ann')", &[&&jobs[..1]]).await.unwrap();
    assert_eq!(ids(&sql.client, 10).await, jobs[..1]);
    sql.client
        .execute("select leasehold.update_job($1, 'ann', scheduled_at => now())", &[&jobs[1]])
        .await
        .unwrap();
    let second = take(&sql.client, 10).await[0];
    assert_eq!(second.0, jobs[1]);
    sql.client
        .execute("select leasehold.bury($1, $2, 'no')", &[&second.0, &second.1])
        .await
        .unwrap();
    sql.client.execute("select leasehold.redrive($1, 'ann')", &[&&jobs[1..]]).await.unwrap();
    assert_eq!(ids(&sql.client, 10).await, jobs[1..]);
    assert_eq!(permits(&sql).await, ["tenant:7 2"]);
}

#[tokio::test]
async fn l4_finish_in_an_open_transaction_keeps_its_permit_and_holds_up_no_other() {
    let sql = tenants(2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 4).await;
    let running = take(&sql.client, 10).await;
    let open = sql.actor().await;
    run(&open, "begin").await;
    assert!(complete(&open, running[0]).await);
    assert!(complete(&sql.client, running[1]).await);
    assert_eq!(ids(&sql.client, 10).await, jobs[2..3], "one permit is free, the other not yet");
    run(&open, "rollback").await;
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    assert_eq!(permits(&sql).await, ["tenant:7 2"]);
    assert!(complete(&sql.client, running[0]).await);
    assert_eq!(ids(&sql.client, 10).await, jobs[3..]);
}

#[tokio::test]
async fn l5_producers_of_the_same_keys_wait_neither_for_each_other_nor_for_claimers() {
    let sql = tenants(1).await;
    let (one_way, other_way) = (sql.actor().await, sql.actor().await);
    run(&one_way, "begin").await;
    run(&other_way, "begin").await;
    enqueue(&one_way, "tenant:a", 1).await;
    enqueue(&other_way, "tenant:b", 1).await;
    enqueue(&one_way, "tenant:b", 1).await;
    enqueue(&other_way, "tenant:a", 1).await;
    let third = enqueue(&sql.client, "tenant:c", 1).await;
    assert_eq!(ids(&sql.client, 10).await, third);
    run(&one_way, "commit").await;
    run(&other_way, "commit").await;
    assert_eq!(take(&sql.client, 10).await.len(), 2, "one of each key");
}

#[tokio::test]
async fn l6_arrival_and_release_during_a_look_are_found_after_it() {
    let sql = tenants(1).await;
    enqueue(&sql.client, "tenant:a", 1).await;
    enqueue(&sql.client, "tenant:b", 2).await;
    let looking = sql.actor().await;
    let first = take(&sql.client, 1).await[0];
    run(&looking, "begin").await;
    assert_eq!(take(&looking, 1).await.len(), 1);
    // Both keys have been looked at and have nothing more to start: tenant:a no job, tenant:b no room.
    enqueue(&sql.client, "tenant:a", 1).await;
    assert!(complete(&sql.client, first).await);
    run(&looking, "commit").await;
    assert_eq!(take(&sql.client, 10).await.len(), 1, "the new job of tenant:a");
    let open: bool = sql
        .one(
            "select exists (select from leasehold.job where not held and limit_key = 'tenant:b')",
            &[],
        )
        .await;
    assert!(open, "tenant:b is full");
}

#[tokio::test]
async fn l6_signal_that_arrives_after_a_look_outlives_it() {
    let sql = tenants(5).await;
    let first = enqueue(&sql.client, "tenant:7", 1).await;
    // The claimer waits after its look, when it writes where the key stands.
    sql.run(
        "create function wait_here() returns trigger language plpgsql as $$ begin \
             perform pg_advisory_xact_lock(42); return new; end $$; \
         create trigger wait_here before update on leasehold_internal.limit_key \
             for each row execute function wait_here(); \
         select pg_advisory_lock(42)",
    )
    .await;
    let claimer = sql.actor().await;
    let pid = pid(&claimer).await;
    let claiming = tokio::spawn(async move { ids(&claimer, 10).await });
    blocked(&sql.client, pid).await;
    let second = enqueue(&sql.client, "tenant:7", 1).await;
    sql.run("select pg_advisory_unlock(42)").await;
    assert_eq!(joined(claiming).await, first);
    assert_eq!(ids(&sql.client, 10).await, second);
}

#[tokio::test]
async fn l7_key_whose_job_is_locked_is_looked_at_again() {
    let sql = tenants(1).await;
    let jobs = enqueue(&sql.client, "tenant:7", 1).await;
    let cancelling = sql.actor().await;
    run(&cancelling, "begin").await;
    cancelling.execute("select leasehold.cancel($1, 'ann')", &[&jobs[0]]).await.unwrap();
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    run(&cancelling, "rollback").await;
    let listed = "select look_at is not null from leasehold_internal.limit_key";
    assert!(sql.one::<bool>(listed, &[]).await);
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, jobs);
}

#[tokio::test]
async fn l8_walk_finds_plain_inserts_and_keys_whose_signals_are_lost() {
    let sql = tenants(1).await;
    sql.run("insert into leasehold.job (name, limit_key) values ('note', 'tenant:a'), ('note', 'tenant:a')").await;
    enqueue(&sql.client, "tenant:b", 1).await;
    sql.run("insert into leasehold.job (name, limit_key, scheduled_at) values ('note', 'tenant:c', now() + interval '1 day')").await;
    sql.run("delete from leasehold_internal.limit_signal").await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    assert_eq!(walk(&sql).await, 2);
    assert_eq!(walk(&sql).await, 0, "they are listed already");
    let started = take(&sql.client, 10).await;
    assert_eq!(started.len(), 2);
    assert_eq!(walk(&sql).await, 0, "tenant:a is full");
    for job in started {
        assert!(complete(&sql.client, job).await);
    }
    sql.run("delete from leasehold_internal.limit_signal").await;
    assert_eq!(walk(&sql).await, 1);
    assert_eq!(take(&sql.client, 10).await.len(), 1);
}

#[tokio::test]
async fn l9_claimer_that_hangs_holds_up_its_own_keys_until_its_session_ends() {
    let sql = tenants(1).await;
    let hanging = sql.actor().await;
    let stuck = enqueue(&sql.client, "tenant:a", 1).await;
    run(&hanging, "begin").await;
    assert_eq!(ids(&hanging, 10).await, stuck);
    // More signals of that key than a claim reads are not in the way of the next key.
    sql.run("insert into leasehold_internal.limit_signal (due_at, queue, key) select now(), 'default', 'tenant:a' from generate_series(1, 300)").await;
    let free = enqueue(&sql.client, "tenant:b", 1).await;
    assert_eq!(ids(&sql.client, 1).await, free);
    let pid = pid(&hanging).await;
    sql.client.execute("select pg_terminate_backend($1)", &[&pid]).await.unwrap();
    until(&sql.client, "select not exists (select from pg_stat_activity where pid = $1)", &[&pid])
        .await;
    assert_eq!(ids(&sql.client, 10).await, stuck);
}

#[tokio::test]
async fn l10_claimer_with_an_older_snapshot_is_refused() {
    for level in ["repeatable read", "serializable"] {
        let sql = tenants(1).await;
        enqueue(&sql.client, "tenant:7", 2).await;
        let other = "select job_id from leasehold.enqueue('other', '{}', limit_key => 'tenant:7')";
        sql.one::<i64>(other, &[]).await;
        let first = take(&sql.client, 10).await[0];
        assert!(complete(&sql.client, first).await);
        let old = sql.actor().await;
        run(&old, &format!("begin isolation level {level}")).await;
        one::<i64>(&old, "select count(*) from leasehold.job", &[]).await;
        // They claim different jobs: only the key is the same.
        let claim = |name: &str| {
            format!(
                "select count(*) from leasehold_internal.claim_limited('w', 'default', 10, null, null, array['{name}'])"
            )
        };
        assert_eq!(sql.one::<i64>(&claim("other"), &[]).await, 1);
        let error = old.query(&claim("note"), &[]).await.expect_err("its count is stale");
        assert_eq!(code(&error), "40001", "{level}");
        run(&old, "rollback").await;
        assert_eq!(permits(&sql).await, ["tenant:7 1"]);
    }
}

#[tokio::test]
async fn l16_keys_take_turns_whatever_waits_behind_them() {
    let sql = tenants(1000).await;
    enqueue(&sql.client, "tenant:large", 30).await;
    for n in 0..5 {
        enqueue(&sql.client, &format!("tenant:small-{n}"), 1).await;
    }
    for _ in 0..7 {
        assert_eq!(take(&sql.client, 1).await.len(), 1);
    }
    let left =
        "select count(*) from leasehold.job where not held and limit_key like 'tenant:small%'";
    assert_eq!(sql.one::<i64>(left, &[]).await, 0, "each has had its turn");
}

#[tokio::test]
async fn l16_weight_gives_a_key_more_jobs_per_turn() {
    let sql = Sql::new().await;
    sql.run("select leasehold.set_limit('default', 'heavy', 'ann', weight => 3)").await;
    for _ in 0..2 {
        enqueue(&sql.client, "heavy", 60).await;
        enqueue(&sql.client, "light", 60).await;
    }
    let mut heavy = 0;
    // Claims of four: a share of two for each key, six for the heavy one.
    for _ in 0..10 {
        for (id, _) in take(&sql.client, 4).await {
            let key: String =
                sql.one("select limit_key from leasehold.job where id = $1", &[&id]).await;
            heavy += usize::from(key == "heavy");
        }
    }
    assert!(heavy > 20, "{heavy} of 40 were heavy");
}

#[tokio::test]
async fn l17_key_with_nothing_to_start_is_left_alone() {
    let sql = tenants(5).await;
    enqueue(&sql.client, "tenant:unknown", 1).await;
    enqueue(&sql.client, "tenant:paused", 1).await;
    sql.run("select leasehold.pause_limit('default', 'tenant:paused', 'ann')").await;
    enqueue(&sql.client, "tenant:late", 1).await;
    sql.run("update leasehold.job set scheduled_at = now() - interval '2 s', expires_at = now() - interval '1 s' where limit_key = 'tenant:late'").await;
    let known = "select count(*) from leasehold_internal.claim_limited('w', 'default', 10, null, null, array['other'])";
    sql.run("create temp table began as select clock_timestamp() as at").await;
    assert_eq!(sql.one::<i64>(known, &[]).await, 0);
    let soon = "select count(*) from leasehold_internal.limit_key, began where look_at < at + interval '500 ms'";
    assert_eq!(sql.one::<i64>(soon, &[]).await, 0);
    assert_eq!(sql.count("limit_signal").await, 0);
    // A worker that knows the name looks again soon.
    look_now(&sql).await;
    assert_eq!(take(&sql.client, 10).await.len(), 1);
}

#[tokio::test]
async fn l23_jobs_without_a_key_write_nothing_for_limits() {
    let sql = tenants(1).await;
    sql.enqueue(20).await;
    let claimed = claim(&sql.client, "w", 20).await;
    let plain = "select not has_extras from leasehold_internal.lease";
    assert!(sql.one::<bool>(plain, &[]).await);
    sql.client
        .execute("select leasehold.complete_many($1, $2)", &[&claimed.ids, &claimed.generation])
        .await
        .unwrap();
    assert_eq!((sql.count("limit_key").await, sql.count("limit_signal").await), (0, 0));
}

#[tokio::test]
async fn l25_program_of_the_release_before_runs_no_job_with_a_key() {
    let sql = tenants(1).await;
    enqueue(&sql.client, "tenant:7", 2).await;
    // The claim of that release, which knows of no limits.
    let former = "select count(*) from leasehold_internal.claim_next('w', 'default', 10, null, null, null, null, \
                  false, -2147483648, true, 2147483647, true, '{}', '{}', '{}', '{}')";
    assert_eq!(sql.one::<i64>(former, &[]).await, 0);
    let around = "select count(*) from leasehold_internal.claim_around('w', 'default', 10, null, null, null)";
    assert_eq!(sql.one::<i64>(around, &[]).await, 0);
    assert_eq!(take(&sql.client, 10).await.len(), 1);
}

#[tokio::test]
async fn job_on_its_last_chance_is_claimed_alone_and_within_its_limit() {
    let sql = tenants(1).await;
    let jobs = enqueue(&sql.client, "tenant:7", 2).await;
    sql.client
        .execute("update leasehold.job set lost_count = 2 where id = $1", &[&jobs[0]])
        .await
        .unwrap();
    let waits = "select leasehold_internal.lost_priority('default', null) is not null";
    let alone = "select count(*) from leasehold_internal.claim_alone('w', 'default', null, null, null, null)";
    let other = take(&sql.client, 10).await;
    assert_eq!(other.iter().map(|job| job.0).collect::<Vec<_>>(), jobs[1..]);
    assert!(
        !sql.one::<bool>(waits, &[]).await,
        "no worker stops for a job that its limit holds back"
    );
    assert_eq!(sql.one::<i64>(alone, &[]).await, 0);
    assert!(complete(&sql.client, other[0]).await);
    assert!(sql.one::<bool>(waits, &[]).await);
    assert_eq!(sql.one::<i64>(alone, &[]).await, 1);
    assert_eq!(permits(&sql).await, ["tenant:7 1"]);
}

#[tokio::test]
async fn claim_of_any_language_takes_jobs_with_a_key_and_recovers_them() {
    let sql = tenants(2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 3).await;
    let id = "00000000-0000-0000-0000-000000000001";
    let call = format!("select count(*) from leasehold.claim('w', claim_id => '{id}')");
    assert_eq!(sql.one::<i64>(&call, &[]).await, 2);
    let again = format!("select count(*) from leasehold.recover_claim('w', '{id}')");
    assert_eq!(sql.one::<i64>(&again, &[]).await, 2);
    limit(&sql, "tenant:7", 3).await;
    assert_eq!(claim(&sql.client, "w", 10).await.ids, jobs[2..]);
}

#[tokio::test]
async fn job_that_a_trigger_refuses_does_not_block_those_behind_it() {
    let sql = tenants(2).await;
    let jobs = enqueue(&sql.client, "tenant:7", 3).await;
    sql.run(&format!(
        "create function refuse() returns trigger language plpgsql as $$ begin \
         if new.held and new.id = {} then raise exception 'refused' using errcode = 'P0001'; end if; return new; end $$; \
         create trigger refuse before update on leasehold.job for each row execute function refuse()",
        jobs[0]
    ))
    .await;
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.extend(claim(&sql.client, "w", 10).await.ids);
        look_now(&sql).await;
    }
    taken.sort_unstable();
    assert_eq!(taken, jobs[1..]);
}
