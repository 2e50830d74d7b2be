//! One database of a fleet is down, hangs or accepts no writes.

use std::sync::Arc;

use leasehold::Leasehold;
use leasehold_testing::proxy::{FaultProxy, Rule};
use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::sync::Semaphore;

use super::{RunningFleet, Side, Two, run};
use crate::fixture::{completed, count, sql, until};
use crate::logs::Logs;
use crate::support::Note;

/// A database on a server of its own.
async fn own_server() -> (PrivatePostgres, TestDatabase) {
    let postgres = PrivatePostgres::throwaway().start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    (postgres, database)
}

fn start(fleet: &leasehold::Fleet, slots: usize) -> RunningFleet {
    run(fleet.worker().queue("default", slots).handle(async |_: Note| {}))
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_database_that_stops_delays_no_other_and_resumes_by_itself() {
    let (mut postgres, own) = own_server().await;
    let other = TestDatabase::new().await;
    let fleet = [("a", other.url()), ("b", own.direct_url())];
    let fleet = Leasehold::fleet(fleet).expect("a fleet");
    let a = Side::of(&fleet, "a", other).await;
    let b = Side::of(&fleet, "b", own).await;
    b.enqueue(500).await;
    // Each job of b passes once; the server stops while some of them run.
    let gate = Arc::new(Semaphore::new(20));
    let passing = Arc::clone(&gate);
    let handler = move |ctx: leasehold::Ctx| {
        let passing = Arc::clone(&passing);
        async move {
            if ctx.database() == Some("b") {
                passing.acquire().await.expect("open").forget();
            }
        }
    };
    let worker = run(fleet.worker().queue("default", 4).handle_untyped("note", handler));
    until("b works", async || completed(&b.client).await == 20).await;
    postgres.stop().expect("stopped");
    a.enqueue(200).await;
    a.all_completed(200).await;
    postgres.start_again().expect("started");
    gate.add_permits(2000);
    let b = Side::of(&fleet, "b", b.database).await;
    b.all_completed(500).await;
    a.enqueue(5).await;
    a.all_completed(205).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_databases_that_are_down_at_the_start_are_worked_as_soon_as_they_are_up() {
    let ((mut first, a), (mut second, b)) = (own_server().await, own_server().await);
    let fleet = Leasehold::fleet([("a", a.direct_url()), ("b", b.direct_url())]).expect("a fleet");
    let (a, b) = (Side::of(&fleet, "a", a).await, Side::of(&fleet, "b", b).await);
    a.enqueue(10).await;
    b.enqueue(10).await;
    first.stop().expect("stopped");
    second.stop().expect("stopped");
    // New handles: these have seen no server.
    let urls = [("a", a.database.direct_url()), ("b", b.database.direct_url())];
    let fleet = Leasehold::fleet(urls).expect("a fleet");
    let checked = fleet.check().await;
    assert!(checked.iter().all(|(_, found)| found.is_err()), "{checked:?}");
    let worker = start(&fleet, 2);
    first.start_again().expect("started");
    let a = Side::of(&fleet, "a", a.database).await;
    a.all_completed(10).await;
    second.start_again().expect("started");
    let b = Side::of(&fleet, "b", b.database).await;
    b.all_completed(10).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_database_that_hangs_delays_no_other() {
    let (a, b) = (TestDatabase::new().await, TestDatabase::new().await);
    let proxy = FaultProxy::before(&b.direct_config()).expect("a proxy");
    let fleet = Leasehold::fleet([("a", a.url()), ("b", proxy.url())]).expect("a fleet");
    let (a, b) = (Side::of(&fleet, "a", a).await, Side::of(&fleet, "b", b).await);
    b.enqueue(3).await;
    // One slot: a claim of b that kept it would stop a.
    let worker = start(&fleet, 1);
    b.all_completed(3).await;
    let hangs = proxy.add(Rule::blackhole());
    for round in 1..=3 {
        a.enqueue(100).await;
        a.all_completed(100 * round).await;
    }
    proxy.remove(hangs);
    // Statements that hung have no reply yet: new sessions are quicker than their time limits.
    proxy.reset_all();
    let direct = Leasehold::connect(&b.database.direct_url()).await.expect("an engine");
    direct.enqueue_many((0..5).map(|n| Note { n })).await.expect("enqueued");
    b.all_completed(8).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_claim_without_a_reply_delays_no_other_database() {
    let (a, b) = (TestDatabase::new().await, TestDatabase::new().await);
    let proxy = FaultProxy::before(&b.direct_config()).expect("a proxy");
    let fleet = Leasehold::fleet([("a", a.url()), ("b", proxy.url())]).expect("a fleet");
    let (a, b) = (Side::of(&fleet, "a", a).await, Side::of(&fleet, "b", b).await);
    let swallowed =
        proxy.add(Rule::blackhole_after("leasehold_internal.claim_next(").times(u64::MAX));
    let direct = Leasehold::connect(&b.database.direct_url()).await.expect("an engine");
    direct.enqueue_many((0..5).map(|n| Note { n })).await.expect("enqueued");
    let worker = start(&fleet, 1);
    proxy.wait_fired(swallowed).await.expect("b claims, and gets no reply");
    a.enqueue(300).await;
    a.all_completed(300).await;
    proxy.heal();
    proxy.reset_all();
    b.all_completed(5).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_database_that_accepts_no_writes_delays_no_other() {
    let two = Two::new().await;
    let worker = start(&two.fleet, 1);
    two.b.enqueue(3).await;
    two.b.all_completed(3).await;
    let name = two.b.database.name();
    sql(
        &two.a.client,
        &format!("alter database \"{name}\" set default_transaction_read_only = on"),
    )
    .await;
    let sessions = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity \
          where datname = '{name}' and application_name = 'leasehold'"
    );
    count(&two.a.client, &sessions).await;
    sql(&two.b.client, "set default_transaction_read_only = off").await;
    let enqueue = "select leasehold.enqueue('note', '{\"n\":1}') from generate_series(1, 5)";
    sql(&two.b.client, enqueue).await;
    two.a.enqueue(200).await;
    two.a.all_completed(200).await;
    assert_eq!(completed(&two.b.client).await, 3);
    sql(&two.a.client, &format!("alter database \"{name}\" reset default_transaction_read_only"))
        .await;
    two.b.all_completed(8).await;
    worker.stop().await;
}

#[tokio::test]
async fn b20_failures_of_one_database_are_logged_with_its_name_and_counted_for_it() {
    let (logs, a) = (Logs::collect(), TestDatabase::new().await);
    let urls = [("a", a.url()), ("gone", "postgres://me:s3cret@127.0.0.1:1/gone".to_owned())];
    let fleet = Leasehold::fleet(urls).expect("a fleet");
    let a = Side::of(&fleet, "a", a).await;
    let worker = start(&fleet, 1);
    a.enqueue(5).await;
    a.all_completed(5).await;
    let gone = fleet.get("gone").expect("its handle");
    let failed = "leasehold_db_errors_total{op=\"start\",class=\"connect\"}";
    until("counted", async || gone.metrics().await.contains(failed)).await;
    assert!(!a.engine.metrics().await.contains(failed));
    assert!(logs.has("WARN", "fleet{database=\"gone\"}"), "{}", logs.text());
    assert!(!logs.text().contains("s3cret"));
    worker.stop().await;
}
