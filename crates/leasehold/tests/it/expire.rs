//! Expiry: jobs of dead workers return with the loss counted; jobs past `expires_at` become dead.

use crate::sql::{Sql, all, claim, one, run};

async fn expire(sql: &Sql) -> (i32, i32) {
    let row = sql
        .client
        .query_one("select returned, buried from leasehold_internal.reclaim_leases()", &[])
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn lost_job_is_reclaimed_with_its_loss_counted() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(3).await;
    let held = claim(&sql.client, "w", 3).await;
    assert_eq!(expire(&sql).await, (0, 0), "the lease lasts");
    sql.overdue(held.generation).await;
    assert_eq!(expire(&sql).await, (3, 0));
    assert_eq!(expire(&sql).await, (0, 0), "once");
    let same: i64 = sql
        .one(
            "select count(*) from leasehold.job where not held and attempts = 1 and lost_count = 1 \
             and scheduled_at <= statement_timestamp() and last_error like 'the worker was lost%'",
            &[],
        )
        .await;
    assert_eq!(same, 3);
    let lost: Vec<i64> = sql
        .one("select lost_ids from leasehold_internal.lease where ended_at is not null", &[])
        .await;
    assert_eq!(lost, ids);
}

#[tokio::test]
async fn job_is_buried_after_three_lost_workers() {
    let sql = Sql::new().await;
    let (id, mut generation) = sql.running().await;
    for loss in 1..=3 {
        sql.overdue(generation).await;
        let expected = if loss < 3 { (1, 0) } else { (0, 1) };
        assert_eq!(expire(&sql).await, expected, "loss {loss}");
        if loss < 3 {
            sql.due().await;
            generation = claim(&sql.client, "w", 10).await.generation;
        }
    }
    let buried: bool = sql
        .one("select cause = 'lost' and lost_count = 3 and claimed_by = 'w' from leasehold_internal.dead_job where id = $1", &[&id])
        .await;
    assert!(buried);
}

#[tokio::test]
async fn job_is_buried_when_the_worker_of_its_last_attempt_is_lost() {
    let sql = Sql::new().await;
    let id: i64 =
        sql.one("select job_id from leasehold.enqueue('note', max_attempts => 1)", &[]).await;
    let held = claim(&sql.client, "w", 1).await;
    sql.overdue(held.generation).await;
    assert_eq!(expire(&sql).await, (0, 1));
    let cause: String =
        sql.one("select cause from leasehold_internal.dead_job where id = $1", &[&id]).await;
    assert_eq!(cause, "exhausted");
}

#[tokio::test]
async fn a7_reclaim_skips_a_job_that_is_being_finished() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(2).await;
    let held = claim(&sql.client, "w", 2).await;
    sql.overdue(held.generation).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    let complete = "select leasehold.complete($1::bigint, $2)";
    assert!(one::<bool>(&worker, complete, &[&ids[0], &held.generation]).await);
    // The worker holds its locks for longer than this timeout.
    sql.run("set lock_timeout = '30s'").await;
    assert_eq!(expire(&sql).await, (1, 0), "the other one, and without waiting");
    run(&worker, "commit").await;
    assert_eq!(
        (sql.state(ids[0]).await, sql.state(ids[1]).await),
        ("completed".into(), "ready".into())
    );
    expire(&sql).await;
    let open: i64 =
        sql.one("select count(*) from leasehold_internal.lease where ended_at is null", &[]).await;
    assert_eq!(open, 0, "the next round ends the lease");
}

#[tokio::test]
async fn a7_job_whose_finish_rolled_back_is_reclaimed_in_the_next_round() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.overdue(generation).await;
    let worker = sql.actor().await;
    run(&worker, &format!("begin; select leasehold.complete({id}::bigint, {generation})")).await;
    assert_eq!(expire(&sql).await, (0, 0));
    run(&worker, "rollback").await;
    assert_eq!(expire(&sql).await, (1, 0));
}

#[tokio::test]
async fn job_with_a_cancel_request_is_cancelled_when_its_worker_is_lost() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run(&format!("select leasehold.cancel({id}, 'ann')")).await;
    sql.expire(generation).await;
    assert_eq!(sql.state(id).await, "cancelled");
    let explain = "select state from leasehold_internal.explain_finish(array[$1::bigint], $2)";
    assert_eq!(sql.one::<String>(explain, &[&id, &generation]).await, "lost");
}

#[tokio::test]
async fn g3_lease_from_a_clock_that_went_back_is_shortened() {
    let sql = Sql::new().await;
    let (_, far) = sql.running().await;
    let (_, near) = sql.running().await;
    sql.client
        .execute(
            "update leasehold_internal.lease set lease_expires_at = now() + interval '2 days' where lease_generation = $1",
            &[&far],
        )
        .await
        .unwrap();
    assert_eq!(sql.one::<i32>("select leasehold_internal.clamp_leases()", &[]).await, 1);
    let beyond: i64 = sql
        .one(
            "select count(*) from leasehold_internal.lease where lease_expires_at > now() + interval '25 hours'",
            &[],
        )
        .await;
    assert_eq!(beyond, 0, "{near} was right already");
}

#[tokio::test]
async fn expired_jobs_are_found_deep_in_the_backlog_and_never_run() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, expires_at) \
         select 'note', case when i in (2500, 9999, 20000) then now() - interval '1 minute' when i % 2 = 0 then now() + interval '1 day' else now() end, \
                case when i in (2500, 9999, 20000) then now() - interval '1 second' else now() + interval '2 days' end \
           from generate_series(1, 20000) i",
    )
    .await;
    let late: Vec<i64> =
        all(&sql.client, "select id from leasehold.job where expires_at < now() order by id", &[])
            .await;
    let (mut after, mut found, mut steps) = (0_i64, 0, 0);
    loop {
        let row = sql
            .client
            .query_one(
                "select expired, next_id from leasehold_internal.expire_jobs($1, 1000)",
                &[&after],
            )
            .await
            .unwrap();
        found += row.get::<_, i32>(0);
        steps += 1;
        match row.get::<_, Option<i64>>(1) {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!((found, steps), (3, 21), "every row looked at once, a thousand at a time");
    let kept: Vec<i64> = all(
        &sql.client,
        "select id from leasehold_internal.dead_job where cause = 'expired' and attempts = 0 order by id",
        &[],
    )
    .await;
    assert_eq!(kept, late);
    let counted: i64 =
        sql.one("select dead_expired from leasehold.queues where queue = 'default'", &[]).await;
    assert_eq!(counted, 3);
}

#[tokio::test]
async fn expired_job_is_not_claimed() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    sql.run("update leasehold.job set expires_at = now() - interval '1 second'").await;
    assert_eq!(claim(&sql.client, "w", 5).await.ids, [0_i64; 0], "J11");
}

#[tokio::test]
async fn running_job_does_not_expire() {
    let sql = Sql::new().await;
    let (running, generation) = sql.running().await;
    let waiting = sql.enqueue(1).await[0];
    sql.run("update leasehold.job set expires_at = now() - interval '1 second'").await;
    assert_eq!(
        sql.one::<i32>("select expired from leasehold_internal.expire_jobs()", &[]).await,
        1
    );
    assert_eq!(
        (sql.state(running).await, sql.state(waiting).await),
        ("running".into(), "dead".into())
    );
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&running, &generation])
            .await
    );
}

#[tokio::test]
async fn d1_two_housekeepers_share_the_work() {
    let sql = Sql::new().await;
    sql.enqueue(4).await;
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(claim(&sql.client, "w", 1).await.generation);
    }
    for generation in leases {
        sql.overdue(generation).await;
    }
    let (first, second) = (sql.actor().await, sql.actor().await);
    run(&first, "begin").await;
    assert_eq!(
        one::<i32>(&first, "select returned from leasehold_internal.reclaim_leases(3)", &[]).await,
        3
    );
    run(&second, "set lock_timeout = '30s'").await;
    assert_eq!(
        one::<i32>(&second, "select returned from leasehold_internal.reclaim_leases(3)", &[]).await,
        1
    );
    let elected = "select elected from leasehold_internal.reclaim()";
    assert!(one::<bool>(&first, elected, &[]).await);
    assert!(!one::<bool>(&second, elected, &[]).await, "one is enough");
    run(&first, "commit").await;
    assert!(one::<bool>(&second, elected, &[]).await, "the election ends with the statement");
    let counts: Vec<i16> = all(&sql.client, "select lost_count from leasehold.job", &[]).await;
    assert_eq!(counts, [1, 1, 1, 1], "each loss is counted once");
}

#[tokio::test]
async fn reclaim_returns_the_counts_of_each_queue() {
    let sql = Sql::new().await;
    for (queue, max_lost) in [("mail", 3), ("hooks", 1)] {
        let text = format!(
            "insert into leasehold_internal.queue (name, max_lost) values ('{queue}', {max_lost}); \
             insert into leasehold.job (queue, name) select '{queue}', 'note' from generate_series(1, {max_lost} + 1); \
             select leasehold.claim('w', '{queue}', 10)"
        );
        run(&sql.client, &text).await;
    }
    run(
        &sql.client,
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 minute'",
    )
    .await;
    let text = "select queue || ' ' || returned || ' ' || buried from leasehold_internal.reclaim() order by 1";
    let mut reclaimed: Vec<String> = all(&sql.client, text, &[]).await;
    reclaimed.sort();
    assert_eq!(reclaimed, ["hooks 0 2", "mail 4 0"]);
    let no_queue =
        "select count(*) from leasehold_internal.reclaim() where elected and queue is null";
    assert_eq!(one::<i64>(&sql.client, no_queue, &[]).await, 1);
}
