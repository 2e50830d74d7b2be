//! Batches: one follow-up, when the last job has ended, whatever meets what.

mod cancel;
mod chains;
mod chaos;
mod ends;
mod limits;
mod members;
mod page;
mod retention;
mod worker;

use tokio_postgres::Client;

use crate::sql::{Sql, all, claim, one};

/// Opens a batch with a follow-up for success, death and any end.
async fn open(sql: &Sql) -> i64 {
    let open = "select leasehold.open_batch('test', on_success => '{\"name\": \"succeeded\"}', \
                on_end => '{\"name\": \"ended\"}', on_death => '{\"name\": \"died\"}')";
    sql.one(open, &[]).await
}

/// Adds `count` jobs and returns their ids.
async fn add(sql: &Sql, batch: i64, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(
            sql.one("select job_id from leasehold.enqueue('note', batch => $1)", &[&batch]).await,
        );
    }
    ids
}

/// Seals a batch of `count` jobs that are claimed. Returns it, the ids and their generation.
async fn running(sql: &Sql, count: usize) -> (i64, Vec<i64>, i64) {
    let batch = open(sql).await;
    let ids = add(sql, batch, count).await;
    assert!(sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await);
    let held = claim(&sql.client, "w", 1000).await;
    assert_eq!(held.ids, ids);
    (batch, ids, held.generation)
}

async fn complete(client: &Client, id: i64, generation: i64) -> bool {
    one(client, "select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await
}

/// Names of the follow-ups that exist, whatever their state.
async fn follow_ups(sql: &Sql) -> Vec<String> {
    let names = "select name from leasehold.jobs where name <> 'note' order by id";
    all(&sql.client, names, &[]).await
}

/// State and counts: total, completed, cancelled, dead, deleted.
async fn seen(sql: &Sql, batch: i64) -> (String, Vec<i64>) {
    let counts = "select array[total, completed, cancelled, dead, deleted] from leasehold.batches where id = $1";
    (
        sql.one("select state from leasehold.batches where id = $1", &[&batch]).await,
        sql.one(counts, &[&batch]).await,
    )
}

/// One look of a housekeeper, at once. Returns how many batches it closed.
async fn look(sql: &Sql) -> i32 {
    sql.one("select closed from leasehold_internal.look_at_batches('-1 day', '1 minute')", &[])
        .await
}
