//! The server executes a statement, and its reply is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::events::Event;
use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, Enqueued, Finished, Job, JobError, JobResult, Leasehold, Outcome};
use leasehold_testing::proxy::Rule;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use super::Setup;
use crate::fixture::{completed, jobs, run, sql, until};
use crate::support::{Note, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn b1_enqueues_whose_replies_are_lost_make_one_job_each() {
    const EACH: i64 = 50;
    let setup = Arc::new(Setup::new().await);
    let producers: Vec<_> = (0..6)
        .map(|producer| {
            let setup = Arc::clone(&setup);
            tokio::spawn(async move {
                for n in producer * EACH..(producer + 1) * EACH {
                    setup.proxy.add(Rule::drop_reply_to("leasehold.enqueue("));
                    let draft = Note { n }.draft().expect("a draft").key(format!("note {n}"));
                    let mut began = Instant::now();
                    while let Err(error) = draft.clone().enqueue(&setup.engine).await {
                        // The engine itself retries for 10 s.
                        let early = began.elapsed() < Duration::from_secs(10);
                        assert!(!early, "abandoned after {:?}: {error}", began.elapsed());
                        began = Instant::now();
                    }
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.expect("no panic");
    }
    assert_eq!(jobs(&setup.client).await, 6 * EACH);
    assert_eq!(setup.count("select count(distinct kwargs) from leasehold.job").await, 6 * EACH);
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_enqueue_without_a_key_is_not_repeated() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::drop_reply_to("leasehold.enqueue("));
    let error = Note { n: 1 }.enqueue(&setup.engine).await.expect_err("the reply was lost");
    assert!(error.to_string().contains("idempotency key"), "{error}");
    assert_eq!(jobs(&setup.client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b2_lost_commit_of_the_callers_transaction_is_repeated_with_its_key() {
    let setup = Setup::new().await;
    let store = async |engine: &Leasehold| -> Result<Enqueued, JobError> {
        let mut client = engine.pool().get().await?;
        let transaction = client.transaction().await?;
        transaction
            .batch_execute("insert into ledger select 1 where not exists (select from ledger)")
            .await?;
        let stored = Note { n: 1 }.draft()?.key("order 1").enqueue(&transaction).await?;
        transaction.commit().await?;
        Ok(stored)
    };
    setup.proxy.add(Rule::drop_reply_to_commit());
    assert!(store(&setup.engine).await.is_err());
    let stored = store(&setup.engine).await.unwrap_or_else(|_| panic!("stored"));
    assert!(matches!(stored, Enqueued::Duplicate(_)));
    assert_eq!(
        (jobs(&setup.client).await, setup.count("select count(*) from ledger").await),
        (1, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_claim_whose_reply_was_lost_is_recovered_at_once() {
    let setup = Setup::new().await;
    setup.engine.enqueue_many((0..10).map(|n| Note { n })).await.expect("enqueued");
    let lost = setup.proxy.add(Rule::drop_reply_to("leasehold_internal.claim_next("));
    let mut worker = run(setup.engine.worker().queue("default", 10).handle(async |_: Note| {}));
    let found = wait_for(&mut worker.events, |event| match event {
        Event::ClaimRecovered { jobs, .. } => Some(*jobs),
        _ => None,
    });
    assert_eq!(found.await, 10);
    worker.finished(10).await;
    worker.stop().await;
    assert_eq!(setup.proxy.fired(lost), 1);
    let first_attempts =
        "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(setup.count(first_attempts).await, 10, "the lease did not have to run out");
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_claim_of_a_job_on_its_last_chance_is_recovered_at_once() {
    let setup = Setup::new().await;
    Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued");
    sql(&setup.client, "update leasehold.job set lost_count = 2, attempts = 2").await;
    setup.proxy.add(Rule::drop_reply_to("leasehold_internal.claim_alone("));
    let mut worker = run(setup.engine.worker().queue("default", 10).handle(async |_: Note| {}));
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
    let third = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 3";
    assert_eq!(setup.count(third).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b3_a28_claim_of_several_leases_is_recovered_lease_by_lease() {
    let setup = Setup::new().await;
    setup.engine.enqueue_many((0..10).map(|n| Note { n })).await.expect("enqueued");
    sql(
        &setup.client,
        "update leasehold.job set lost_count = 1, attempts = 1 where (kwargs ->> 'n')::int < 4",
    )
    .await;
    let lost = setup.proxy.add(Rule::drop_reply_to("leasehold_internal.claim_next("));
    let mut worker = run(setup.engine.worker().queue("default", 10).handle(async |_: Note| {}));
    let mut sizes = Vec::new();
    wait_for(&mut worker.events, |event| {
        if let Event::ClaimRecovered { jobs, .. } = event {
            sizes.push(*jobs);
        }
        (sizes.iter().sum::<usize>() == 10).then_some(())
    })
    .await;
    sizes.sort_unstable();
    assert_eq!(sizes, [4, 6]);
    until("all done", async || completed(&setup.client).await == 10).await;
    worker.stop().await;
    assert_eq!(setup.proxy.fired(lost), 1);
    let first = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(setup.count(first).await, 6, "no lease had to run out");
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "brief", run_limit = "100ms", backoff = "1h..1h")]
struct Brief {}

#[tokio::test(flavor = "multi_thread")]
async fn a26_failure_at_the_run_limit_whose_reply_is_lost_is_recorded_once() {
    let setup = Setup::new().await;
    let lost = setup.proxy.add(Rule::drop_reply_to("leasehold_internal.record_failure("));
    Brief {}.enqueue(&setup.engine).await.expect("enqueued");
    let handler = async |_: Brief| std::future::pending::<()>().await;
    let mut worker = run(setup.engine.worker().queue("default", 1).handle(handler));
    assert_eq!(worker.next_end().await, Finished::Retried);
    worker.stop().await;
    assert_eq!(setup.proxy.fired(lost), 1);
    let once =
        "select count(*) from leasehold.jobs where attempts = 1 and jsonb_array_length(errors) = 1";
    assert_eq!(setup.count(once).await, 1);
}

/// One job per way to end an attempt, and the statement that records it.
const ENDS: [(i64, &str, Finished); 6] = [
    (0, "leasehold.complete_many(", Finished::Completed),
    (1, "leasehold_internal.record_failure(", Finished::Retried),
    (2, "leasehold.snooze(", Finished::Snoozed),
    (3, "leasehold.finish_cancelled(", Finished::Cancelled),
    (4, "leasehold.bury(", Finished::Buried),
    (5, "leasehold_internal.record_failure(", Finished::Retried),
];

async fn end_by_number(job: Note) -> JobResult {
    let long = Duration::from_secs(600);
    match job.n {
        0 => Ok(Outcome::Complete),
        1 => Ok(Outcome::Retry { after: long, why: "later".into() }),
        2 => Ok(Outcome::Snooze(long)),
        3 => Ok(Outcome::Cancel("no".into())),
        4 => Err(JobError::permanent("never")),
        _ => panic!("on purpose"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_finish_whose_reply_was_lost_is_reported_as_recorded() {
    let setup = Setup::new().await;
    let mut worker = run(setup.engine.worker().queue("default", 1).handle(end_by_number));
    for (n, statement, outcome) in ENDS {
        let lost = setup.proxy.add(Rule::drop_reply_to(statement));
        Note { n }.enqueue(&setup.engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, outcome, "{statement}");
        assert_eq!(setup.proxy.fired(lost), 1, "{statement}");
    }
    worker.stop().await;
    assert_eq!(completed(&setup.client).await, 1);
    assert_eq!(setup.count("select count(*) from leasehold_internal.dead_job").await, 1);
    let open = "select count(*) from leasehold_internal.lease where ended_at is null";
    assert_eq!(setup.count(open).await, 0);
    assert_eq!(setup.count("select sum(lost_count) from leasehold.job").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_finish_that_never_reached_the_server_is_repeated() {
    let setup = Setup::new().await;
    let mut worker = run(setup.engine.worker().queue("default", 1).handle(end_by_number));
    for (n, statement, outcome) in ENDS {
        let cut = setup.proxy.add(Rule::cut_before(statement).times(2));
        Note { n }.enqueue(&setup.engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, outcome, "{statement}");
        assert_eq!(setup.proxy.fired(cut), 2, "{statement}");
    }
    worker.stop().await;
    assert_eq!(completed(&setup.client).await, 1);
}

async fn into_ledger(job: Note, tx: JobTx) -> JobResult {
    tx.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
    Ok(tx.complete().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_lost_reply_to_a_handlers_commit_does_not_repeat_its_effect() {
    let setup = Setup::new().await;
    // Housekeeping commits transactions of its own, which the rule would hit.
    let worker = setup.engine.worker().queue("default", 1).without_housekeeping();
    let mut worker = run(worker.handle(into_ledger));
    for n in 0..5 {
        let lost = setup.proxy.add(Rule::drop_reply_to_commit());
        Note { n }.enqueue(&setup.engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, Finished::Completed);
        assert_eq!(setup.proxy.fired(lost), 1);
    }
    worker.stop().await;
    setup.assert_each_once(5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_finish_waits_for_a_commit_that_is_still_in_flight() {
    commit_outlives_its_connection(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_commit_that_arrives_while_the_failure_has_no_reply_counts_as_completed() {
    commit_outlives_its_connection(true).await;
}

/// A handler's COMMIT outlives its connection, and the worker reports a failure. With `lost_reply`,
/// the reply to that report is lost as well, after the COMMIT.
async fn commit_outlives_its_connection(lost_reply: bool) {
    let setup = Setup::new().await;
    // COMMIT takes as long as the test holds the lock. The timeouts of the engine's sessions are
    // off: they would end that commit, or the second try, before the test is done.
    sql(
        &setup.client,
        "create function hold() returns trigger language plpgsql \
         set lock_timeout = 0 set client_connection_check_interval = 0 as \
         'begin perform pg_advisory_xact_lock(42); return null; end'; \
         alter function leasehold_internal.record_failure(bigint, bigint, text, interval, boolean) \
             set lock_timeout = 0; \
         create constraint trigger hold after insert on ledger deferrable initially deferred \
         for each row execute function hold(); \
         select pg_advisory_lock(42)",
    )
    .await;
    let handler = async |job: Note, tx: JobTx, ctx: Ctx| -> JobResult {
        tx.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
        assert_eq!(ctx.attempt(), 1);
        Ok(tx.complete().await?)
    };
    let mut worker = run(setup.engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued");
    let watcher = setup.database.connect_directly().await;
    let waiting = |what: &str| {
        format!(
            "select count(*) from pg_stat_activity where datname = current_database() \
             and wait_event_type = 'Lock' and query ilike '%{what}%'"
        )
    };
    let committing = waiting("commit");
    until("the commit hangs", async || crate::fixture::count(&watcher, &committing).await == 1)
        .await;
    let lost = lost_reply
        .then(|| setup.proxy.add(Rule::drop_reply_to("leasehold_internal.record_failure(")));
    // The worker loses its connections; the server still runs the COMMIT.
    setup.proxy.reset_all();
    let failing = waiting("leasehold_internal.record_failure(");
    until("the second try waits for the first", async || {
        crate::fixture::count(&watcher, &failing).await == 1
    })
    .await;
    sql(&setup.client, "select pg_advisory_unlock(42)").await;
    assert_eq!(worker.next_end().await, Finished::Completed);
    assert!(lost.is_none_or(|lost| setup.proxy.fired(lost) == 1));
    worker.stop().await;
    setup.assert_each_once(1).await;
}
