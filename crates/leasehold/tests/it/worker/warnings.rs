//! Warnings about jobs that would wait for ever: the log line, and its remedy.

use leasehold::{Enqueue, Job};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::logs::Logs;
use crate::support::engine;

#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter", queue = "mail")]
struct Letter;

#[tokio::test]
async fn producer_warns_of_a_queue_that_no_worker_works() {
    let database = TestDatabase::new().await;
    let (engine, logs) = (engine(&database).await, Logs::collect());
    Letter.enqueue(&engine).await.expect("enqueued");
    engine.warn_if_unworked("mail").await;
    assert!(logs.has("WARN", "no live worker works"), "{}", logs.text());
    assert!(logs.has("WARN", "queue=\"mail\""), "{}", logs.text());
}
