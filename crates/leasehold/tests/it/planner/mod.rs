//! Plans: what a claim reads, seen from inside the functions and counted in pages, not in time.

mod explain;

use crate::sql::{Sql, all, one, run};
use explain::{Explained, Plan};

/// More than the lanes hold in most of these tests: the claim must know where to stop.
const CLAIM: &str = "select id from leasehold.claim_lanes('w', 'default', 20, null, null, \
    array['note', 'other'], array[0, 0], array[null, null]::timestamptz[], array[0, 0]::bigint[])";

/// The statement inside of a claim.
const PICK: &str = "with picked as materialized";

fn assert_reads_by_index(plan: &Plan, when: &str) {
    let mut nodes = plan.on_job.clone();
    nodes.sort();
    assert_eq!(nodes, ["Index Scan job_claim_idx", "Tid Scan"], "{when}");
}

#[tokio::test]
async fn a13_g13_a_claim_reads_its_index_with_ten_rows_and_with_a_million() {
    let sql = Sql::new().await;
    let worker = Explained::connect(&sql).await;
    let fresh = Explained::connect(&sql).await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 hour' \
             from generate_series(1, 10)",
    )
    .await;
    // Plans made for a table that is empty, or known to be tiny, are kept and used when it is not.
    assert_reads_by_index(&worker.plan(CLAIM, PICK).await, "ten rows, nothing known");
    sql.run(
        "delete from leasehold.job; insert into leasehold.job (name, scheduled_at) \
             select 'note', now() - interval '1 hour' from generate_series(1, 10); analyze leasehold.job",
    )
    .await;
    let few = worker.plan(CLAIM, PICK).await;
    assert_reads_by_index(&few, "ten rows");
    sql.run(
        "delete from leasehold.job; alter table leasehold.job set unlogged; \
             insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 hour' \
             from generate_series(1, 1000000)",
    )
    .await;
    let unknown = worker.plan(CLAIM, PICK).await;
    assert_reads_by_index(&unknown, "a million rows that nobody counted");
    sql.run("analyze leasehold.job").await;
    for (who, name) in [(&worker, "old"), (&fresh, "new")] {
        // Past the five plans after which one is kept.
        for _ in 0..8 {
            let plan = who.plan(CLAIM, PICK).await;
            assert_reads_by_index(&plan, &format!("a million rows, {name} session"));
            assert!(plan.pages < 500, "{} pages for twenty jobs of a million", plan.pages);
        }
    }
}

/// Pages read by the pick alone, without the write and what hangs on it.
async fn pages(worker: &Explained, call: &str, part: &str) -> i64 {
    let mut least = i64::MAX;
    // The first run reads the catalogue too, and marks rows that were written just now.
    for _ in 0..3 {
        run(&worker.client, "begin").await;
        least = least.min(worker.plan(call, part).await.pages);
        run(&worker.client, "rollback").await;
    }
    least
}

#[tokio::test]
async fn g13_jobs_of_tomorrow_and_of_strangers_cost_a_claim_nothing() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 minute' \
             from generate_series(1, 10)",
    )
    .await;
    sql.run("vacuum analyze leasehold.job").await;
    let worker = Explained::connect(&sql).await;
    let alone = pages(&worker, CLAIM, PICK).await;
    for crowd in [
        "select 'note', now() + interval '1 day', 0 from generate_series(1, 100000) i",
        "select 'unknown ' || i, now() - interval '1 day', 0 from generate_series(1, 100000) i",
        "select 'note', now() - interval '1 day', 5 from generate_series(1, 100000) i",
    ] {
        sql.run(&format!("insert into leasehold.job (name, scheduled_at, priority) {crowd}")).await;
        sql.run("vacuum analyze leasehold.job").await;
        let among = pages(&worker, CLAIM, PICK).await;
        // A taller index has a page more on the way down, for each lane and each row written.
        assert!(among <= alone + 40, "{among} pages instead of {alone}: {crowd}");
    }
}

#[tokio::test]
async fn g13_running_jobs_cost_a_worker_nothing_that_knows_its_place() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, held, lease_generation) \
             select 'note', now() - interval '1 hour', true, 7 from generate_series(1, 100000); \
             insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 minute' \
             from generate_series(1, 10)",
    )
    .await;
    sql.run("vacuum analyze leasehold.job").await;
    let worker = Explained::connect(&sql).await;
    // Just before the first job that waits.
    let after: i64 = sql.one("select max(id) from leasehold.job where held", &[]).await;
    let call = CLAIM
        .replace(
            "array[null, null]::timestamptz[]",
            "array[now() - interval '1 hour' + interval '1 minute', null]::timestamptz[]",
        )
        .replace("array[0, 0]::bigint[]", &format!("array[{after}, 0]::bigint[]"));
    let known = pages(&worker, &call, PICK).await;
    assert!(known < 500, "{known} pages");
    let from_the_start = pages(&worker, CLAIM, PICK).await;
    assert!(from_the_start > 1000, "{from_the_start} pages: the comparison shows nothing");
    assert_eq!(all::<i64>(&worker.client, &call, &[]).await.len(), 10);
}

#[tokio::test]
async fn g13_finding_the_lanes_costs_no_more_than_the_names_one_knows() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name, priority) select 'note', i % 3 from generate_series(1, 300) i")
        .await;
    sql.run("vacuum analyze leasehold.job").await;
    let worker = Explained::connect(&sql).await;
    let lanes = "select count(*) from leasehold.lanes('default', array['note', 'zebra'])";
    assert_eq!(one::<i64>(&worker.client, lanes, &[]).await, 3);
    let alone = pages(&worker, lanes, "recursive").await;
    sql.run(
        "insert into leasehold.job (name) select 'unknown ' || i from generate_series(1, 100000) i",
    )
    .await;
    sql.run("vacuum analyze leasehold.job").await;
    assert_eq!(one::<i64>(&worker.client, lanes, &[]).await, 3);
    let among = pages(&worker, lanes, "recursive").await;
    assert!(among <= alone + 60, "{among} pages instead of {alone}");
    let every: i64 =
        one(&worker.client, "select count(*) from leasehold.lanes('default')", &[]).await;
    assert_eq!(every, 100_003);
}

/// What workers, housekeepers and people call, about job 7 and lease 7. Not what is planned anew with
/// each call.
const CALLS: [&str; 19] = [
    "select id from leasehold.claim('w', names => array['note'])",
    "select id from leasehold.claim_lost('w', 'default', null, null, array['note'], null)",
    CLAIM,
    "select leasehold.renew(array[7::bigint])",
    "select leasehold.check_lease(7, (select max(lease_generation) from leasehold.lease))",
    "select leasehold.cancel_requests(array[7::bigint])",
    "select leasehold.complete_many(array[7::bigint], 7)",
    "select leasehold.complete_many(array[7::bigint], 7, false)",
    "select leasehold.settle(7)",
    "select leasehold.fail(7, 7, 'no')",
    "select leasehold.snooze(7, 7, '0')",
    "select leasehold.release(array[7::bigint], 7)",
    "select leasehold.bury(7, 7, 'no')",
    "select leasehold.finish_cancelled(7, 7)",
    "select leasehold.expire_leases()",
    "select leasehold.expire_jobs(0, 100)",
    "select leasehold.cancel(7, 'ann')",
    "select leasehold.enqueue('note', key => 'k', key_for => '0')",
    "select leasehold.promote(array[7::bigint], 'ann'), leasehold.redrive(array[7::bigint], 'ann')",
];

#[tokio::test]
async fn g13_no_call_goes_on_reading_the_whole_table_because_it_was_empty_once() {
    let sql = Sql::new().await;
    let session = Explained::connect(&sql).await;
    // A quiet night: everything was finished and vacuumed, and every session has made its plans.
    sql.run("insert into leasehold.job (name) values ('note'); delete from leasehold.job").await;
    sql.run("vacuum analyze leasehold.job").await;
    sql.run("vacuum analyze leasehold.lease").await;
    for call in CALLS {
        for _ in 0..7 {
            run(&session.client, "begin").await;
            drop(session.client.query(call, &[]).await);
            run(&session.client, "rollback").await;
        }
    }
    // Then a burst, before anybody counts again. One lease is over, so that there is something to expire.
    sql.run("insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 hour' from generate_series(1, 20000)").await;
    run(&sql.client, "update leasehold.job set lost_count = 1 where id % 7000 = 0").await;
    for batch in [5, 5] {
        sql.run(&format!("select leasehold.claim_lanes('w', 'default', {batch}, null, null, array['note'], array[0], array[null::timestamptz], array[0::bigint])")).await;
    }
    sql.run(
        "update leasehold.lease set lease_expires_at = now() - interval '1 second' \
             where lease_generation = (select min(lease_generation) from leasehold.lease)",
    )
    .await;
    let (job, generation): (i64, i64) = {
        let row = sql
            .client
            .query_one(
                "select job_ids[1], lease_generation from leasehold.lease order by 2 desc limit 1",
                &[],
            )
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    let mut whole = Vec::new();
    for call in CALLS {
        let call = call
            .replace("array[7::bigint], 7", &format!("array[{job}::bigint], {generation}"))
            .replace("(7, 7", &format!("({job}, {generation}"))
            .replace("(7,", &format!("({job},"))
            .replace("settle(7)", &format!("settle({generation})"))
            .replace("array[7::bigint]", &format!("array[{job}::bigint]"));
        run(&session.client, "begin").await;
        for plan in session.plans(&call).await {
            if plan.whole {
                whole.push(format!(
                    "{call}: {}",
                    plan.sql.split_whitespace().collect::<Vec<_>>().join(" ")
                ));
            }
        }
        run(&session.client, "rollback").await;
    }
    assert!(
        whole.is_empty(),
        "{} statements read the whole table:\n{}",
        whole.len(),
        whole.join("\n")
    );
}

#[tokio::test]
async fn finishing_and_renewing_read_by_their_keys() {
    let sql = Sql::new().await;
    let worker = Explained::connect(&sql).await;
    for rows in [10, 50_000] {
        sql.run(&format!(
            "insert into leasehold.job (name) select 'note' from generate_series(1, {rows}); analyze leasehold.job"
        ))
        .await;
        let claimed = worker.client.query(CLAIM, &[]).await.unwrap();
        let ids: Vec<i64> = claimed.iter().map(|row| row.get(0)).collect();
        let generation: i64 =
            one(&worker.client, "select max(lease_generation) from leasehold.lease", &[]).await;
        let complete =
            format!("select leasehold.complete_many(array{ids:?}::bigint[], {generation})");
        let plan = worker.plan(&complete, "delete from leasehold.job").await;
        assert_eq!(plan.on_job, ["Index Scan job_pkey"], "{rows} rows");
    }
}
