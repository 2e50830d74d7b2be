//! Settings that would make jobs wait for ever, or that cannot work: the worker does not start.

use std::time::Duration;

use leasehold::Job;
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::support::{Note, engine};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "letter", queue = "mail")]
struct Letter;

#[tokio::test]
async fn worker_with_two_handlers_for_a_name_does_not_start() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = engine.worker().handle(async |_: Note| {}).handle(async |_: Note| {});
    let error = worker.run_until(async {}).await.expect_err("refused").to_string();
    assert!(error.contains("\"note\" has two handlers"), "{error}");
}

#[tokio::test]
async fn worker_does_not_start_with_a_handler_whose_queue_it_does_not_work() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = || engine.worker().queue("default", 1).handle(async |_: Letter| {});
    let error = worker().run_until(async {}).await.expect_err("refused").to_string();
    assert!(error.contains("\"letter\"") && error.contains(".queue(\"mail\", slots)"), "{error}");
    worker().queue("mail", 1).run_until(async {}).await.expect("a worker of both queues");
    worker().allow_other_queues().run_until(async {}).await.expect("a worker of other queues");
}

#[tokio::test]
async fn worker_does_not_start_with_a_time_that_cannot_work() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = || engine.worker().handle(async |_: Note| {});
    for (worker, text) in [
        (
            worker().poll_every(Duration::ZERO),
            "poll_every is 0ns; it must be between 1 ms and 60 s",
        ),
        (worker().renew_timeout(Duration::from_secs(61)), "renew_timeout is 61s; it must be"),
    ] {
        let error = worker.run_until(async {}).await.expect_err("refused").to_string();
        assert!(error.contains(text), "{error}");
    }
}
