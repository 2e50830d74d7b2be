//! Jobs that lost their worker: claimed together, apart from fresh ones; what counts as a loss.

use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::task::block_in_place;
use tokio_postgres::{Client, NoTls};

use crate::fixture::until;
use crate::postgres_faults::connect;
use crate::sql::{Sql, all, claim, one, run};

/// Returns a call that claims `up_to` jobs as a worker does, from the start of the queue.
fn claim_next(up_to: usize) -> String {
    format!(
        "leasehold_internal.claim_next('w', 'default', {up_to}, null, null, null, null, \
         false, -2147483648, true, 2147483647, true, '{{}}', '{{}}', '{{}}', '{{}}')"
    )
}

#[tokio::test]
async fn a28_lost_and_fresh_jobs_share_a_claim_but_no_lease() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, lost_count, attempts) \
         select 'lost', now() - interval '1 hour', 1, 1 from generate_series(1, 2000); \
         insert into leasehold.job (name, priority) select 'urgent', -100 from generate_series(1, 10)",
    )
    .await;
    let names: Vec<String> =
        all(&sql.client, &format!("select name from {}", claim_next(100)), &[]).await;
    assert!(names[..10].iter().all(|name| name == "urgent"), "{names:?}");
    assert!(names[10..].iter().all(|name| name == "lost") && names.len() == 100);
    let leases: Vec<i32> = all(
        &sql.client,
        "select cardinality(job_ids) from leasehold_internal.lease order by 1 desc",
        &[],
    )
    .await;
    assert_eq!(leases, [90, 10], "one for the lost jobs, one for the fresh ones");
    let wrong: i64 = sql
        .one(
            "select count(*) from leasehold_internal.lease l where cardinality(job_ids) <> \
             (select count(*) from leasehold.job j where j.lease_generation = l.lease_generation and held)",
            &[],
        )
        .await;
    assert_eq!(wrong, 0, "each lease lists exactly what it holds");
}

#[tokio::test]
async fn a28_job_on_its_last_chance_is_claimed_by_claim_alone_only() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    sql.run("update leasehold.job set lost_count = 2").await;
    let next = format!("select count(*) from {}", claim_next(10));
    assert_eq!(sql.one::<i64>(&next, &[]).await, 0);
    assert_eq!(
        sql.one::<i32>("select leasehold_internal.lost_priority('default', null)", &[]).await,
        0
    );
    let last: Vec<i64> = all(
        &sql.client,
        "select id from leasehold_internal.claim_alone('w', 'default', null, null, null, null)",
        &[],
    )
    .await;
    assert_eq!(last, [id]);
}

#[tokio::test]
async fn a28_sql_consumer_gets_urgent_jobs_before_lost_ones_and_each_lost_one_alone() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, lost_count, attempts) \
         select 'lost', now() - interval '1 hour', 1 + i % 2, 2 from generate_series(1, 3) i; \
         insert into leasehold.job (name, priority) values ('urgent', -1), ('urgent', -1), ('later', 1)",
    )
    .await;
    let mut sizes = Vec::new();
    for _ in 0..6 {
        sizes.push(claim(&sql.client, "w", 10).await.ids.len());
    }
    assert_eq!(sizes, [2, 1, 1, 1, 1, 0]);
}

#[tokio::test]
async fn a28_lost_jobs_of_a_claim_are_renewed_and_completed_by_one_statement_each() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, lost_count, attempts) \
         select 'lost', now() - interval '1 hour', 1, 1 from generate_series(1, 500)",
    )
    .await;
    sql.run(&format!("select count(*) from {}", claim_next(1000))).await;
    let renewed = "select count(*) from leasehold.renew((select array_agg(lease_generation) \
                   from leasehold_internal.lease)) where state = 'renewed'";
    assert_eq!(sql.one::<i64>(renewed, &[]).await, 1);
    // All but one, in an order that is not the lease's.
    let part = "select count(*) from leasehold.complete_many((select array_agg(id order by id desc) \
                from leasehold.job where id > (select min(id) from leasehold.job)), \
                (select lease_generation from leasehold_internal.lease))";
    let rest = "select count(*) from leasehold.complete_many((select array_agg(id) from leasehold.job), \
                (select lease_generation from leasehold_internal.lease))";
    let open = "select count(*) from leasehold_internal.lease where ended_at is null";
    assert_eq!(sql.one::<i64>(part, &[]).await, 499);
    assert_eq!(sql.one::<i64>(open, &[]).await, 1, "one of its jobs still runs");
    assert_eq!(sql.one::<i64>(rest, &[]).await, 1);
    assert_eq!((sql.one::<i64>(open, &[]).await, sql.count("finished_job").await), (0, 500));
}

#[tokio::test]
async fn a28_lease_stays_open_when_a_completion_finds_a_part_of_its_jobs() {
    let sql = Sql::new().await;
    sql.enqueue(2).await;
    sql.run(&format!("select count(*) from {}", claim_next(2))).await;
    // As many ids as the lease has jobs, one of them twice.
    let twice = "select count(*) from leasehold.complete_many((select array[min(id), min(id)] \
                 from leasehold.job), (select lease_generation from leasehold_internal.lease))";
    assert_eq!(sql.one::<i64>(twice, &[]).await, 1);
    let open = "select count(*) from leasehold_internal.lease where ended_at is null";
    assert_eq!(sql.one::<i64>(open, &[]).await, 1);
}

#[tokio::test]
async fn a28_settle_does_not_end_a_lease_that_still_holds_jobs() {
    let sql = Sql::new().await;
    sql.enqueue(2).await;
    sql.run(&format!("select count(*) from {}", claim_next(2))).await;
    sql.run(
        "select leasehold_internal.settle(lease_generation, '{0,0}') from leasehold_internal.lease",
    )
    .await;
    let open = "select count(*) from leasehold_internal.lease where ended_at is null";
    assert_eq!(sql.one::<i64>(open, &[]).await, 1);
}

async fn losses(sql: &Sql) -> i16 {
    sql.one("select lost_count from leasehold.job", &[]).await
}

#[tokio::test]
async fn a32_attempt_that_its_worker_ends_resets_the_count_of_losses() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    for end in [
        "select leasehold.fail($1, $2, 'no', '0')",
        "select leasehold.snooze($1, $2, '0')",
        "select leasehold.defer($1, $2, '0', 'no')",
    ] {
        for _ in 0..2 {
            let held = claim(&sql.client, "w", 1).await;
            sql.expire(held.generation).await;
        }
        assert_eq!(losses(&sql).await, 2);
        let held = claim(&sql.client, "w", 1).await;
        assert_eq!(held.ids, [id]);
        sql.client.query(end, &[&id, &held.generation]).await.unwrap();
        assert_eq!(losses(&sql).await, 0, "{end}");
        sql.due().await;
    }
    // A release without a run says nothing about the job, so the count stays.
    for _ in 0..2 {
        let held = claim(&sql.client, "w", 1).await;
        sql.expire(held.generation).await;
    }
    let held = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.release(array[{id}::bigint], {})", held.generation)).await;
    assert_eq!(losses(&sql).await, 2);
    let held = claim(&sql.client, "w", 1).await;
    sql.expire(held.generation).await;
    assert_eq!(sql.state(id).await, "dead", "three in a row");
}

/// Expires every lease. Returns how many jobs came back, and how many were buried.
async fn expire_all(client: &Client) -> (i32, i32) {
    run(
        client,
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' where ended_at is null",
    )
    .await;
    let row = client
        .query_one("select returned, buried from leasehold_internal.reclaim_leases()", &[])
        .await
        .unwrap();
    run(
        client,
        "update leasehold.job set scheduled_at = now() - interval '1 second' where not held",
    )
    .await;
    (row.get(0), row.get(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a32_lease_that_ended_while_the_server_was_down_counts_no_loss() {
    let mut postgres = block_in_place(|| PrivatePostgres::throwaway().start().unwrap());
    let database = TestDatabase::on(&postgres).await.unwrap();
    let mut client = database.connect_directly().await;
    run(&client, "select leasehold.enqueue('note'); update leasehold.job set lost_count = 2").await;
    let lost = "select lost_count from leasehold.job";
    for crashes in [false, true] {
        assert_eq!(claim(&client, "w", 1).await.ids.len(), 1);
        drop(client);
        block_in_place(|| {
            if crashes {
                postgres.crash().unwrap();
            } else {
                postgres.stop().unwrap();
            }
            postgres.start_again().unwrap();
        });
        client = connect(&postgres, database.name()).await;
        assert_eq!(expire_all(&client).await, (1, 0));
        assert_eq!(one::<i16>(&client, lost, &[]).await, 2);
    }
    // A crash or a promotion empties this unlogged table, even if the postmaster survives.
    assert_eq!(claim(&client, "w", 1).await.ids.len(), 1);
    run(&client, "truncate leasehold_internal.server_start").await;
    assert_eq!(expire_all(&client).await, (1, 0));
    assert_eq!(one::<i16>(&client, lost, &[]).await, 2);
    // The server has not restarted since, so this worker died.
    assert_eq!(claim(&client, "w", 1).await.ids.len(), 1);
    assert_eq!(expire_all(&client).await, (0, 1));
    let cause: String = one(&client, "select cause from leasehold_internal.dead_job", &[]).await;
    assert_eq!(cause, "lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a32_crash_of_one_server_process_is_noticed() {
    // Only the unlogged row shows a restart that the postmaster survives.
    let postgres = block_in_place(|| PrivatePostgres::throwaway().start().unwrap());
    let database = TestDatabase::on(&postgres).await.unwrap();
    let client = database.connect_directly().await;
    let noted = "select count(*) from leasehold_internal.server_start";
    assert_eq!(one::<i64>(&client, noted, &[]).await, 1);
    let backend: i32 = one(&client, "select pg_backend_pid()", &[]).await;
    let pid = rustix::process::Pid::from_raw(backend).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // The postmaster takes a moment to notice, and serves queries as before until then.
    until("the crash empties it", async || {
        let Ok((client, connection)) = postgres.config(database.name()).connect(NoTls).await else {
            return false;
        };
        tokio::spawn(connection);
        client.query_one(noted, &[]).await.is_ok_and(|row| row.get::<_, i64>(0) == 0)
    })
    .await;
    let client = connect(&postgres, database.name()).await;
    run(&client, "select leasehold_internal.reclaim_leases()").await;
    assert_eq!(one::<i64>(&client, noted, &[]).await, 1, "and the next expiry notes the return");
}

#[tokio::test]
async fn a33_leases_with_locked_jobs_do_not_delay_other_leases() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, lost_count, attempts) \
         select 'note', now() - interval '1 hour', 1, 1 from generate_series(1, 250)",
    )
    .await;
    // One claim each: the lost jobs of one claim share a lease.
    for _ in 0..250 {
        sql.run(&format!("select count(*) from {}", claim_next(1))).await;
    }
    assert_eq!(sql.count("lease").await, 250);
    sql.run(
        "update leasehold_internal.lease l set lease_expires_at = now() - make_interval(secs => 1000 - l.job_ids[1])",
    )
    .await;
    let worker = sql.actor().await;
    run(
        &worker,
        "begin; select leasehold.check_lease(id, lease_generation) from \
         (select id, lease_generation from leasehold.job order by id limit 200) first",
    )
    .await;
    sql.run("set lock_timeout = '30s'").await;
    let reclaimed = "select coalesce(sum(returned), 0)::int from leasehold_internal.reclaim(200)";
    assert_eq!(sql.one::<i32>(reclaimed, &[]).await, 50, "those behind them come back");
    run(&worker, "commit").await;
    assert_eq!(sql.one::<i32>(reclaimed, &[]).await, 200);
}

#[tokio::test]
async fn a25_job_that_cannot_be_returned_does_not_stop_the_reclaim_of_other_leases() {
    let sql = Sql::new().await;
    for name in ["cursed", "plain"] {
        run(&sql.client, &format!("insert into leasehold.job (name) values ('{name}')")).await;
        run(&sql.client, &format!("select leasehold.claim('w', names => array['{name}'])")).await;
    }
    run(
        &sql.client,
        "update leasehold_internal.lease set claimed_at = now() - interval '2 hours', \
                lease_expires_at = now() - interval '1 hour'; \
         create function public.refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not this one'; end $$; \
         create trigger refuse before update on leasehold.job for each row \
         when (new.name = 'cursed' and not new.held) execute function public.refuse()",
    )
    .await;
    run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    let held = "select name from leasehold.job where held";
    assert_eq!(all::<String>(&sql.client, held, &[]).await, ["cursed"]);
    run(
        &sql.client,
        "drop trigger refuse on leasehold.job; select leasehold_internal.reclaim_leases()",
    )
    .await;
    assert_eq!(all::<String>(&sql.client, held, &[]).await, Vec::<String>::new());
}

#[tokio::test]
async fn a25_job_that_cannot_be_returned_does_not_keep_other_jobs_of_its_lease() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "insert into leasehold.job (name) values ('plain'), ('cursed'), ('plain'), ('plain'); \
         select leasehold.claim('w', claim_size => 10); \
         update leasehold_internal.lease set claimed_at = now() - interval '2 hours', \
                lease_expires_at = now() - interval '1 hour'; \
         create function public.refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not this one'; end $$; \
         create trigger refuse before update on leasehold.job for each row \
         when (new.name = 'cursed' and not new.held) execute function public.refuse()",
    )
    .await;
    assert_eq!(sql.count("lease").await, 1, "one lease for all four");
    let returned = "select returned from leasehold_internal.reclaim_leases()";
    assert_eq!(one::<i32>(&sql.client, returned, &[]).await, 3);
    let held = "select name from leasehold.job where held";
    assert_eq!(all::<String>(&sql.client, held, &[]).await, ["cursed"]);
    run(&sql.client, "drop trigger refuse on leasehold.job").await;
    assert_eq!(one::<i32>(&sql.client, returned, &[]).await, 1);
}

#[tokio::test]
async fn a32_outage_of_the_server_is_not_counted_as_a_loss_for_the_alarm() {
    let sql = Sql::new().await;
    let (_, generation) = sql.running().await;
    sql.run(&format!(
        "update leasehold_internal.lease set claimed_at = now() - interval '2 hours', \
                lease_expires_at = now() - interval '1 hour' where lease_generation = {generation}"
    ))
    .await;
    // As after a restart: the server has been up for a moment.
    sql.run("delete from leasehold_internal.server_start").await;
    run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    let counted = "select count(*) from leasehold_internal.tally where what = 'lost'";
    assert_eq!(one::<i64>(&sql.client, counted, &[]).await, 0);
    assert_eq!(
        one::<i32>(&sql.client, "select max(lost_count)::int from leasehold.job", &[]).await,
        0
    );
}

#[tokio::test]
async fn d16_losses_count_again_after_the_clock_went_back() {
    let sql = Sql::new().await;
    let (_, generation) = sql.running().await;
    sql.run("select leasehold_internal.server_up_since()").await;
    sql.run("update leasehold_internal.server_start set since = now() + interval '1 day'").await;
    // The first call corrects the time; a lease that ends after it is a loss.
    sql.run("select leasehold_internal.server_up_since()").await;
    sql.run(&format!(
        "update leasehold_internal.lease set claimed_at = now(), lease = interval '0', \
                lease_expires_at = clock_timestamp() where lease_generation = {generation}"
    ))
    .await;
    run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    assert_eq!(
        one::<i32>(&sql.client, "select max(lost_count)::int from leasehold.job", &[]).await,
        1
    );
}
