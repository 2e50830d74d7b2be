use std::time::Duration;

use cookbook::retries::{CallHook, call_hook};
use leasehold::Enqueue;
use leasehold_testing::TestEngine;

#[tokio::test]
async fn hook_that_is_busy_is_retried_after_a_minute() {
    let t = TestEngine::new().await; // a database of its own
    t.perform(call_hook, CallHook { status: 200 }).await.assert_done();
    let why = t.perform(call_hook, CallHook { status: 503 }).await.assert_retry();
    assert_eq!(why, "attempt 1 of 8");
}

#[tokio::test]
async fn hook_that_stays_busy_runs_once_per_wait() {
    let t = TestEngine::new().await;
    CallHook { status: 503 }.enqueue(t.engine()).await.expect("enqueued");
    t.assert_enqueued::<CallHook>(|job| job.status == 503).await;
    t.crash_worker().await; // claims the job and dies: attempt 1
    assert_eq!(t.drain(t.worker().handle(call_hook)).await.retried, 1); // attempt 2
    assert_eq!(t.drain(t.worker().handle(call_hook)).await.retried, 0); // not due yet
    t.advance(Duration::from_secs(121)).await;
    assert_eq!(t.drain(t.worker().handle(call_hook)).await.retried, 1); // attempt 3
}
