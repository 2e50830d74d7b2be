//! Statements that were published for queues of this kind run here unchanged.

use crate::sql::{Sql, all, claim, one, run};

/// From an application that keeps its index in step with a table of jobs.
const INSERT: &str = "
INSERT INTO job (name, scheduled_at, priority, tag, kwargs)
VALUES (
    'index',
    now() + interval '60 seconds',
    1,
    'storage.create_annotation',
    '{\"annotation_id\": \"xyz\"}'
);";

/// The same for many rows at once; its column list was cut short and is completed by the test.
const INSERT_SELECT: &str = "
INSERT INTO job
  (name, scheduled_at, priority, ...)
SELECT
  'index',
  '2026-01-30 12:38:15.951648',
  100,
  'reindex_user',
  jsonb_build_object(
    'annotation_id', annotation.id
  )
FROM annotation
WHERE annotation.userid = :userid;";

const FETCH: &str = "
SELECT      id, kwargs
FROM        job
WHERE       job.name = 'index'
AND         job.scheduled_at < now()
AND         job.expires_at > now()
ORDER BY    job.priority, job.enqueued_at
LIMIT      2500
FOR UPDATE SKIP LOCKED;";

/// The example: jobs in the words of an inbox.
const INBOX: &str = include_str!("../../../../examples/inbox/inbox.sql");

/// From an article about an inbox with leases: the two steps of its cleanup.
const CLEANUP: [&str; 2] = [
    "
UPDATE inbox
SET
  status = 'pending',
  claimed_by = NULL,
  lease_expires_at = NULL,
  available_at = now()
WHERE status = 'processing'
  AND lease_expires_at < now()
  AND attempts < max_attempts;",
    "
UPDATE inbox
SET status = 'dead_letter'
WHERE status = 'processing'
  AND lease_expires_at < now()
  AND attempts >= max_attempts;",
];

#[tokio::test]
async fn plain_insert_enqueues_and_plain_select_claims() {
    let sql = Sql::new().await;
    let app = sql.actor().await;
    run(
        &app,
        "create table public.annotation (id text, userid text); \
               insert into public.annotation values ('a1', 'acct:jo'), ('a2', 'acct:jo'), ('a3', 'acct:al'); \
               set search_path = leasehold, public",
    )
    .await;
    run(&app, INSERT).await;
    run(&app, &INSERT_SELECT.replace("...", "tag, kwargs").replace(":userid", "'acct:jo'")).await;
    assert_eq!(sql.count("job").await, 3);
    let defaults: bool = sql
        .one(
            "select bool_and(queue = 'default' and expires_at = greatest(enqueued_at, scheduled_at) + interval '30 days' and not held \
             and lease_generation = 0 and attempts = 0) from leasehold.job",
            &[],
        )
        .await;
    assert!(defaults);

    // On a slow machine that minute could pass during the test.
    let put_off = "update leasehold.job set scheduled_at = scheduled_at + interval '1 day' \
                    where scheduled_at = enqueued_at + interval '60 seconds'";
    assert_eq!(sql.client.execute(put_off, &[]).await.unwrap(), 1, "it is due in a minute");
    run(&app, "begin").await;
    let due: Vec<i64> = all(&app, FETCH.trim_end_matches(';'), &[]).await;
    assert_eq!(due.len(), 2, "the first is due later");
    // No other claim takes rows that are fetched like this until the transaction ends.
    assert_eq!(claim(&sql.client, "w", 10).await.ids, [0_i64; 0]);
    run(&app, &format!("delete from job where id = any('{{{},{}}}')", due[0], due[1])).await;
    run(&app, "commit").await;
    sql.due().await;
    let taken = claim(&sql.client, "w", 10).await;
    let tag: String =
        sql.one("select tag from leasehold.job where id = $1", &[&taken.ids[0]]).await;
    assert_eq!(tag, "storage.create_annotation");
}

#[tokio::test]
async fn lease_cleanup_equals_two_updates_of_an_inbox() {
    let sql = Sql::new().await;
    // Running and overdue, with and without attempts left; running in time; waiting.
    let jobs = sql
        .client
        .query(
            "select job_id from leasehold.enqueue_many(array_fill('receipt'::text, array[6]), \
             array_fill('{}'::jsonb, array[6]), max_attempts => 2)",
            &[],
        )
        .await
        .unwrap();
    let ids: Vec<i64> = jobs.iter().map(|row| row.get(0)).collect();
    let first = claim(&sql.client, "worker-1", 2).await;
    sql.run(&format!("select leasehold.fail({}, {}, 'once', '0')", ids[0], first.generation)).await;
    sql.run(&format!("select leasehold.fail({}, {}, 'once', '0')", ids[1], first.generation)).await;
    let mut overdue = Vec::new();
    for expected in [&ids[2..4], &ids[4..5]] {
        let held = claim(&sql.client, "worker-2", expected.len() as i32).await;
        assert_eq!(held.ids, expected);
        overdue.push(held.generation);
    }
    sql.run(&format!("update leasehold.job set scheduled_at = '2026-01-01' where id = {}", ids[0]))
        .await;
    let last = claim(&sql.client, "worker-3", 1).await;
    assert_eq!(last.ids, [ids[0]], "the second of its two attempts");
    sql.overdue(overdue[0]).await;
    sql.overdue(last.generation).await;

    sql.run(INBOX).await;
    let columns = "id, status, available_at, created_at, claimed_by, lease_expires_at, lease_generation, \
                   attempts, max_attempts, idempotency_key";
    sql.run(&format!(
        "create schema by_hand; create table by_hand.inbox as select {columns} from public.inbox"
    ))
    .await;
    let by_hand = sql.actor().await;
    run(&by_hand, "set search_path = by_hand").await;
    for step in CLEANUP {
        run(&by_hand, step).await;
    }
    assert_eq!(sql.one::<i32>("select leasehold_internal.reclaim_waiting()", &[]).await, 2);
    assert_eq!(sql.one::<i32>("select leasehold_internal.reclaim_dead()", &[]).await, 1);
    let picture = |inbox: &str| {
        format!(
            "select string_agg(concat_ws('|', id, status, attempts, max_attempts, lease_generation, \
             case when status in ('pending', 'processing') then coalesce(claimed_by, '-') end, \
             available_at <= statement_timestamp()), E'\\n' order by id) from {inbox}"
        )
    };
    let ours: String = sql.one(&picture("public.inbox"), &[]).await;
    let theirs: String = sql.one(&picture("by_hand.inbox"), &[]).await;
    assert_eq!(ours, theirs);
    for word in ["dead_letter", "pending", "processing"] {
        assert!(ours.contains(word), "{ours}");
    }
}

#[tokio::test]
async fn inbox_example_shows_every_job() {
    let sql = Sql::new().await;
    sql.run(INBOX).await;
    let ids = sql.enqueue(4).await;
    let held = claim(&sql.client, "worker-1", 3).await;
    sql.run(&format!("select leasehold.complete({}::bigint, {})", ids[0], held.generation)).await;
    sql.run(&format!("select leasehold.bury({}, {}, 'useless')", ids[1], held.generation)).await;
    let rows = sql
        .client
        .query(
            "select status, claimed_by, lease_expires_at > now(), lease_generation, attempts, max_attempts \
               from public.inbox order by id",
            &[],
        )
        .await
        .unwrap();
    let seen: Vec<(&str, Option<&str>, Option<bool>)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(
        seen,
        [
            ("done", Some("worker-1"), None),
            ("dead_letter", None, None),
            ("processing", Some("worker-1"), Some(true)),
            ("pending", None, None),
        ]
    );
    assert_eq!(rows[2].get::<_, i64>(3), held.generation);
    assert_eq!((rows[2].get::<_, i32>(4), rows[2].get::<_, i32>(5)), (1, 25));
    // The claim of an inbox, as far as a view supports it.
    let pending: i64 = one(
        &sql.client,
        "SELECT id FROM inbox WHERE status = 'pending' AND available_at <= now() \
         ORDER BY created_at, id LIMIT 25",
        &[],
    )
    .await;
    assert_eq!(pending, ids[3]);
}
