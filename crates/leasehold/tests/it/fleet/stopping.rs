//! Starts that are refused, and stops.

use std::time::Duration;

use leasehold::{Leasehold, WorkerError};
use leasehold_testing::TestDatabase;
use leasehold_testing::proxy::FaultProxy;

use super::{Gates, Two, gated, run};
use crate::fixture::{count, ended, until};
use crate::support::Note;

const OPEN_LEASES: &str = "select count(*) from leasehold_internal.lease where ended_at is null";
const WORKERS: &str = "select count(*) from leasehold_internal.worker where stopped_at is null";

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_the_jobs_of_every_database_end() {
    let (two, gates) = (Two::new().await, Gates::closed());
    two.a.enqueue(2).await;
    two.b.enqueue(2).await;
    let worker = run(two.fleet.worker_with(gates.clone()).queue("default", 4).handle(gated));
    let (a, b) = (gates.a(), gates.b());
    until("both have two jobs", async || (a.running(), b.running()) == (2, 2)).await;
    // These wait: every slot has a job.
    two.a.enqueue(7).await;
    two.b.enqueue(7).await;
    let stopping = worker.ask_to_stop();
    for side in [&two.a, &two.b] {
        let draining =
            "select count(*) from leasehold_internal.worker where draining_since is not null";
        until("it drains", async || count(&side.client, draining).await == 1).await;
    }
    gates.a().pass(9);
    gates.b().pass(9);
    ended(stopping).await.expect("a clean stop");
    for side in [&two.a, &two.b] {
        side.all_completed(2).await;
        assert_eq!(count(&side.client, OPEN_LEASES).await, 0);
        assert_eq!(count(&side.client, WORKERS).await, 0);
    }
    assert_eq!((a.started(), b.started()), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_after_the_grace_releases_the_jobs_of_every_database() {
    let (two, gates) = (Two::new().await, Gates::closed());
    two.a.enqueue(2).await;
    two.b.enqueue(2).await;
    let worker = two.fleet.worker_with(gates.clone()).queue("default", 4).handle(gated);
    let worker = run(worker.grace(Duration::from_millis(50)));
    until("both run", async || gates.a().running() + gates.b().running() == 4).await;
    worker.stop().await;
    for side in [&two.a, &two.b] {
        let released = "select count(*) from leasehold.job where not held and attempts = 0";
        assert_eq!(count(&side.client, released).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b21_two_names_that_lead_to_one_database_stop_the_start() {
    let database = TestDatabase::new().await;
    let proxy = FaultProxy::before(&database.direct_config()).expect("a proxy");
    let fleet = Leasehold::fleet([("shop", database.direct_url()), ("store", proxy.url())]);
    let worker = fleet.expect("other addresses").worker().handle(async |_: Note| {});
    let error = ended(run(worker).task).await.expect_err("one database");
    let WorkerError::Config(text) = error else { panic!("{error}") };
    let (one, other) = ("\"shop\" and \"store\"", "\"store\" and \"shop\"");
    assert!(text.contains(one) || text.contains(other), "{text}");
    assert!(text.contains("are the same database; leave one of them out"), "{text}");
}

#[tokio::test]
async fn settings_that_cannot_work_name_the_database() {
    let fleet = Leasehold::fleet([("eu", "postgres://no.such.host/eu")]).expect("a fleet");
    let worker = fleet.worker().each(|worker| worker.queue("mail", 0)).handle(async |_: Note| {});
    let text = worker.run_until(std::future::ready(())).await.expect_err("no slots").to_string();
    assert!(text.contains("database \"eu\": "), "{text}");
}
