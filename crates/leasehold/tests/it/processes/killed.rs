//! Processes killed with SIGKILL, and what they leave behind.

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use rustix::process::Signal;

use super::{Process, assert_no_orphans, noted, tables};
use crate::fixture::{back_date_leases, completed, count, jobs, number, run, sql, until};
use crate::support::Note;

const HELD: &str = "select count(*) from leasehold.job where held";

#[tokio::test(flavor = "multi_thread")]
async fn a8_hundred_jobs_of_a_killed_worker_start_elsewhere_and_none_is_lost() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    engine.enqueue_many((0..100).map(|n| Note { n })).await.expect("enqueued");
    let mut victim = Process::start("hold", &database, "");
    until("it holds a hundred jobs", async || count(&client, HELD).await == 100).await;
    let old: Vec<(i64, i64)> = {
        let rows = client
            .query("select id, lease_generation from leasehold.job", &[])
            .await
            .expect("rows");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    victim.signal(Signal::KILL);
    victim.ended().await;
    back_date_leases(&client).await;
    let mut worker = run(engine.worker().queue("default", 20).handle(async |_: Note| {}));
    worker.finished(100).await;
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (100, 0));
    // One loss and one more attempt each.
    let second = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 2";
    assert_eq!(count(&client, second).await, 100);
    assert_eq!(
        count(&client, "select sum(cardinality(lost_ids)) from leasehold_internal.lease").await,
        100
    );
    // Calls that the dead worker had sent arrive at last.
    for (id, generation) in old {
        let late = format!("select leasehold.complete({id}, {generation})::int");
        assert_eq!(count(&client, &late).await, 0);
        let late = format!("select leasehold.fail({id}, {generation}, 'late')");
        let late = client.query_one(&late, &[]).await.expect("a reply");
        assert_eq!(late.get::<_, &str>(0), "lost");
    }
    assert_eq!((completed(&client).await, jobs(&client).await), (100, 0));
    assert_no_orphans(&client).await;
}

#[cfg(feature = "chaos")]
#[tokio::test(flavor = "multi_thread")]
async fn a8_worker_that_dies_between_claim_and_start_costs_one_loss_per_job() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    engine.enqueue_many((0..10).map(|n| Note { n })).await.expect("enqueued");
    let mut victim = Process::start("quick", &database, "claim.committed=abort");
    assert!(!victim.ended().await.success());
    assert_eq!(count(&client, HELD).await, 10, "claimed, and no handler runs");
    back_date_leases(&client).await;
    let mut worker = run(engine.worker().queue("default", 10).handle(async |_: Note| {}));
    worker.finished(10).await;
    worker.stop().await;
    assert_eq!(completed(&client).await, 10);
    let lost = "select count(*) from leasehold_internal.finished_job where attempts = 2 and errors @> \
                '[{\"attempt\": 1, \"error\": \"the worker was lost: its lease ran out\"}]'";
    assert_eq!(count(&client, lost).await, 10);
    assert_no_orphans(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b6_process_that_dies_between_effect_and_finish_applies_its_effect_once() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    for n in 1..=3 {
        engine.enqueue_many([Note { n }]).await.expect("enqueued");
        let mut victim = Process::start("crash-after-effect", &database, "");
        assert!(!victim.ended().await.success());
        assert_eq!(count(&client, "select count(*) from ledger").await, n, "the effect is there");
        back_date_leases(&client).await;
        let mut second = Process::start("crash-after-effect", &database, "");
        until("the second attempt", async || completed(&client).await == n).await;
        assert!(second.is_alive());
        assert_eq!(count(&client, "select count(*) from ledger").await, n, "and only once");
        second.signal(Signal::TERM);
        assert!(second.ended().await.success());
    }
    assert_eq!(count(&client, "select count(distinct n) from ledger").await, 3);
}

#[cfg(feature = "chaos")]
#[tokio::test(flavor = "multi_thread")]
async fn a18_worker_whose_keeper_dies_stops_its_handlers_and_ends_with_an_error() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    engine.enqueue_many((0..3).map(|n| Note { n })).await.expect("enqueued");
    // At its first renewal, because its handlers run by then.
    let mut worker = Process::start("hold", &database, "keeper.renew=panic");
    let status = worker.ended().await;
    assert_eq!(status.code(), Some(3), "{status:?}");
    assert_eq!(noted(&client, "LeaseLost").await, 3, "every handler was asked to stop");
    let failed =
        "select count(*) from noted where what like 'the thread that renews leases stopped%'";
    assert_eq!(count(&client, failed).await, 1);
    assert_no_orphans(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_a_worker_that_waits_for_its_handlers() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    for (first, second) in [(Signal::TERM, Signal::TERM), (Signal::INT, Signal::TERM)] {
        sql(&client, "drop table if exists noted, ledger, gate").await;
        tables(&client).await;
        engine.enqueue_many([Note { n: 0 }]).await.expect("enqueued");
        let mut worker = Process::start("patient", &database, "");
        until("its handler runs", async || noted(&client, "waiting").await == 1).await;
        worker.signal(first);
        until("it claims no more", async || noted(&client, "Draining").await == 1).await;
        assert!(worker.is_alive(), "it waits for its handler");
        worker.signal(second);
        assert!(worker.ended().await.success());
        assert_eq!(count(&client, HELD).await, 0, "the job was released");
        assert_no_orphans(&client).await;
        sql(&client, "delete from leasehold.job").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_rolling_restarts_cost_no_attempt() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    // Enough jobs that the worker is busy when it gets the stop signal.
    let more = async || {
        engine.enqueue_many((0..500).map(|n| Note { n })).await.expect("enqueued");
    };
    let mut one = Process::start("poison", &database, "");
    let mut done = 0;
    for _ in 0..5 {
        more().await;
        until("more is done", async || completed(&client).await > done + 50).await;
        let next = Process::start("poison", &database, "");
        one.signal(Signal::TERM);
        let status = one.ended().await;
        assert!(status.success(), "{status:?}");
        done = completed(&client).await;
        one = next;
    }
    more().await;
    until("the last one works", async || completed(&client).await > done + 50).await;
    sql(&client, "delete from leasehold.job where not held").await;
    one.signal(Signal::TERM);
    assert!(one.ended().await.success());
    let again = "select count(*) from leasehold_internal.history, unnest(attempts) a where a > 1";
    assert_eq!(count(&client, again).await, 0);
    assert_eq!(
        count(
            &client,
            "select coalesce(sum(cardinality(lost_ids)), 0) from leasehold_internal.lease"
        )
        .await,
        0
    );
    assert_eq!(number(&client, "select coalesce(sum(attempts), 0) from leasehold.job").await, 0);
    assert_no_orphans(&client).await;
}
