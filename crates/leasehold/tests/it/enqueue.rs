//! Enqueue: which jobs it refuses, with which error, and that it stores nothing of them.

use crate::sql::{Sql, all, code, one, refused, run};

/// Arguments that enqueue refuses, the error code, and words of the advice.
const REFUSED: [(&str, &str, &str); 18] = [
    ("'note', '[]'", "LH002", "Wrap the value"),
    ("'note', '\"text\"'", "LH002", "Wrap the value"),
    ("'note', 'null'", "LH002", "Wrap the value"),
    ("'note', null", "LH002", "Wrap the value"),
    ("'', '{}'", "LH002", "Name the job"),
    ("null, '{}'", "LH002", "Name the job"),
    ("repeat('n', 201), '{}'", "LH002", "Name the job"),
    ("'note', queue => ''", "LH001", "Use 1 to 64"),
    ("'note', queue => null", "LH001", "Use 1 to 64"),
    ("'note', queue => 'Upper'", "LH001", "Use 1 to 64"),
    ("'note', queue => 'a; drop table leasehold.job'", "LH001", "Use 1 to 64"),
    ("'note', queue => repeat('q', 65)", "LH001", "Use 1 to 64"),
    ("'note', key => ''", "LH002", "bytes; it must have 1 to 200"),
    ("'note', key => repeat('k', 201)", "LH002", "bytes; it must have 1 to 200"),
    ("'note', tag => repeat('t', 201)", "LH002", "tag has 201 bytes; it must have at most 200"),
    ("'note', max_attempts => 0", "LH002", "max_attempts is 0; it must be at least 1"),
    ("'note', scheduled_at => 'infinity'", "LH002", "before the year 9999"),
    ("'note', scheduled_at => '-infinity'", "LH002", "before the year 9999"),
];

#[tokio::test]
async fn h2_malformed_jobs_are_refused_with_advice() {
    let sql = Sql::new().await;
    for (arguments, expected, advice) in REFUSED {
        let (code, text) =
            refused(&sql.client, &format!("select * from leasehold.enqueue({arguments})"), &[])
                .await;
        assert_eq!(code, expected, "{arguments}: {text}");
        assert!(text.contains(advice), "{arguments}: {text}");
    }
    assert_eq!(sql.count("job").await + sql.count("idempotency_key").await, 0);
}

#[tokio::test]
async fn h2_kwargs_end_at_64_kib_and_at_any_depth_the_server_accepts() {
    let sql = Sql::new().await;
    let largest =
        "select job_id from leasehold.enqueue('note', jsonb_build_object('a', repeat('x', $1)))";
    sql.client.query_one(largest, &[&65_000_i32]).await.unwrap();
    let (refusal, text) = refused(&sql.client, largest, &[&65_536_i32]).await;
    assert_eq!(refusal, "LH002");
    assert!(text.contains("64 KiB") && text.contains("enqueue a reference"), "{text}");
    // A plain INSERT meets the same limit.
    let (refusal, _) = refused(
        &sql.client,
        "insert into leasehold.job (name, kwargs) values ('note', jsonb_build_object('a', repeat('x', $1)))",
        &[&65_536_i32],
    )
    .await;
    assert_eq!(refusal, "23514");
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    let result =
        sql.client.query("select leasehold.enqueue('note', $1::text::jsonb)", &[&deep]).await;
    let stored = usize::from(result.is_ok());
    if let Err(error) = result {
        assert!(["54001", "LH002"].contains(&code(&error).as_str()), "{error}");
    }
    assert_eq!(sql.count("job").await, 1 + stored as i64);
    // Everything that was stored can be claimed: no job may block those behind it.
    let claimed: i64 = sql.one("select count(*) from leasehold.claim('w')", &[]).await;
    assert_eq!(claimed, 1 + stored as i64);
}

#[tokio::test]
async fn h1_characters_that_postgres_cannot_store_are_refused() {
    let sql = Sql::new().await;
    for (arguments, expected) in [
        ("'note', '{\"a\": \"\\u0000\"}'", "22P05"),
        ("'note', '{\"\\u0000\": 1}'", "22P05"),
        ("'note', '{\"a\": \"\\ud800\"}'", "22P02"),
        ("'note', '{\"a\": \"\\udc00\\ud800\"}'", "22P02"),
        ("'note', '{'", "22P02"),
        ("convert_from('\\xff', 'UTF8'), '{}'", "22021"),
    ] {
        let (code, _) =
            refused(&sql.client, &format!("select * from leasehold.enqueue({arguments})"), &[])
                .await;
        assert_eq!(code, expected, "{arguments}");
    }
    // A NUL in a parameter: in a name, and in an error text. The worker removes it from error texts,
    // so that the failure can be recorded; here the refused call must change nothing.
    let (code, _) = refused(&sql.client, "select leasehold.enqueue($1)", &[&"a\0b"]).await;
    assert_eq!(code, "22021");
    assert_eq!(sql.count("job").await, 0);
    let (id, generation) = sql.running().await;
    let fail = "select leasehold.fail($1, $2, $3)";
    let (code, _) = refused(&sql.client, fail, &[&id, &generation, &"no\0pe"]).await;
    assert_eq!(code, "22021");
    assert_eq!(sql.state(id).await, "running");
    let long = "ä".repeat(10_000);
    assert_eq!(sql.one::<String>(fail, &[&id, &generation, &long]).await, "retry");
    let kept: i32 = sql.one("select length(last_error) from leasehold.job", &[]).await;
    assert_eq!(kept, 4096);
}

#[tokio::test]
async fn bulk_enqueue_with_one_bad_job_stores_none() {
    let sql = Sql::new().await;
    for (arguments, expected) in [
        ("array['a', 'b'], array['{}']::jsonb[]", "LH002"),
        ("array['a', 'b'], array['{}', '{}']::jsonb[], keys => array['k']", "LH002"),
        ("array['a', ''], array['{}', '{}']::jsonb[]", "LH002"),
        ("array['a', 'b'], array['{}', '[]']::jsonb[]", "LH002"),
        ("array['a', 'b'], array['{}', '{}']::jsonb[], keys => array['k', '']", "LH002"),
        ("array['a', 'b'], array['{}', '{\"n\": 1}']::jsonb[], keys => array['k', 'k']", "LH003"),
        ("array['a'], array['{}']::jsonb[], queue => '!'", "LH001"),
        ("array['a'], array['{}']::jsonb[], tag => repeat('t', 201)", "LH002"),
    ] {
        let call = format!("select * from leasehold.enqueue_many({arguments})");
        let (code, text) = refused(&sql.client, &call, &[]).await;
        assert_eq!(code, expected, "{arguments}: {text}");
    }
    assert_eq!(sql.count("job").await + sql.count("idempotency_key").await, 0);
    let none = "select count(*) from leasehold.enqueue_many('{}', '{}')";
    assert_eq!(sql.one::<i64>(none, &[]).await, 0);
    let many = "select count(distinct job_id) from leasehold.enqueue_many(\
                array_fill('note'::text, array[1000]), array_fill('{}'::jsonb, array[1000]))";
    assert_eq!(sql.one::<i64>(many, &[]).await, 1000);
}

#[tokio::test]
async fn job_is_visible_only_after_its_transaction_commits() {
    let sql = Sql::new().await;
    let producer = sql.actor().await;
    run(&producer, "begin; select leasehold.enqueue('note')").await;
    assert_eq!(sql.one::<i64>("select count(*) from leasehold.claim('w')", &[]).await, 0);
    run(&producer, "rollback").await;
    assert_eq!(sql.count("job").await, 0);
    run(&producer, "begin; select leasehold.enqueue('note'); commit").await;
    assert_eq!(sql.one::<i64>("select count(*) from leasehold.claim('w')", &[]).await, 1);
}

#[tokio::test]
async fn i4_rows_inserted_by_hand_are_checked_by_constraints() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    sql.run("select leasehold_internal.queue_settings('default')").await;
    for statement in [
        "update leasehold.job set kwargs = '[]'",
        "update leasehold.job set name = ''",
        "update leasehold.job set queue = ''",
        "update leasehold.job set max_attempts = 0",
        "update leasehold_internal.queue set lease = '0'",
        "update leasehold_internal.queue set max_attempts = 0",
        "update leasehold_internal.queue set max_lost = 0",
        "update leasehold_internal.queue set claim_size = 0",
        "update leasehold_internal.queue set paused_at = now()",
        "update leasehold_internal.queue set name = repeat('n', 65)",
        "insert into leasehold_internal.dead_job select id, enqueued_at, scheduled_at, expires_at, now(), 0, 0, 0, \
         null, 0, 'a whim', null, queue, name, tag, kwargs from leasehold.job",
        "insert into leasehold_internal.history values (now(), 'a whim', 'default', 0, null, '{}', '{}', '{}', '{}', '{}', '{}')",
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) values ('NO', '* * * * *', 'x', now())",
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, missed) values ('x', '', 'x', now(), 'maybe')",
        "insert into leasehold_internal.idempotency_key values ('default', '', 1, '', now())",
        "insert into leasehold_internal.once_marker (scope, step, keep_until) values (repeat('s', 301), '', now())",
    ] {
        let (code, _) = refused(&sql.client, statement, &[]).await;
        assert_eq!(code, "23514", "{statement}");
    }
    for statement in
        ["update leasehold.job set kwargs = null", "update leasehold.job set held = null"]
    {
        assert_eq!(refused(&sql.client, statement, &[]).await.0, "23502", "{statement}");
    }
    let (code, _) =
        refused(&sql.client, "insert into leasehold.job (id, name) values (1, 'x')", &[]).await;
    assert_eq!(code, "428C9", "ids are given, not chosen");
}

#[tokio::test]
async fn c17_no_foreign_key_reaches_a_job() {
    let sql = Sql::new().await;
    let foreign: i64 = sql
        .one(
            "select count(*) from pg_constraint where contype = 'f' and \
             (connamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) or confrelid in \
              (select oid from pg_class where relnamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace)))",
            &[],
        )
        .await;
    assert_eq!(foreign, 0);
    // The check can fail.
    sql.run("create table leasehold.stray (job bigint references leasehold.job on delete cascade)")
        .await;
    let found: i64 = one(
        &sql.client,
        "select count(*) from pg_constraint where contype = 'f' and confrelid = 'leasehold.job'::regclass",
        &[],
    )
    .await;
    assert_eq!(found, 1);
}

#[tokio::test]
async fn c18_indexed_texts_do_not_depend_on_a_locale() {
    let sql = Sql::new().await;
    // Every text column of an index, except the ids of worker processes: no query compares them for
    // order, and they live for a day.
    let by_locale: Vec<String> = all(
        &sql.client,
        "select t.relname || '.' || a.attname from pg_index i \
           join pg_class t on t.oid = i.indrelid \
           join pg_attribute a on a.attrelid = t.oid and a.attnum = any (i.indkey) \
           join pg_type y on y.oid = a.atttypid \
          where t.relnamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and y.typname = 'text' \
            and a.attcollation <> (select oid from pg_collation where collname = 'C') \
            and t.relname <> 'worker'",
        &[],
    )
    .await;
    assert_eq!(by_locale, [""; 0]);
}
