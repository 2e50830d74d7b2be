//! Slow networks, and connections that end in the middle of a row.

use std::time::Duration;

use leasehold::worker::JobTx;
use leasehold::{Enqueue, Finished, JobResult};
use leasehold_testing::proxy::Rule;
use tokio_postgres::types::Type;

use super::Setup;
use crate::fixture::{completed, queue_settings, run, until};
use crate::support::Note;

async fn into_ledger(job: Note, tx: JobTx) -> JobResult {
    tx.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
    Ok(tx.complete().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn b9_slow_network_loses_and_repeats_nothing() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::throttle(100_000));
    setup.proxy.add(Rule::delay(Duration::from_millis(5)));
    let worker = run(setup.engine.worker().queue("default", 8).handle(into_ledger));
    for n in 0..30 {
        let draft = Note { n }.draft().expect("a draft").key(format!("{n}"));
        draft.enqueue(&setup.engine).await.expect("enqueued");
    }
    until("all done", async || completed(&setup.client).await == 30).await;
    worker.stop().await;
    setup.assert_each_once(30).await;
    assert_eq!(
        setup
            .count(
                "select count(*) from leasehold_internal.history, unnest(attempts) a where a > 1"
            )
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b9_connections_that_end_inside_a_reply_lose_and_repeat_nothing() {
    let setup = Setup::new().await;
    queue_settings(&setup.client, super::SHORT_LEASES).await;
    let worker = run(setup.engine.worker().queue("default", 8).handle(into_ledger));
    for n in 0..40_i64 {
        // Cut each time inside another message of the server.
        setup.proxy.add(Rule::cut_inside_server_message(n as u64 % 13 + 1));
        let draft = Note { n }.draft().expect("a draft").key(format!("{n}"));
        while draft.clone().enqueue(&setup.engine).await.is_err() {}
    }
    setup.proxy.heal();
    until("all done", async || completed(&setup.client).await == 40).await;
    worker.stop().await;
    setup.assert_each_once(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b9_resets_at_any_time_lose_and_repeat_nothing() {
    let setup = Setup::new().await;
    queue_settings(&setup.client, super::SHORT_LEASES).await;
    let worker = run(setup.engine.worker().queue("default", 8).handle(into_ledger));
    for n in 0..60_i64 {
        let draft = Note { n }.draft().expect("a draft").key(format!("{n}"));
        while draft.clone().enqueue(&setup.engine).await.is_err() {}
        if n % 4 == 0 {
            setup.proxy.reset_all();
        }
    }
    until("all done", async || completed(&setup.client).await == 60).await;
    worker.stop().await;
    setup.assert_each_once(60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b9_claim_that_was_slow_once_delays_no_job_that_falls_due() {
    let setup = Setup::new().await;
    // Without wake-ups, only its own timer makes the worker poll.
    setup.proxy.add(Rule::cut_before("listen leasehold_wake").times(u64::MAX));
    setup
        .proxy
        .add(Rule::delay_statement("leasehold_internal.claim_next(", Duration::from_secs(3)));
    for (n, due) in [(0, Duration::ZERO), (1, Duration::from_secs(4))] {
        let draft = Note { n }.draft().expect("a draft").run_after(due);
        draft.enqueue(&setup.engine).await.expect("enqueued");
    }
    let mut worker = run(setup.engine.worker().queue("default", 8).handle(into_ledger));
    for _ in 0..2 {
        assert_eq!(worker.next_end().await, Finished::Completed);
    }
    worker.stop().await;
    setup.assert_each_once(2).await;
}
