//! How Postgres executes a prepared statement: by which index, and how many pages it reads.

use serde_json::Value;
use tokio_postgres::Client;

/// What a plan reads from one table.
#[non_exhaustive]
pub struct Plan {
    /// `Index Scan loans_pkey`: each read of the table, sorted.
    pub reads: Vec<String>,
    pub pages: i64,
    /// Pairs of rows that join filters removed.
    pub thrown_away: f64,
}

/// Returns the plan of a prepared statement under the session's settings (`plan_cache_mode` decides
/// whether it is generic), measured by running it. The transaction is rolled back.
#[expect(clippy::panic, reason = "a statement that cannot be explained ends the test")]
pub async fn plan(client: &Client, table: &str, sql: &str, types: &str, values: &str) -> Plan {
    let prepare = format!("begin; prepare asked ({types}) as {sql}");
    let explain = format!("explain (analyze, buffers, format json) execute asked ({values})");
    let explained = async {
        client.batch_execute(&prepare).await?;
        let row = client.query_one(&explain, &[]).await?;
        client.batch_execute("rollback; deallocate asked").await?;
        Ok::<Value, tokio_postgres::Error>(row.get(0))
    };
    let json = match explained.await {
        Ok(json) => json,
        Err(error) => panic!("{sql}: {error:?}"),
    };
    let top = &json[0]["Plan"];
    let mut reads = Vec::new();
    find_reads(top, table, &mut reads);
    reads.sort();
    let pages = ["Shared Hit Blocks", "Shared Read Blocks"];
    let pages = pages.iter().filter_map(|name| top[*name].as_i64()).sum();
    Plan { reads, pages, thrown_away: thrown_away(top) }
}

fn thrown_away(node: &Value) -> f64 {
    let number = |name: &str| node[name].as_f64().unwrap_or_default();
    let here = number("Rows Removed by Join Filter") * number("Actual Loops");
    here + node["Plans"].as_array().into_iter().flatten().map(thrown_away).sum::<f64>()
}

fn find_reads(node: &Value, table: &str, found: &mut Vec<String>) {
    let word = |name: &str| node[name].as_str().unwrap_or_default();
    if word("Relation Name") == table && word("Node Type") != "ModifyTable" {
        found.push(format!("{} {}", word("Node Type"), word("Index Name")).trim().to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        find_reads(child, table, found);
    }
}
