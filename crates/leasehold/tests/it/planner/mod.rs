//! Plans: what a claim reads, seen from inside the functions and counted in pages, not in time.

mod explain;
mod order;
mod settings;

use crate::sql::{Sql, all, one, run};
pub use explain::Explained;
use explain::Plan;

/// Asks for more jobs than there are in most of these tests: the claim must know where to stop.
const CLAIM: &str = "select id from leasehold_internal.claim_next('w', 'default', 20, null, null, \
    array['note', 'other'], null, false, -2147483648, true, 2147483647, true, \
    array[false], array[0], array['-infinity']::timestamptz[], array[0::bigint])";

/// The statement inside of a claim.
const PICK: &str = "with recursive hop";

/// Asserts how the hop, the pick and the write read the job table. The pick gets its rows one by one
/// in the order of the index: nothing between the hop and the limit reads ahead.
fn assert_reads_by_index(plan: &Plan, when: &str) {
    let mut nodes = plan.on_job.clone();
    nodes.sort();
    let hop = nodes.remove(0);
    let hops = ["Index Only Scan job_order_idx", "Index Scan job_order_idx"];
    assert!(hops.contains(&hop.as_str()), "{when}: {hop}");
    assert_eq!(nodes, ["Index Scan job_order_idx", "Tid Scan"], "{when}");
    assert_eq!(plan.to_locks, ["Limit", "Nested Loop", "LockRows", "Index Scan"], "{when}");
}

#[tokio::test]
async fn a13_g13_claim_reads_its_index_with_ten_rows_and_with_a_million() {
    let sql = Sql::new().await;
    let worker = Explained::connect(&sql).await;
    let fresh = Explained::connect(&sql).await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 hour' \
             from generate_series(1, 10)",
    )
    .await;
    // A session keeps the plans that it made while the table was empty, or known to be tiny, and
    // uses them later.
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
    assert_reads_by_index(&unknown, "a million rows without statistics");
    sql.run("analyze leasehold.job").await;
    for (who, name) in [(&worker, "old"), (&fresh, "new")] {
        // More than the five executions after which the server may keep a plan.
        for _ in 0..8 {
            let plan = who.plan(CLAIM, PICK).await;
            assert_reads_by_index(&plan, &format!("a million rows, {name} session"));
            assert!(plan.pages < 500, "{} pages for twenty jobs of a million", plan.pages);
        }
    }
}

/// Returns the pages that the pick alone reads, without the write and what depends on it.
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
async fn g13_scheduled_jobs_add_no_pages_to_a_claim() {
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
        "select 'note', now() + interval '1 day', -5 from generate_series(1, 100000) i",
    ] {
        sql.run(&format!("insert into leasehold.job (name, scheduled_at, priority) {crowd}")).await;
        sql.run("vacuum analyze leasehold.job").await;
        let among = pages(&worker, CLAIM, PICK).await;
        // A taller index has a page more on the way down, for each priority and each row written.
        assert!(among <= alone + 40, "{among} pages instead of {alone}: {crowd}");
    }
}

#[tokio::test]
async fn g13_running_and_unknown_jobs_behind_the_cursor_add_no_pages_to_a_claim() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, held, lease_generation) \
             select (array['note', 'unknown'])[1 + i % 2], now() - interval '1 hour', i % 2 = 0, 7 \
               from generate_series(1, 100000) i; \
             insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 minute' \
             from generate_series(1, 10)",
    )
    .await;
    sql.run("vacuum analyze leasehold.job").await;
    let worker = Explained::connect(&sql).await;
    // Just before the first waiting job.
    let after: i64 =
        sql.one("select max(id) from leasehold.job where held or name = 'unknown'", &[]).await;
    let call = CLAIM
        .replace(
            "array['-infinity']::timestamptz[]",
            "array[now() - interval '1 hour' + interval '1 minute']",
        )
        .replace("array[0::bigint]", &format!("array[{after}::bigint]"));
    let known = pages(&worker, &call, PICK).await;
    assert!(known < 500, "{known} pages");
    let from_the_start = pages(&worker, CLAIM, PICK).await;
    assert!(from_the_start > 1000, "{from_the_start} pages: the comparison shows nothing");
    assert_eq!(all::<i64>(&worker.client, &call, &[]).await.len(), 10);
}

/// What workers, housekeepers and operators call, for job 7 and lease 7. Without the calls that are
/// planned anew each time.
const CALLS: [&str; 29] = [
    "select id from leasehold.claim('w', names => array['note'])",
    "select id from leasehold_internal.claim_alone('w', 'default', null, null, array['note'], 1)",
    "select leasehold_internal.lost_priority('default', array['note'])",
    "select leasehold_internal.next_due('default', array['note'], array[false], array[0], interval '1 minute')",
    CLAIM,
    "select leasehold.renew(array[7::bigint])",
    "select leasehold.check_lease(7, (select max(lease_generation) from leasehold_internal.lease))",
    "select leasehold_internal.cancel_requests(array[7::bigint])",
    "select leasehold.complete_many(array[7::bigint], 7)",
    "select leasehold_internal.complete_rows(array[7::bigint], 7)",
    "select leasehold_internal.settle(7)",
    "select leasehold.fail(7, 7, 'no')",
    "select leasehold_internal.record_failure(7, 7, 'no', '1 s', false)",
    "select leasehold.defer(7, 7, '0')",
    "select leasehold_internal.defer_many(array[7::bigint], 7, array[1], array['no'], array[true])",
    "select leasehold_internal.has_deferred('default')",
    "select leasehold_internal.explain_finish(array[7::bigint], 7)",
    "select leasehold_internal.ended_as(7, 7)",
    "select leasehold.complete_waiting(array[7::bigint])",
    "select id from leasehold.recover_claim('w', '00000000-0000-0000-0000-000000000000')",
    "select leasehold.snooze(7, 7, '0')",
    "select leasehold.release(array[7::bigint], 7)",
    "select leasehold.bury(7, 7, 'no')",
    "select leasehold.finish_cancelled(7, 7)",
    "select leasehold_internal.reclaim_leases()",
    "select leasehold_internal.expire_jobs(0, 100)",
    "select leasehold.cancel(7, 'ann')",
    "select leasehold.enqueue('note', key => 'k', key_ttl => '0')",
    "select leasehold.promote(array[7::bigint], 'ann'), leasehold.redrive(array[7::bigint], 'ann')",
];

#[tokio::test]
async fn g13_no_call_reads_the_whole_table_after_it_was_empty() {
    calls_read_a_part("insert into leasehold.job (name) values ('note')", "analyze").await;
}

#[tokio::test]
async fn g13_no_call_reads_a_whole_index_after_vacuum_left_empty_pages() {
    // Vacuum gives pages back only when no other session wants the table at that moment.
    let stored = "insert into leasehold.job (name) select 'note' from generate_series(1, 5000)";
    calls_read_a_part(stored, "analyze, truncate false").await;
}

async fn calls_read_a_part(stored: &str, vacuum: &str) {
    let sql = Sql::new().await;
    let session = Explained::connect(&sql).await;
    // A quiet night: everything was finished and vacuumed, and every session has made its plans.
    sql.run(&format!("{stored}; delete from leasehold.job")).await;
    sql.run(&format!("vacuum ({vacuum}) leasehold.job")).await;
    sql.run("vacuum analyze leasehold_internal.lease").await;
    for call in CALLS {
        for _ in 0..7 {
            run(&session.client, "begin").await;
            drop(session.client.query(call, &[]).await);
            run(&session.client, "rollback").await;
        }
    }
    // Then a burst, before the next ANALYZE. One lease has run out, so that one can expire.
    sql.run("insert into leasehold.job (name, scheduled_at) select 'note', now() - interval '1 hour' from generate_series(1, 20000)").await;
    run(&sql.client, "update leasehold.job set lost_count = 1 where id % 7000 = 0").await;
    for batch in [5, 5] {
        sql.run(&CLAIM.replace("'default', 20", &format!("'default', {batch}"))).await;
    }
    sql.run(
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' \
             where lease_generation = (select min(lease_generation) from leasehold_internal.lease)",
    )
    .await;
    let (job, generation): (i64, i64) = {
        let row = sql
            .client
            .query_one(
                "select job_ids[1], lease_generation from leasehold_internal.lease order by 2 desc limit 1",
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
async fn g13_calls_for_many_jobs_compare_no_job_with_every_other() {
    const JOBS: i64 = 2000;
    let sql = Sql::new().await;
    let session = Explained::connect(&sql).await;
    let calls = [
        "select leasehold_internal.defer_many(IDS, LEASE, array_fill(1::float8, array[2000]), \
                                  array_fill('no'::text, array[2000]), array_fill(true, array[2000]))",
        "select leasehold.complete_many(IDS, LEASE)",
        "select leasehold.release(IDS, LEASE)",
        "select leasehold_internal.explain_finish(IDS, LEASE)",
        "select leasehold.renew(LEASES)",
        "select leasehold_internal.return_strays(0, 1000000000)",
    ];
    let filled = |call: &str, ids: &str, lease: i64, leases: &str| {
        call.replace("IDS", ids).replace("LEASES", leases).replace("LEASE", &lease.to_string())
    };
    // Plans are made while both tables are empty, and kept.
    sql.run("insert into leasehold.job (name) values ('note'); delete from leasehold.job").await;
    sql.run("vacuum analyze leasehold.job").await;
    sql.run("vacuum analyze leasehold_internal.lease").await;
    for call in calls {
        for _ in 0..7 {
            run(&session.client, "begin").await;
            let call = filled(call, "array_fill(7::bigint, array[2000])", 7, "array[7::bigint]");
            drop(session.client.query(&call, &[]).await);
            run(&session.client, "rollback").await;
        }
    }
    // One lease with 2,000 jobs, 2,000 leases with one each, and 2,000 jobs whose lease does not exist.
    sql.run(&format!(
        "insert into leasehold.job (name, scheduled_at) \
         select 'note', now() - interval '1 hour' from generate_series(1, {JOBS})"
    ))
    .await;
    sql.run(&CLAIM.replace("'default', 20", &format!("'default', {JOBS}"))).await;
    let lease: i64 =
        sql.one("select max(lease_generation) from leasehold_internal.lease", &[]).await;
    sql.run(&format!(
        "insert into leasehold_internal.lease (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, job_ids) \
         select {lease} + i, now() + interval '1 hour', '1 hour', true, 'default', 'w', array[-i] \
           from generate_series(1, {JOBS}) i; \
         insert into leasehold.job (name, held, lease_generation) \
         select 'note', true, 5 from generate_series(1, {JOBS})"
    ))
    .await;
    let ids =
        format!("(select job_ids from leasehold_internal.lease where lease_generation = {lease})");
    let leases = format!("(select array_agg({lease} + i) from generate_series(1, {JOBS}) i)");
    for call in calls {
        let call = filled(call, &ids, lease, &leases);
        run(&session.client, "begin").await;
        for plan in session.plans(&call).await {
            assert!(plan.compared < 100.0 * JOBS as f64, "{} pairs: {}", plan.compared, plan.sql);
            assert!(!plan.sql.contains("leasehold.job j") || plan.pages < 100 * JOBS, "{plan:?}");
        }
        run(&session.client, "rollback").await;
    }
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
            one(&worker.client, "select max(lease_generation) from leasehold_internal.lease", &[])
                .await;
        let complete =
            format!("select leasehold.complete_many(array{ids:?}::bigint[], {generation})");
        let plan = worker.plan(&complete, "delete from leasehold.job").await;
        assert_eq!(plan.on_job, ["Index Scan job_pkey"], "{rows} rows");
    }
}
