//! Limits: oversized values are refused or truncated, and a batch uses few transaction ids.

use leasehold::Enqueue;
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::sql::{Sql, all, one, refused, run};

#[derive(Clone, Debug, leasehold::Job, Serialize, Deserialize)]
#[job(name = "huge")]
struct Huge {
    text: String,
}

#[tokio::test]
async fn g10_kwargs_beyond_64_kib_are_rejected_however_they_come() {
    let database = TestDatabase::new().await;
    let engine = crate::support::engine(&database).await;
    let huge = Huge { text: noise(200_000) };
    let error = huge.clone().enqueue(&engine).await.expect_err("too large").to_string();
    assert!(error.contains("64 KiB"), "{error}");
    let error = engine.enqueue_many([huge]).await.expect_err("too large").to_string();
    assert!(error.contains("64 KiB"), "{error}");
    let sql = Sql::new().await;
    // Not compressible: the limit applies to the stored size.
    let text = "(select jsonb_build_object('t', string_agg(md5(i::text), '')) from generate_series(1, 5000) i)";
    let (code, text_of) =
        refused(&sql.client, &format!("select leasehold.enqueue('huge', {text})"), &[]).await;
    assert!(code == "LH002" && text_of.contains("64 KiB"), "{code} {text_of}");
    let insert = format!("insert into leasehold.job (name, kwargs) values ('huge', {text})");
    let (code, _) = refused(&sql.client, &insert, &[]).await;
    assert_eq!(code, "23514");
    assert_eq!(one::<i64>(&sql.client, "select count(*) from leasehold.job", &[]).await, 0);
}

#[tokio::test]
async fn g10_compressed_kwargs_count_with_their_whole_length() {
    let sql = Sql::new().await;
    sql.run("create table bulky (kwargs jsonb)").await;
    sql.run("insert into bulky select jsonb_build_object('a', repeat('x', n)) from unnest('{50000,70000}'::int[]) n").await;
    let small = "select max(pg_column_size(kwargs)) < 65536 from bulky";
    assert!(sql.one::<bool>(small, &[]).await, "both are stored compressed");
    for statement in [
        "insert into leasehold.job (name, kwargs) select 'note', kwargs from bulky",
        "select leasehold.enqueue('note', kwargs) from bulky",
        "select leasehold.enqueue_many(array['note'], array[kwargs]) from bulky",
    ] {
        let (code, text) = refused(&sql.client, statement, &[]).await;
        assert_eq!(code, "LH002", "{statement}: {text}");
        assert!(text.contains("64 KiB"), "{text}");
    }
    sql.run("insert into leasehold.job (name, kwargs) select 'note', kwargs from bulky where pg_column_size(kwargs || '{}') < 65536").await;
    assert_eq!(sql.count("job").await, 1);
}

#[tokio::test]
async fn g10_trace_context_beyond_1_kib_is_rejected() {
    let sql = Sql::new().await;
    let enqueue = |bytes: usize| {
        format!("select leasehold.enqueue('note', trace_context => repeat('x', {bytes}))")
    };
    let (code, text) = refused(&sql.client, &enqueue(1025), &[]).await;
    assert!(code == "LH002" && text.contains("1025 bytes"), "{code} {text}");
    run(&sql.client, &enqueue(1024)).await;
}

#[tokio::test]
async fn claim_refuses_a_lease_that_is_too_short_or_too_long() {
    let sql = Sql::new().await;
    run(&sql.client, "select leasehold.enqueue('note')").await;
    for lease in ["0", "-1 hour", "999 ms", "1 month -31 days", "8 days", "200000 years"] {
        let claim = format!("select leasehold.claim('w', lease => '{lease}')");
        let (code, text) = refused(&sql.client, &claim, &[]).await;
        assert!(
            code == "LH002" && text.contains("between 1 second and 7 days"),
            "{lease}: {code} {text}"
        );
    }
    let claim = "select count(*) from leasehold.claim('w', lease => '1 s')";
    assert_eq!(one::<i64>(&sql.client, claim, &[]).await, 1);
}

#[tokio::test]
async fn h6_texts_of_megabytes_are_cut_before_they_are_stored() {
    let sql = Sql::new().await;
    run(&sql.client, "select leasehold.enqueue('note')").await;
    let fail = "select leasehold.fail(id, lease_generation, repeat('x', 20000000)) from leasehold.claim('w')";
    assert_eq!(all::<String>(&sql.client, fail, &[]).await, ["retry"]);
    let kept = "select octet_length(last_error), octet_length(errors::text) from leasehold.job";
    let row = sql.client.query_one(kept, &[]).await.expect("the job");
    assert_eq!(row.get::<_, i32>(0), 4096);
    assert!(row.get::<_, i32>(1) < 8192, "{row:?}");
}

#[tokio::test]
async fn c11_thousand_jobs_cost_a_handful_of_transaction_ids() {
    let sql = Sql::new().await;
    let next = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let before: i64 = one(&sql.client, next, &[]).await;
    run(
        &sql.client,
        "insert into leasehold.job (name) select 'note' from generate_series(1, 1000)",
    )
    .await;
    let done = "select count(*) from (select leasehold.complete_many(array_agg(id), lease_generation) \
                  from leasehold.claim('w', claim_size => 1000) group by lease_generation) d";
    assert_eq!(one::<i64>(&sql.client, done, &[]).await, 1000);
    let used = one::<i64>(&sql.client, next, &[]).await - before;
    // The two statements use two; the rest allows for what the server does meanwhile.
    assert!(used < 100, "{used} transaction ids for 1,000 jobs");
}

/// Text that does not compress.
fn noise(length: usize) -> String {
    let mut state = 88_172_645_463_325_252_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + u8::try_from(state % 26).unwrap_or_default())
    };
    (0..length).map(letter).collect()
}
