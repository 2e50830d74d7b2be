//! Processes that are stopped (SIGSTOP) past their lease and then continue (SIGCONT).

use leasehold::{Enqueue, Finished, Leasehold};
use leasehold_testing::TestDatabase;
use rustix::process::Signal;

use super::{Process, assert_no_orphans, noted, tables};
use crate::fixture::{back_date_leases, completed, count, jobs, run, sql, until};
use crate::support::Note;

/// The ways to end a job that `wait_for_gate` knows.
const VERBS: i64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn a1_a2_process_that_was_stopped_past_its_lease_changes_nothing_however_it_finishes() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    let sleeper = Process::start("wait-for-gate", &database, "");
    for n in 0..VERBS {
        Note { n }.enqueue(&engine).await.expect("enqueued");
    }
    until("all run in the process", async || noted(&client, "waiting").await == VERBS).await;
    sleeper.signal(Signal::STOP);
    // Nothing renews its leases now.
    back_date_leases(&client).await;
    let mut other = run(engine.worker().queue("default", 10).handle(async |_: Note| {}));
    let ends = other.finished(VERBS as usize).await;
    assert!(ends.iter().all(|end| end.1 == Finished::Completed));
    assert_eq!(completed(&client).await, VERBS);
    sql(&client, "insert into gate values (true)").await;
    sleeper.signal(Signal::CONT);
    until("it has reported everything", async || {
        count(&client, "select count(*) from noted where what <> 'waiting'").await == VERBS
    })
    .await;
    assert_eq!(noted(&client, "Lost").await, VERBS);
    other.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (VERBS, 0));
    let elsewhere = "select (select count(*) from leasehold_internal.dead_job) + (select count(*) from ledger) \
                     + (select count(*) from leasehold_internal.history where outcome <> 'completed')";
    assert_eq!(count(&client, elsewhere).await, 0);
    assert_no_orphans(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_process_that_wakes_during_the_second_run_does_not_disturb_it() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    let sleeper = Process::start("wait-for-gate", &database, "");
    for n in 0..VERBS {
        Note { n }.enqueue(&engine).await.expect("enqueued");
    }
    until("all run in the process", async || noted(&client, "waiting").await == VERBS).await;
    sleeper.signal(Signal::STOP);
    back_date_leases(&client).await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let held = async |_: Note,
                      leasehold::State(gate): leasehold::State<
        std::sync::Arc<tokio::sync::Semaphore>,
    >| {
        let _ = gate.acquire().await;
    };
    let mut other =
        run(engine.worker_with(std::sync::Arc::clone(&gate)).queue("default", 10).handle(held));
    until("all run again", async || {
        count(&client, "select count(*) from leasehold.job where held and attempts = 2").await
            == VERBS
    })
    .await;
    sql(&client, "insert into gate values (true)").await;
    sleeper.signal(Signal::CONT);
    until("it has reported everything", async || noted(&client, "Lost").await == VERBS).await;
    // The second run is unchanged, and ends as it wants to.
    assert_eq!(
        count(&client, "select count(*) from leasehold.job where held and attempts = 2").await,
        VERBS
    );
    gate.add_permits(100);
    let ends = other.finished(VERBS as usize).await;
    assert!(ends.iter().all(|end| end.1 == Finished::Completed));
    other.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (VERBS, 0));
    assert_eq!(count(&client, "select count(*) from ledger").await, 0);
}
