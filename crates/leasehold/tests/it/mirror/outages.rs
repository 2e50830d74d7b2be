//! A store that is down, slow or overloaded.

use std::time::Duration;

use leasehold_testing::target::Operation;

use super::fixture::{Margin, in_the_end};
use crate::fixture::run;

#[tokio::test]
async fn f11_store_that_is_down_uses_no_attempts_and_gets_few_calls() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.target.faults(|faults| faults.down = true);
    margin.write_many(1, 3000).await;
    let tally = margin.pass().await;
    assert_eq!((tally.completed, tally.deferred, tally.dead), (0, 3000, 0));
    assert!(margin.target.log().len() <= 3, "{} calls", margin.target.log().len());
    let waiting = "select count(*) from leasehold.job where attempts = 0 and not held and scheduled_at > now()";
    assert_eq!(margin.count(waiting).await, 3000);
    margin.target.faults(|faults| faults.down = false);
    margin.due().await;
    let mut done = 0;
    for _ in 0..5 {
        done += margin.pass().await.completed;
        margin.due().await;
    }
    assert_eq!(done, 3000);
    margin.assert_equal().await;
}

#[tokio::test]
async fn f11_deferred_jobs_are_due_at_once_when_the_store_is_back() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.down = true);
    margin.write_many(1, 200).await;
    let worker = run(margin.engine.worker().mirror(margin.mirror()));
    let off = "select count(*) from leasehold.job where deferred";
    in_the_end("everything is deferred", async || margin.count(off).await == 200).await;
    // As after an outage of hours: no job would be due by itself for a while.
    margin
        .sql("update leasehold.job set scheduled_at = now() + interval '1 hour' where not held")
        .await;
    margin.target.faults(|faults| faults.down = false);
    margin.write(&["fresh"]).await;
    in_the_end("all is there", async || margin.target.documents().len() == 201).await;
    in_the_end("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn f11_store_that_accepts_small_writes_gets_small_writes() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.at_most = Some(50));
    margin.write_many(1, 1000).await;
    let mirror = margin.mirror();
    in_the_end("all is there", async || {
        mirror.pass_once(&margin.engine).await.expect("a pass");
        margin.due().await;
        margin.jobs().await == 0
    })
    .await;
    margin.assert_equal().await;
    let log = margin.target.log();
    let largest = log.iter().filter_map(|call| match call {
        Operation::Write(keys) => Some(*keys),
        _ => None,
    });
    assert!(largest.max().is_some_and(|keys| keys > 10), "more than the least");
}

#[tokio::test]
async fn f11_call_to_a_store_that_does_not_respond_ends_at_the_limit() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.target.faults(|faults| faults.slow = Some(Duration::from_secs(3600)));
    margin.write(&["a"]).await;
    let mirror = margin.mirror().limit(Duration::from_millis(50));
    assert_eq!(mirror.pass_once(&margin.engine).await.expect("a pass").deferred, 1);
    let why =
        "select count(*) from leasehold.job where last_error like '%no response within 50 ms%'";
    assert_eq!(margin.count(why).await, 1);
}

#[tokio::test]
async fn lost_responses_and_repeated_writes_change_nothing() {
    let margin = Margin::new().await;
    margin.keep_deferred().await;
    margin.write(&["a", "b"]).await;
    margin.target.faults(|faults| faults.lose_answers = true);
    assert_eq!(margin.pass().await.deferred, 2);
    margin.target.faults(|faults| {
        faults.lose_answers = false;
        faults.duplicate_writes = true;
    });
    margin.due().await;
    assert_eq!(
        margin.pass().await.completed,
        2,
        "the store shows them, although its answers were lost"
    );
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    margin.pass().await;
    margin.sql("update margin.note set body = 'y' where id = 'a'").await;
    margin.pass().await;
    margin.target.land(true);
    margin.assert_equal().await;
    assert!(margin.target.fallen().is_empty());
}
