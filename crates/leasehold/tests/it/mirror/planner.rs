//! What a pass and a check read, with few rows and with many.

use leasehold::testing::{MirrorSql, mirror_sql};
use leasehold_testing::plan::{Plan, plan};
use tokio_postgres::Client;

use super::fixture::Margin;

async fn assert_plans(client: &Client, sql: &MirrorSql, when: &str) {
    let keys = "array['n00001', 'n00002', 'n00003', 'nothing']";
    let by_key = |node: &str| {
        // A bitmap scan uses the index of the key, too: the number of pages shows it.
        node.starts_with("Index Scan note_") || node == "Bitmap Heap Scan"
    };
    for (what, text, types, values) in [
        ("versions", &sql.versions, "text[], text", format!("{keys}, 'notes'")),
        ("documents", &sql.documents, "text[]", keys.to_owned()),
        ("digest", &sql.digest, "text[]", keys.to_owned()),
    ] {
        let Plan { reads, pages, .. } = plan(client, "note", text, types, &values).await;
        assert!(reads.iter().all(|node| by_key(node)), "{what}, {when}: {reads:?}");
        assert!(pages < 100, "{what} of four keys reads {pages} pages, {when}");
    }
    for (what, text, types, values) in [
        ("the first keys", &sql.first_keys, "bigint", "10"),
        ("the next keys", &sql.next_keys, "bigint, text", "10, 'n00005'"),
    ] {
        let Plan { reads, pages, .. } = plan(client, "note", text, types, values).await;
        let ordered = reads.len() == 1 && reads[0].ends_with("note_id_bytes_idx");
        assert!(ordered, "{what}, {when}: {reads:?}");
        assert!(pages < 50, "{what} reads {pages} pages, {when}");
    }
}

#[tokio::test]
async fn g13_mirror_reads_by_key_with_ten_rows_and_with_a_hundred_thousand() {
    let margin = Margin::new().await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(1, 10).await;
    let sql = mirror_sql(&margin.mirror(), &margin.engine).await;
    assert!(sql.is_err(), "triggers that are off are noticed");
    margin.sql("alter table margin.note enable trigger user").await;
    let sql = mirror_sql(&margin.mirror(), &margin.engine).await.expect("a mirror");
    let client = margin.database.connect_directly().await;
    client.batch_execute(sql.settings).await.expect("settings");
    assert_plans(&client, &sql, "ten rows without statistics").await;
    margin.sql("analyze margin.note").await;
    assert_plans(&client, &sql, "ten rows").await;
    margin.sql("alter table margin.note disable trigger user").await;
    margin.write_many(11, 99_000).await;
    margin.sql("alter table margin.note enable trigger user").await;
    assert_plans(&client, &sql, "many rows without statistics").await;
    margin.sql("analyze margin.note").await;
    assert_plans(&client, &sql, "many rows").await;
}

#[tokio::test]
async fn g13_pass_of_many_keys_compares_no_key_with_every_other() {
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
        let Plan { pages, thrown_away, .. } = plan(&client, "note", text, types, &values).await;
        assert!(pages > 0, "{what} read nothing");
        assert_eq!(thrown_away, 0.0, "{what}");
    }
}
