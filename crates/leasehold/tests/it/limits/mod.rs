//! Limits: never more jobs of a key than its limit, no key stuck, none that delays another, and no order broken.

mod chaos;
mod claim;
mod cost;
mod flow;
mod keys;
mod order;
mod queue;
mod rate;
mod rules;
mod waiting;
mod worker;

use crate::sql::{Sql, all, one, run};

/// A database in which at most `max_running` jobs of each tenant run.
pub async fn tenants(max_running: i32) -> Sql {
    let sql = Sql::new().await;
    limit(&sql, "tenant", max_running).await;
    sql
}

pub async fn limit(sql: &Sql, key: &str, max_running: i32) {
    sql.client
        .execute("select leasehold.set_limit('default', $1, 'ann', $2)", &[&key, &max_running])
        .await
        .unwrap();
}

/// Enqueues jobs of one key, each after the other.
pub async fn enqueue(client: &tokio_postgres::Client, key: &str, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let sql = "select job_id from leasehold.enqueue('note', '{}', limit_key => $1)";
        ids.push(one(client, sql, &[&key]).await);
    }
    ids
}

/// Claims as a worker does, and returns ids with their generation.
pub async fn take(client: &tokio_postgres::Client, up_to: i32) -> Vec<(i64, i64)> {
    let sql = "select id, lease_generation \
                 from leasehold_internal.claim_limited('w', 'default', $1, null, null, null)";
    let rows = client.query(sql, &[&up_to]).await.expect("a claim");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

pub async fn ids(client: &tokio_postgres::Client, up_to: i32) -> Vec<i64> {
    take(client, up_to).await.into_iter().map(|job| job.0).collect()
}

pub async fn complete(client: &tokio_postgres::Client, (id, generation): (i64, i64)) -> bool {
    one(client, "select leasehold.complete($1, $2)", &[&id, &generation]).await
}

/// Returns the permits of each key that has any.
pub async fn permits(sql: &Sql) -> Vec<String> {
    let counted = "select limit_key || ' ' || count(*) from leasehold.job where permit \
                    group by limit_key order by 1";
    all(&sql.client, counted, &[]).await
}

/// Walks over all limit keys at once, and returns how many it listed.
pub async fn walk(sql: &Sql) -> i32 {
    sql.one("select leasehold_internal.walk_limits('-1 day')", &[]).await
}

/// Lets keys that a claimer looks at later be looked at now.
pub async fn look_now(sql: &Sql) {
    run(
        &sql.client,
        "update leasehold_internal.limit_key set look_at = now() where look_at is not null; \
         update leasehold_internal.limit_signal set due_at = now()",
    )
    .await;
}
