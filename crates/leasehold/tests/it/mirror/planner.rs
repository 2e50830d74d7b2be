//! What a pass and a check read, with few rows and with many.

use leasehold::testing::{MirrorSql, mirror_sql};
use serde_json::Value;
use tokio_postgres::Client;

use super::notes::Margin;

/// How each read of the notes is done: node and index.
fn reads(node: &Value, found: &mut Vec<String>) {
    let word = |name: &str| node[name].as_str().unwrap_or("").to_owned();
    if word("Relation Name") == "note" {
        found.push(format!("{} {}", word("Node Type"), word("Index Name")).trim().to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        reads(child, found);
    }
}

/// The plan that a session keeps for a prepared statement, carried out.
async fn explain(client: &Client, sql: &str, types: &str, values: &str) -> Value {
    client
        .batch_execute(&format!("begin; prepare asked ({types}) as {sql}"))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let explain = format!("explain (analyze, buffers, format json) execute asked ({values})");
    let row = client.query_one(&explain, &[]).await.expect("a plan");
    client.batch_execute("rollback; deallocate asked").await.expect("rolled back");
    let mut json: Value = row.get(0);
    json[0]["Plan"].take()
}

/// How it reads the notes, and how many pages.
async fn plan(client: &Client, sql: &str, types: &str, values: &str) -> (Vec<String>, i64) {
    let top = explain(client, sql, types, values).await;
    let mut found = Vec::new();
    reads(&top, &mut found);
    found.sort();
    let pages = ["Shared Hit Blocks", "Shared Read Blocks"];
    (found, pages.iter().filter_map(|name| top[*name].as_i64()).sum())
}

async fn assert_plans(client: &Client, sql: &MirrorSql, when: &str) {
    let keys = "array['n00001', 'n00002', 'n00003', 'nothing']";
    let by_key = |node: &str| {
        // A bitmap is made by the index of the key too: the pages tell.
        node.starts_with("Index Scan note_") || node == "Bitmap Heap Scan"
    };
    for (what, text, types, values) in [
        ("versions", &sql.versions, "text[], text", format!("{keys}, 'notes'")),
        ("documents", &sql.documents, "text[]", keys.to_owned()),
        ("digest", &sql.digest, "text[]", keys.to_owned()),
    ] {
        let (found, pages) = plan(client, text, types, &values).await;
        assert!(found.iter().all(|node| by_key(node)), "{what}, {when}: {found:?}");
        assert!(pages < 100, "{what} of four keys reads {pages} pages, {when}");
    }
    for (what, text, types, values) in [
        ("the first keys", &sql.first_keys, "bigint", "10"),
        ("the next keys", &sql.next_keys, "bigint, text", "10, 'n00005'"),
    ] {
        let (found, pages) = plan(client, text, types, values).await;
        let ordered = found.len() == 1 && found[0].ends_with("note_id_bytes_idx");
        assert!(ordered, "{what}, {when}: {found:?}");
        assert!(pages < 50, "{what} reads {pages} pages, {when}");
    }
}

#[tokio::test]
async fn g13_a_mirror_reads_by_key_with_ten_rows_and_with_a_hundred_thousand() {
    let margin = Margin::new().await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(1, 10).await;
    let sql = mirror_sql(&margin.mirror(), &margin.engine).await;
    assert!(sql.is_err(), "triggers that are off are noticed");
    margin.sql("alter table margin.note enable trigger user").await;
    let sql = mirror_sql(&margin.mirror(), &margin.engine).await.expect("a mirror");
    let client = margin.database.connect_directly().await;
    client.batch_execute(sql.settings).await.expect("settings");
    assert_plans(&client, &sql, "ten rows that nobody counted").await;
    margin.sql("analyze margin.note").await;
    assert_plans(&client, &sql, "ten rows").await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(11, 99_000).await;
    margin.sql("alter table margin.note enable trigger user").await;
    assert_plans(&client, &sql, "many rows that nobody counted").await;
    margin.sql("analyze margin.note").await;
    assert_plans(&client, &sql, "many rows").await;
}

/// Rows that joins compared and threw away.
fn thrown_away(node: &Value) -> f64 {
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    let here = number("Rows Removed by Join Filter") * number("Actual Loops");
    here + node["Plans"].as_array().into_iter().flatten().map(thrown_away).sum::<f64>()
}

#[tokio::test]
async fn g13_a_pass_of_many_keys_compares_none_of_them_with_all_the_others() {
    let margin = Margin::new().await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(1, 99_000).await;
    margin.sql("alter table margin.note enable trigger user").await;
    margin.sql("analyze margin.note").await;
    let sql = mirror_sql(&margin.mirror(), &margin.engine).await.expect("a mirror");
    let client = margin.database.connect_directly().await;
    client.batch_execute(sql.settings).await.expect("settings");
    let keys: Vec<String> = (1..=2500).map(|number| format!("'n{number:05}'")).collect();
    let keys = &format!("array[{}]", keys.join(", "));
    for (what, text, types, values) in [
        ("versions", &sql.versions, "text[], text", format!("{keys}, 'notes'")),
        ("documents", &sql.documents, "text[]", keys.clone()),
        ("digest", &sql.digest, "text[]", keys.clone()),
    ] {
        let top = explain(&client, text, types, &values).await;
        assert!(top["Actual Rows"].as_f64() > Some(0.0), "{what} found nothing: {top}");
        assert_eq!(thrown_away(&top), 0.0, "{what}: {top}");
    }
}
