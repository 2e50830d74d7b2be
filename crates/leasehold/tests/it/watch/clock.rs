//! Makes time pass by moving rows.

use tokio_postgres::Client;

/// Makes everything older by `by`.
pub async fn age(client: &Client, by: &str) {
    let age = format!("interval '{by}'");
    for table in ["measure", "measure_hour"] {
        // In two steps: in one, the rows would collide on the way. No reader sees them there.
        let there = format!(
            "update leasehold_internal.{table} set at = at - ({age} + interval '1000 days')"
        );
        let back = format!("update leasehold_internal.{table} set at = at + interval '1000 days'");
        run(client, &format!("{there}; {back}")).await;
    }
    for (table, columns) in [
        ("duty", "ran_at"),
        ("tally", "at"),
        ("history", "finished_at"),
        ("watch", "since"),
        ("dead_job", "died_at expires_at"),
        ("job", "enqueued_at scheduled_at expires_at"),
        ("idempotency_key", "holds_until created_at"),
        ("alarm", "raised_at cleared_at seen_at silenced_until acknowledged_at notified_at"),
    ] {
        let set: Vec<String> =
            columns.split(' ').map(|column| format!("{column} = {column} - {age}")).collect();
        let schema = if table == "job" { "leasehold" } else { "leasehold_internal" };
        run(client, &format!("update {schema}.{table} set {}", set.join(", "))).await;
    }
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect(sql);
}
