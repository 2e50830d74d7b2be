//! Warnings about jobs that would wait for ever: the log line, and its remedy.

use leasehold::{Enqueue, Job};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::logs::Logs;
use crate::support::{engine, until};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter", queue = "mail")]
struct Letter;

/// The check comes ten seconds after the enqueue.
#[tokio::test]
async fn producer_warns_of_a_queue_that_no_worker_works() {
    let database = TestDatabase::new().await;
    let (engine, logs) = (engine(&database).await, Logs::collect());
    Letter.enqueue(&engine).await.expect("enqueued");
    until(async || logs.has("WARN", "no live worker works")).await;
    assert!(logs.has("WARN", "queue=\"mail\""), "{}", logs.text());
}

#[tokio::test]
async fn producer_warns_of_a_name_that_no_worker_of_the_queue_handles() {
    let database = TestDatabase::new().await;
    let (engine, logs) = (engine(&database).await, Logs::collect());
    let client = database.connect_directly().await;
    let other = "select leasehold_internal.register_worker('w', 'w', 'host', 1, '0.1.0', array['mail'], array['note'], \
                 4, 0, false)";
    client.batch_execute(other).await.expect("a worker");
    Letter.enqueue(&engine).await.expect("enqueued");
    until(async || logs.has("WARN", "name=\"letter\"")).await;
    assert!(!logs.has("WARN", "no live worker works"), "{}", logs.text());
}
