//! What a claim reads and locks, counted in pages and rows, with any number of names and priorities.

use super::explain::Explained;
use super::{CLAIM, PICK, assert_reads_by_index, pages};
use crate::sql::{Sql, all, one, run};

const LOCKABLE: &str =
    "select count(*) from (select from leasehold.job where not held for update skip locked) free";

/// Returns a claim of `up_to` jobs, of every name, from the start of the queue.
fn claim_of(worker: &str, up_to: usize) -> String {
    format!(
        "select id from leasehold_internal.claim_next('{worker}', 'default', {up_to}, null, null, null, null, \
         false, -2147483648, true, 2147483647, true, '{{}}', '{{}}', '{{}}', '{{}}')"
    )
}

#[tokio::test]
async fn a29_claim_locks_no_row_that_it_does_not_take() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at) \
         select 'n' || i % 100, i % 7, now() - interval '1 minute' from generate_series(1, 5000) i",
    )
    .await;
    let (first, second) = (sql.actor().await, sql.actor().await);
    run(&first, "begin").await;
    assert_eq!(all::<i64>(&first, &claim_of("first", 100), &[]).await.len(), 100);
    assert_eq!(sql.one::<i64>(LOCKABLE, &[]).await, 4900);
    let others = all::<i64>(&second, &claim_of("second", 100), &[]).await;
    assert_eq!(others.len(), 100, "a second claimer meanwhile is not sent away");
    run(&first, "rollback").await;
}

#[tokio::test]
async fn a29_claim_reads_no_more_pages_with_many_names() {
    let sql = Sql::new().await;
    let mut read = Vec::new();
    for names in [1, 200, 1000] {
        sql.run(&format!(
            "truncate leasehold.job; insert into leasehold.job (name, scheduled_at) \
             select 'n' || i % {names}, now() - interval '1 hour' from generate_series(1, 20000) i"
        ))
        .await;
        sql.run("vacuum analyze leasehold.job").await;
        let worker = Explained::connect(&sql).await;
        read.push(pages(&worker, &claim_of("w", 500), PICK).await);
    }
    assert!(read[1] <= read[0] * 3 / 2 && read[2] <= read[0] * 3 / 2, "{read:?}");
}

#[tokio::test]
async fn a31_claim_over_many_priorities_takes_them_in_order_and_reads_what_it_takes() {
    let sql = Sql::new().await;
    // Stored in no order at all; ten thousand priorities.
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at) \
         select 'note', (i * 7919) % 10000, now() - make_interval(secs => (i * 31) % 977) \
           from generate_series(1, 30000) i; analyze leasehold.job",
    )
    .await;
    let worker = Explained::connect(&sql).await;
    let read = pages(&worker, &claim_of("w", 300), PICK).await;
    assert!(read < 6000, "{read} pages for 300 jobs of 100 priorities");
    let expected: Vec<i64> = all(
        &sql.client,
        "select id from leasehold.job order by priority, scheduled_at, id limit 900",
        &[],
    )
    .await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(all::<i64>(&worker.client, &claim_of("w", 300), &[]).await);
    }
    assert_eq!(taken, expected);
}

#[tokio::test]
async fn a31_cursors_and_unknown_priorities_are_read_in_one_order() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at) \
         select 'note', p, now() - interval '1 hour' + make_interval(secs => n) \
           from generate_series(-50, 49) p, generate_series(1, 10) n order by random()",
    )
    .await;
    // The even priorities have cursors, just after their third job.
    let call = "select id from leasehold_internal.claim_next('w', 'default', 400, null, null, array['note'], null, \
                false, -2147483648, true, 2147483647, true, array_fill(false, array[50]), \
                (select array_agg(p order by p) from generate_series(-50, 49, 2) p), \
                (select array_agg(j.scheduled_at order by j.priority) from leasehold.job j \
                  where j.scheduled_at = (select max(s.scheduled_at) from (select k.scheduled_at \
                      from leasehold.job k where k.priority = j.priority order by 1 limit 3) s) \
                    and j.priority % 2 = 0), \
                (select array_agg(j.id order by j.priority) from leasehold.job j \
                  where j.scheduled_at = (select max(s.scheduled_at) from (select k.scheduled_at \
                      from leasehold.job k where k.priority = j.priority order by 1 limit 3) s) \
                    and j.priority % 2 = 0))";
    let expected: Vec<i64> = all(
        &sql.client,
        "select id from (select *, row_number() over (partition by priority order by scheduled_at) as n \
           from leasehold.job) j where priority % 2 <> 0 or n > 3 \
          order by priority, scheduled_at, id limit 400",
        &[],
    )
    .await;
    assert_eq!(all::<i64>(&sql.client, call, &[]).await, expected);
    // Without the gaps, the claim takes only priorities that have cursors.
    let known = call.replace("2147483647, true,", "2147483647, false,");
    let odd = format!(
        "select count(*) from leasehold.job j join ({known}) c on c.id = j.id where j.priority % 2 <> 0"
    );
    assert_eq!(one::<i64>(&sql.client, &odd, &[]).await, 0);
}

#[tokio::test]
async fn a29_plan_of_an_empty_table_equals_the_plan_of_a_full_one() {
    let sql = Sql::new().await;
    let worker = Explained::connect(&sql).await;
    let every = claim_of("w", 20);
    for _ in 0..7 {
        drop(worker.client.query(&every, &[]).await.unwrap());
    }
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at, lost_count) \
         select 'note', i % 100, now() - interval '1 hour', case when i % 50 = 0 then 1 else 0 end \
           from generate_series(1, 20000) i",
    )
    .await;
    assert_reads_by_index(&worker.plan(&every, PICK).await, "every name");
    assert_reads_by_index(&worker.plan(CLAIM, PICK).await, "two names");
}

#[tokio::test]
async fn a28_search_for_last_chances_reads_lost_jobs_only() {
    let sql = Sql::new().await;
    let worker = Explained::connect(&sql).await;
    let calls = [
        "select leasehold_internal.lost_priority('default', array['note'])",
        "select id from leasehold_internal.claim_alone('w', 'default', null, null, array['note'], null)",
    ];
    // A session that made its plans when the table was empty.
    for call in calls {
        for _ in 0..7 {
            drop(worker.client.query(call, &[]).await.unwrap());
        }
    }
    sql.run(
        "insert into leasehold.job (name, scheduled_at) \
         select 'note', now() - interval '1 hour' from generate_series(1, 50000); \
         insert into leasehold.job (name, scheduled_at, lost_count) \
         select 'note', now() - interval '1 minute', 2 from generate_series(1, 20)",
    )
    .await;
    for analyzed in [false, true] {
        if analyzed {
            sql.run("vacuum analyze leasehold.job").await;
        }
        for call in calls {
            let read = pages(&worker, call, "leasehold.job j").await;
            assert!(read < 100, "{read} pages: {call}");
        }
    }
}

#[tokio::test]
async fn c22_poll_from_cursors_reads_no_dead_rows_of_finished_jobs() {
    let sql = Sql::new().await;
    let old = sql.actor().await;
    run(&old, "begin isolation level repeatable read; select count(*) from leasehold.job").await;
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at) \
         select 'note', i % 3, now() - interval '1 minute' from generate_series(1, 60000) i; \
         delete from leasehold.job",
    )
    .await;
    let worker = Explained::connect(&sql).await;
    let poll = |gaps: bool, known: &str| {
        format!(
            "select id from leasehold_internal.claim_next('w', 'default', 20, null, null, array['note'], null, \
             false, -2147483648, true, 2147483647, {gaps}, \
             array_fill(false, array[cardinality(array{known}::int[])]), array{known}::int[], \
             array_fill(now() - interval '10 seconds', array[cardinality(array{known}::int[])]), \
             array_fill(0::bigint, array[cardinality(array{known}::int[])]))"
        )
    };
    let scan = pages(&worker, &claim_of("w", 20), PICK).await;
    assert!(scan > 500, "{scan} pages: the comparison shows nothing");
    let known = pages(&worker, &poll(true, "[0, 1, 2]"), PICK).await;
    assert!(known < 60, "{known} pages for an empty poll of three known priorities");
    // Priorities without a cursor are read from their start, unless they are left out.
    let unknown = pages(&worker, &poll(true, "[0]"), PICK).await;
    let left_out = pages(&worker, &poll(false, "[0]"), PICK).await;
    assert!(left_out < 60 && unknown > 200, "{left_out} pages, {unknown} with the gaps");
    run(&old, "rollback").await;
}

#[tokio::test]
async fn x23_claim_takes_deferred_jobs_last_whatever_their_priority() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at, deferred) \
         select 'note', p, now() - interval '1 hour' + make_interval(secs => n), n % 2 = 0 \
           from generate_series(-20, 19) p, generate_series(1, 10) n order by random()",
    )
    .await;
    let expected: Vec<i64> = all(
        &sql.client,
        "select id from leasehold.job order by deferred, priority, scheduled_at, id limit 300",
        &[],
    )
    .await;
    let worker = Explained::connect(&sql).await;
    run(&worker.client, "begin").await;
    assert_reads_by_index(&worker.plan(&claim_of("w", 300), PICK).await, "deferred jobs");
    run(&worker.client, "rollback").await;
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.extend(all::<i64>(&worker.client, &claim_of("w", 100), &[]).await);
    }
    assert_eq!(taken, expected);
}

#[tokio::test]
async fn x23_claim_of_deferred_jobs_leaves_all_others_out() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, priority, scheduled_at, deferred) \
         select 'note', i % 7, now() - interval '1 hour', i % 100 = 0 from generate_series(1, 20000) i; \
         analyze leasehold.job",
    )
    .await;
    let worker = Explained::connect(&sql).await;
    let deferred = claim_of("w", 500).replace("null, null, false,", "null, null, true,");
    let read = pages(&worker, &deferred, PICK).await;
    assert!(read < 1500, "{read} pages for 200 jobs behind 20,000 others");
    let taken = all::<i64>(&worker.client, &deferred, &[]).await;
    let others = "select count(*) from leasehold.job where held and not deferred";
    assert_eq!((taken.len(), one::<i64>(&sql.client, others, &[]).await), (200, 0));
}

#[tokio::test]
async fn x23_claim_writes_no_index_entry_for_deferred_jobs_and_for_others() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, deferred) \
         select 'note', now() - interval '1 hour', i % 2 = 0 from generate_series(1, 1000) i",
    )
    .await;
    let worker = sql.actor().await;
    let changed = "select n_tup_upd - $1::bigint, n_tup_hot_upd - $2::bigint from pg_stat_xact_user_tables \
                    where schemaname = 'leasehold' and relname = 'job'";
    run(&worker, "begin").await;
    let claimed = all::<i64>(&worker, &claim_of("w", 1000), &[]).await;
    let row = worker.query_one(changed, &[&0_i64, &0_i64]).await.expect("counts");
    run(&worker, "commit").await;
    let (updated, heap_only): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!((claimed.len(), updated), (1000, 1000));
    assert_eq!(heap_only, 1000, "every claim is a heap-only update");
}

#[tokio::test]
async fn c22_poll_from_cursors_reads_no_remains_of_deferred_jobs() {
    let sql = Sql::new().await;
    let old = sql.actor().await;
    run(&old, "begin isolation level repeatable read; select count(*) from leasehold.job").await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, deferred) \
         select 'note', now() - interval '1 minute', true from generate_series(1, 30000) i; \
         delete from leasehold.job",
    )
    .await;
    let worker = Explained::connect(&sql).await;
    let scan = pages(&worker, &claim_of("w", 20), PICK).await;
    assert!(scan > 250, "{scan} pages: the comparison shows nothing");
    let poll = "select id from leasehold_internal.claim_next('w', 'default', 20, null, null, array['note'], null, \
                false, -2147483648, true, 2147483647, true, array[false, true], array[0, 0], \
                array_fill(now() - interval '10 seconds', array[2]), array[0, 0]::bigint[])";
    let known = pages(&worker, poll, PICK).await;
    assert!(known < 60, "{known} pages for an empty poll of two known lanes");
    run(&old, "rollback").await;
}
