//! Many jobs at once: by COPY, or by arrays behind a pooler.

use leasehold::queue::bulk::{enqueue_many, enqueue_many_by_array};
use leasehold::{EnqueueError, Job};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use super::jobs;
use crate::support::engine;

/// A job with every attribute that goes into its row.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "import", queue = "bulk", priority = 9, max_attempts = 3)]
struct Import {
    line: String,
}

fn lines(count: usize) -> impl Iterator<Item = Import> {
    (0..count).map(|n| Import { line: format!("line {n}, \"quoted\", ü") })
}

async fn assert_stored(client: &Client, count: i64) {
    let sql = "select count(*), count(distinct kwargs) from leasehold.job \
                where name = 'import' and queue = 'bulk' and priority = 9 and max_attempts = 3 \
                  and tag = 'csv' and kwargs->>'line' like 'line %, \"quoted\", ü' \
                  and scheduled_at <= now() and not held and attempts = 0";
    let row = client.query_one(sql, &[]).await.expect("a count");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (count, count));
}

#[tokio::test]
async fn copy_is_part_of_the_transaction() {
    let database = TestDatabase::new().await;
    // Directly to the server: COPY needs a prepared statement, and a pooler does not keep it.
    let mut client = database.connect_directly().await;
    let tx = client.transaction().await.expect("a transaction");
    assert_eq!(enqueue_many(&tx, lines(2500), "csv").await.expect("stored"), 2500);
    tx.rollback().await.expect("rolled back");
    assert_eq!(jobs(&client).await, 0);
    let tx = client.transaction().await.expect("a transaction");
    enqueue_many(&tx, lines(2500), "csv").await.expect("stored");
    tx.commit().await.expect("committed");
    assert_stored(&client, 2500).await;
}

#[tokio::test]
async fn arrays_store_the_same_jobs_as_copy() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.expect("a transaction");
    assert_eq!(enqueue_many_by_array(&tx, lines(2500), "csv").await.expect("stored"), 2500);
    tx.rollback().await.expect("rolled back");
    assert_eq!(jobs(&looking).await, 0);
    let tx = client.transaction().await.expect("a transaction");
    enqueue_many_by_array(&tx, lines(2500), "csv").await.expect("stored");
    tx.commit().await.expect("committed");
    assert_stored(&looking, 2500).await;
}

#[tokio::test]
async fn b11_enqueue_many_uses_copy_or_arrays_as_its_connection_allows() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let pooled = std::env::var("LEASEHOLD_TEST_POOLER").is_ok_and(|pooler| !pooler.is_empty());
    assert_eq!(engine.database().is_pooled(), pooled);
    assert_eq!(engine.enqueue_many(lines(1200)).await.expect("stored"), 1200);
    assert_eq!(engine.enqueue_many(lines(0)).await.expect("nothing to store"), 0);
    assert_eq!(jobs(&database.connect_directly().await).await, 1200);
}

#[tokio::test]
async fn refused_job_fails_the_whole_bulk_enqueue() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let mut client = database.connect_directly().await;
    let with_one_too_large =
        || lines(1500).chain([Import { line: "x".repeat(70_000) }]).chain(lines(3));
    let error = engine.enqueue_many(with_one_too_large()).await.expect_err("too large");
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
    let error = enqueue_many(&client, with_one_too_large(), "").await.expect_err("too large");
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
    let tx = client.transaction().await.expect("a transaction");
    let error = enqueue_many_by_array(&tx, with_one_too_large(), "").await.expect_err("too large");
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
    tx.rollback().await.expect("rolled back");
    assert_eq!(jobs(&client).await, 0);
    // The connection is not left in the middle of a COPY.
    assert_eq!(engine.enqueue_many(lines(1)).await.expect("stored"), 1);
}

#[tokio::test]
async fn job_that_serde_cannot_encode_stores_nothing() {
    #[derive(Job, Serialize, Deserialize)]
    #[job(name = "odd")]
    struct Odd {
        map: std::collections::HashMap<(i32, i32), i32>,
    }
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let odd = || [Odd { map: Default::default() }, Odd { map: [((1, 2), 3)].into() }];
    let error = enqueue_many(&client, odd(), "").await.expect_err("a key that is no text");
    assert!(matches!(error, EnqueueError::Arguments(_)), "{error:?}");
    assert_eq!(jobs(&client).await, 0);
}
