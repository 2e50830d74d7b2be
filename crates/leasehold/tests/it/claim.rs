//! Claim: what is due, in order, never more than asked for, all or nothing.

use crate::sql::{Claim, Sql, all, blocked, claim, joined, one, pid, run, try_claim};

#[tokio::test]
async fn claim_takes_due_jobs_in_order() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, priority, tag) values \
         ('a', now() - interval '3 minutes', 5, '4'), ('b', now() - interval '1 minute', 1, '2'), \
         ('a', now() - interval '2 minutes', 1, '1'), ('b', now() + interval '1 day', 0, 'later'), \
         ('a', now(), 1, '3')",
    )
    .await;
    sql.run("insert into leasehold.job (name, scheduled_at, expires_at, tag) values ('a', now() - interval '1 minute', now(), 'too late')")
        .await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(
            all::<String>(
                &sql.client,
                "select tag from leasehold.claim('w', claim_size => 1)",
                &[],
            )
            .await,
        );
    }
    assert_eq!(order, ["1", "2", "3", "4"]);
    assert_eq!(claim(&sql.client, "w", 100).await.ids, [0_i64; 0]);
}

#[tokio::test]
async fn claim_takes_known_names_only() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name) values ('known'), ('newer release')").await;
    let names = "select name from leasehold.claim('w', names => array['known', 'other'])";
    assert_eq!(all::<String>(&sql.client, names, &[]).await, ["known"]);
    assert_eq!(all::<String>(&sql.client, names, &[]).await, [""; 0]);
}

#[tokio::test]
async fn claim_takes_nothing_from_a_paused_queue() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    let claimed = "select id from leasehold.claim('w')";
    sql.run("select leasehold.pause('default', 'ann', 'maintenance')").await;
    assert_eq!(all::<i64>(&sql.client, claimed, &[]).await, [0_i64; 0]);
    sql.run("select leasehold.resume('default', 'ann')").await;
    assert_eq!(all::<i64>(&sql.client, claimed, &[]).await.len(), 1);
    assert_eq!(sql.count("audit").await, 2, "both were noted");
}

#[tokio::test]
async fn job_whose_worker_died_is_claimed_alone() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(5).await;
    let first = claim(&sql.client, "w", 2).await;
    sql.expire(first.generation).await;
    let mut sizes = Vec::new();
    for _ in 0..3 {
        sizes.push(claim(&sql.client, "w", 10).await.ids);
    }
    assert_eq!(sizes, [vec![ids[0]], vec![ids[1]], ids[2..].to_vec()]);
}

#[tokio::test]
async fn two_claimers_share_the_jobs_and_neither_waits() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(4).await;
    sql.run("select leasehold_internal.queue_settings('default')").await;
    let (first, second) = (sql.actor().await, sql.actor().await);
    run(&first, "begin").await;
    // The first claimer holds its locks for longer than this timeout.
    run(&second, "begin; set local lock_timeout = '30s'").await;
    let one = claim(&first, "first", 2).await;
    let two = claim(&second, "second", 10).await;
    assert_eq!((one.ids, two.ids), (ids[..2].to_vec(), ids[2..].to_vec()));
    run(&first, "rollback").await;
    run(&second, "commit").await;
    assert_eq!(
        claim(&sql.client, "third", 10).await.ids,
        ids[..2],
        "a claim that rolled back took nothing"
    );
}

/// Makes a claim stop in the middle of its rows, until the test releases the advisory lock.
const STALL: &str = "
    create function public.stall() returns trigger language plpgsql as $$
    begin
        if new.held and new.tag = 'stall' then perform pg_advisory_xact_lock(41); end if;
        return new;
    end $$;
    create trigger stall before update on leasehold.job for each row execute function public.stall();
    update leasehold.job set tag = 'stall' where kwargs ->> 'n' = '40'";

#[tokio::test]
async fn a9_claim_killed_before_its_commit_claims_nothing() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(100).await;
    sql.run(STALL).await;
    sql.run("select pg_advisory_lock(41)").await;
    let worker = sql.actor().await;
    let worker_pid = pid(&worker).await;
    let claiming = tokio::spawn(async move { try_claim(&worker, "worker", 100).await.is_err() });
    blocked(&sql.client, worker_pid).await;
    assert!(sql.one::<bool>("select pg_terminate_backend($1)", &[&worker_pid]).await);
    assert!(joined(claiming).await, "the claimer sees an error");
    // The client gets the error a moment before the server releases the locks.
    let gone = "select not exists (select from pg_stat_activity where pid = $1)";
    crate::sql::until(&sql.client, gone, &[&worker_pid]).await;
    sql.run("select pg_advisory_unlock(41)").await;
    let untouched: i64 = sql
        .one(
            "select count(*) from leasehold.job where not held and attempts = 0 and lease_generation = 0",
            &[],
        )
        .await;
    assert_eq!(untouched, 100);
    assert_eq!(sql.count("lease").await, 0);
    assert_eq!(claim(&sql.client, "next", 100).await.ids, ids);
}

#[tokio::test]
async fn generations_of_a_job_grow_when_a_claim_waits_for_a_lock() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    sql.run("select leasehold_internal.queue_settings('default')").await;
    let (slow, quick) = (sql.actor().await, sql.actor().await);
    // The slow claimer has begun and waits for the table, which the quick one has locked.
    run(&quick, "begin; lock table leasehold.job in access exclusive mode").await;
    let slow_pid = pid(&slow).await;
    let slow = tokio::spawn(async move {
        let sql = "select lease_generation from leasehold_internal.claim_next('slow', 'default', 1, null, null, \
                   null, null, false, -2147483648, true, 2147483647, true, '{}', '{}', '{}', '{}')";
        all::<i64>(&slow, sql, &[]).await
    });
    blocked(&sql.client, slow_pid).await;
    let between = claim(&quick, "quick", 1).await;
    assert_eq!(between.ids, [id]);
    run(&quick, &format!("select leasehold.release(array[{id}::bigint], {})", between.generation))
        .await;
    run(&quick, "commit").await;
    let mut last = joined(slow).await;
    if last.is_empty() {
        last.push(claim(&sql.client, "again", 1).await.generation);
    }
    assert!(
        last[0] > between.generation,
        "{} after {}: who compares generations would refuse the present holder and trust the former",
        last[0],
        between.generation
    );
}

#[tokio::test]
async fn a13_claim_takes_no_more_than_asked_under_every_plan() {
    let sql = Sql::new().await;
    let settings = [
        "",
        "set enable_hashjoin = off; set enable_mergejoin = off",
        "set enable_nestloop = off; set enable_mergejoin = off",
        "set enable_nestloop = off; set enable_hashjoin = off",
        "set enable_tidscan = off",
        "set enable_indexscan = off; set enable_bitmapscan = off; set enable_indexonlyscan = off",
        "set enable_seqscan = off; set enable_sort = off; set enable_material = off",
        "set plan_cache_mode = force_generic_plan",
    ];
    let next = "select array_agg(id) from leasehold_internal.claim_next('w', 'default', 7, null, null, \
                array['a', 'b', 'c'], null, false, -2147483648, true, 2147483647, true, \
                array[false], array[0], array['-infinity']::timestamptz[], array[0]::bigint[])";
    // Statistics from when the table was tiny, and from when it was large.
    for (seen, there) in [(1, 400), (20_000, 400)] {
        sql.run("truncate leasehold.job, leasehold_internal.lease").await;
        fill(&sql, seen).await;
        sql.run("analyze leasehold.job; delete from leasehold.job").await;
        fill(&sql, there).await;
        for setting in settings {
            let worker = sql.actor().await;
            run(&worker, setting).await;
            for _ in 0..3 {
                let took: Vec<i64> = one(&worker, next, &[]).await;
                assert_eq!(took.len(), 7, "{setting} after statistics of {seen} rows");
                let took: Claim = claim(&worker, "w", 5).await;
                assert_eq!(took.ids.len(), 5, "{setting} after statistics of {seen} rows");
            }
        }
        let wrong: i64 = sql
            .one(
                "select count(*) from leasehold_internal.lease l where cardinality(job_ids) <> \
                 (select count(*) from leasehold.job j where j.lease_generation = l.lease_generation and held)",
                &[],
            )
            .await;
        assert_eq!(wrong, 0, "each lease lists exactly what it holds");
    }
}

#[tokio::test]
async fn sabotage_limit_inside_a_join_takes_more_than_asked() {
    let sql = Sql::new().await;
    fill(&sql, 50).await;
    let worker = sql.actor().await;
    run(&worker, "set enable_hashjoin = off; set enable_mergejoin = off; set enable_material = off; \
                  set enable_hashagg = off; set enable_sort = off; set enable_indexscan = off; set enable_bitmapscan = off")
        .await;
    let naive = "update leasehold.job j set held = true where j.id in (select p.id from leasehold.job p \
                 where not p.held limit 1 for update skip locked)";
    let took = worker.execute(naive, &[]).await.unwrap();
    assert!(took > 1, "A13 shows nothing if this takes {took}");
}

/// Jobs of three names with two priorities, all due.
async fn fill(sql: &Sql, rows: i32) {
    sql.client
        .execute(
            "insert into leasehold.job (name, priority, scheduled_at) \
             select (array['a', 'b', 'c'])[1 + i % 3], (i % 3) / 2, now() - interval '1 minute' \
               from generate_series(1, $1) i",
            &[&rows],
        )
        .await
        .unwrap();
}
