//! The SQL of docs/batches.md, as psql runs it.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Runs statements; `\gset` keeps the columns of one as variables.
async fn psql(client: &Client, block: &str) {
    let mut known = BTreeMap::<String, String>::new();
    let ended = block.replace("\\gset", "\\gset;");
    for statement in ended.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let mut text = statement.trim_end_matches("\\gset").to_owned();
        for (name, value) in &known {
            text = text.replace(&format!(":{name}"), value);
        }
        let rows = client.simple_query(&text).await.expect(&text);
        for row in rows.iter().filter(|_| statement.ends_with("\\gset")) {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = row {
                for (at, column) in row.columns().iter().enumerate() {
                    known.insert(column.name().to_owned(), row.get(at).expect("text").to_owned());
                }
            }
        }
    }
}

#[tokio::test]
async fn page_about_batches_shows_statements_that_run() {
    let sql = Sql::new().await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/batches.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let blocks: Vec<&str> =
        page.split("```sql\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert!(blocks.len() >= 2, "{blocks:?}");
    for block in blocks {
        psql(&sql.client, block).await;
    }
    let states: Vec<String> =
        all(&sql.client, "select state || total from leasehold.batches order by id", &[]).await;
    assert_eq!(states, ["sealed2", "sealed1"]);
}
