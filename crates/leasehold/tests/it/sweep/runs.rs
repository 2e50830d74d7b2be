//! When a sweep runs: once per night, whichever workers are running, and again when an operator asks.

use std::sync::Arc;
use std::time::Duration;

use leasehold::events::Event;
use leasehold::sweep::{Sweep, When};
use tokio::sync::Semaphore;

use super::fixture::{Shelf, loans};
use crate::fixture::{Running, count, run, until};
use crate::support::wait_for;

/// A sweep at midnight, in a time zone where midnight is far away: it must not run by itself.
async fn nightly(shelf: &Shelf) -> Sweep {
    let hour = "select extract(hour from now() at time zone 'Europe/Madrid')";
    let is_day = (6..18).contains(&count(&shelf.client, hour).await);
    let zone = if is_day { "Europe/Madrid" } else { "Pacific/Auckland" };
    loans().when(When::nightly("00:00", zone).expect("a night"))
}

/// The sweep's next run is at the next midnight of its zone, and no run is under way.
const AT_MIDNIGHT: &str = "select count(*) from leasehold_internal.sweep
    where next_run_at > now() and next_run_at <= now() + interval '25 hours'
      and (next_run_at at time zone sweep.zone)::time = '00:00'";

/// Makes the last midnight due again.
const NIGHT_FALLS: &str = "update leasehold_internal.sweep set next_run_at = next_run_at - interval '1 day' where next_run_at > now()";

async fn ended(worker: &mut Running) {
    wait_for(&mut worker.events, |event| {
        matches!(event, Event::SweepRunEnded { .. }).then_some(())
    })
    .await;
}

async fn declared(shelf: &Shelf) {
    until("the sweep is declared", async || {
        count(&shelf.client, "select count(*) from leasehold_internal.sweep").await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nightly_run_happens_once_for_all_workers() {
    let shelf = Shelf::with(500).await;
    let sweep = nightly(&shelf).await.claim_size(10);
    let workers: Vec<_> = (0..3).map(|_| run(shelf.engine.worker().sweep(sweep.clone()))).collect();
    declared(&shelf).await;
    assert_eq!(count(&shelf.client, AT_MIDNIGHT).await, 1, "by the clock of its zone");
    assert_eq!(shelf.count("state = 'out'").await, 500, "nothing before midnight");
    shelf.sql(NIGHT_FALLS).await;
    until("all are back", async || shelf.count("state <> 'back'").await == 0).await;
    until("the night is over", async || count(&shelf.client, AT_MIDNIGHT).await == 1).await;
    let mut ends = 0;
    for worker in workers {
        // The event of an end comes after it is stored.
        let (mut events, task) = worker.ask_to_stop();
        crate::fixture::ended(task).await.expect("a clean stop");
        let seen = std::iter::from_fn(|| events.try_recv().ok());
        ends += seen.filter(|event| matches!(event, Event::SweepRunEnded { .. })).count();
    }
    assert_eq!(ends, 1, "one of them ended the run");
    shelf.assert_all_back(500).await;
    let whole =
        "select count(*) from leasehold_internal.sweep where run_ended_at >= run_started_at";
    assert_eq!(count(&shelf.client, whole).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_starts_late_joins_the_run() {
    let shelf = Shelf::with(300).await;
    let door = Arc::new(Semaphore::new(0));
    let sweep = nightly(&shelf).await;
    let waits = |door: &Arc<Semaphore>| {
        let door = Arc::clone(door);
        sweep.clone().claim_size(100).handle(move |_| {
            let door = Arc::clone(&door);
            async move {
                door.acquire().await?.forget();
                Ok(())
            }
        })
    };
    let mut first = run(shelf.engine.worker().sweep(waits(&door)));
    declared(&shelf).await;
    shelf.sql(NIGHT_FALLS).await;
    let claimed = |event: &Event| matches!(event, Event::SweepClaimed { .. }).then_some(());
    wait_for(&mut first.events, claimed).await;
    let mut late = run(shelf.engine.worker().sweep(waits(&door)));
    wait_for(&mut late.events, claimed).await;
    assert_eq!(shelf.count("state = 'coming'").await, 200, "both are at it");
    door.add_permits(1000);
    until("the night is over", async || count(&shelf.client, AT_MIDNIGHT).await == 1).await;
    first.stop().await;
    late.stop().await;
    shelf.assert_all_back(300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_nights_are_made_up_by_one_run_at_once() {
    let shelf = Shelf::with(20).await;
    let sweep = nightly(&shelf).await;
    let mut worker = run(shelf.engine.worker().sweep(sweep.clone()));
    declared(&shelf).await;
    worker.stop().await;
    // Three nights pass with no worker.
    shelf
        .sql("update leasehold_internal.sweep set next_run_at = next_run_at - interval '3 days'")
        .await;
    worker = run(shelf.engine.worker().sweep(sweep));
    ended(&mut worker).await;
    assert_eq!(count(&shelf.client, AT_MIDNIGHT).await, 1, "one run for all of them");
    worker.stop().await;
    shelf.assert_all_back(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requested_run_starts_now_even_if_a_run_is_about_to_end() {
    let shelf = Shelf::with(20).await;
    let mut worker = run(shelf.engine.worker().sweep(nightly(&shelf).await));
    declared(&shelf).await;
    for round in 0..2 {
        shelf.sql("select leasehold.run_sweep('loans.end', 'ann')").await;
        ended(&mut worker).await;
        shelf.assert_all_back(20 * (round + 1)).await;
        shelf.lend(100 * (round + 1), 20).await;
    }
    worker.stop().await;
    assert_eq!(count(&shelf.client, AT_MIDNIGHT).await, 1, "the night stays where it is");
    // Closing a run names the time at which it was due.
    shelf
        .sql("update leasehold_internal.sweep set next_run_at = now() - interval '1 minute'")
        .await;
    let slot = "(select next_run_at from leasehold_internal.sweep)";
    let stale = format!(
        "select leasehold_internal.close_sweep('loans.end', {slot} - interval '1 second', now() + interval '1 day')::int"
    );
    assert_eq!(count(&shelf.client, &stale).await, 0, "asked for again meanwhile");
    let right = format!(
        "select leasehold_internal.close_sweep('loans.end', {slot}, now() + interval '1 day')::int"
    );
    assert_eq!(count(&shelf.client, &right).await, 1);
    assert_eq!(count(&shelf.client, &right).await, 1, "from where it is now");
    assert_eq!(count(&shelf.client, "select leasehold.run_sweep('nothing')::int").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_does_not_end_while_a_due_row_is_locked() {
    let shelf = Shelf::with(20).await;
    let other = shelf.database.connect_directly().await;
    other
        .batch_execute("begin; select from library.loans where id = 7 for update")
        .await
        .expect("locked");
    let mut worker = run(shelf.engine.worker().sweep(nightly(&shelf).await));
    declared(&shelf).await;
    shelf.sql(NIGHT_FALLS).await;
    until("the others are back", async || shelf.count("state = 'back'").await == 19).await;
    let under_way = "select count(*) from leasehold.sweeps where state = 'running'";
    assert_eq!(count(&shelf.client, under_way).await, 1);
    other.batch_execute("commit").await.expect("let go");
    ended(&mut worker).await;
    worker.stop().await;
    shelf.assert_all_back(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_sweep_claims_no_row_until_it_is_resumed() {
    let shelf = Shelf::with(20).await;
    let sweep = loans().when(When::continuous(Duration::from_millis(5)));
    sweep.run_watchdog_once(&shelf.engine).await.expect("declared");
    shelf.sql("select leasehold.pause_sweep('loans.end', 'ann', 'stocktaking')").await;
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.claimed, report.paused), (0, true));
    let mut worker = run(shelf.engine.worker().sweep(sweep));
    let paused = "select count(*) from leasehold.sweeps where state = 'paused' and paused_why = 'stocktaking'";
    assert_eq!(count(&shelf.client, paused).await, 1);
    assert_eq!(
        count(&shelf.client, "select leasehold.pause_sweep('loans.end', 'bob')::int").await,
        0
    );
    assert!(!worker.seen().iter().any(|event| matches!(event, Event::SweepClaimed { .. })));
    shelf.sql("select leasehold.resume_sweep('loans.end', 'ann')").await;
    ended(&mut worker).await;
    worker.stop().await;
    shelf.assert_all_back(20).await;
    let signed =
        "select count(*) from leasehold.audit where actor = 'ann' and subject = 'sweep loans.end'";
    assert_eq!(count(&shelf.client, signed).await, 2);
}

#[tokio::test]
async fn sweep_paused_during_a_batch_finishes_it_and_stops() {
    let shelf = Shelf::with(500).await;
    let engine = shelf.engine.clone();
    // It checks for a pause before every claim.
    let sweep = loans().claim_size(100).count_every(Duration::ZERO).handle(move |_| {
        let engine = engine.clone();
        async move {
            let client = engine.pool().get().await?;
            crate::fixture::sql(&client, "select leasehold.pause_sweep('loans.end', 'ann')").await;
            Ok(())
        }
    });
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.paused), (100, true));
}

#[tokio::test]
async fn repeated_declaration_neither_repeats_nor_drops_a_run() {
    let shelf = Shelf::new().await;
    let sweep = nightly(&shelf).await;
    let hash = "select extract(epoch from next_run_at)::bigint from leasehold_internal.sweep";
    sweep.run_watchdog_once(&shelf.engine).await.expect("declared");
    shelf.sql("update leasehold_internal.sweep set next_run_at = now() + interval '3 hours', rows_finished = 5").await;
    let before = crate::fixture::number(&shelf.client, hash).await;
    sweep.run_watchdog_once(&shelf.engine).await.expect("declared");
    assert_eq!(crate::fixture::number(&shelf.client, hash).await, before, "the same clock");
    let tokyo = loans().when(When::nightly("00:00", "Asia/Tokyo").expect("a night"));
    shelf.sql("update leasehold_internal.sweep set next_run_at = now() - interval '3 hours'").await;
    let due = crate::fixture::number(&shelf.client, hash).await;
    tokyo.run_watchdog_once(&shelf.engine).await.expect("declared");
    assert_eq!(crate::fixture::number(&shelf.client, hash).await, due, "due stays due");
    shelf.sql("update leasehold_internal.sweep set next_run_at = now() + interval '1 year'").await;
    sweep.run_watchdog_once(&shelf.engine).await.expect("declared");
    assert_eq!(
        count(&shelf.client, AT_MIDNIGHT).await,
        1,
        "another clock begins with its next night"
    );
    assert_eq!(count(&shelf.client, "select rows_finished from leasehold_internal.sweep").await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_runs_until_idle_finishes_a_due_sweep() {
    let shelf = Shelf::with(700).await;
    let sweep = loans().claim_size(50).loops(2).when(When::continuous(Duration::from_secs(3600)));
    shelf.engine.worker().sweep(sweep).run_until_idle().await.expect("it ends");
    shelf.assert_all_back(700).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_with_only_housekeeping_runs_the_watchdog_and_no_sweep() {
    let shelf = Shelf::with(10).await;
    shelf
        .sql("update library.loans set state = 'coming', taken_by = 7, taken_at = now() - interval '3 hours' where id <= 5")
        .await;
    let sweep = loans()
        .when(When::continuous(Duration::from_millis(1)))
        .watchdog_every(Duration::from_millis(5));
    let worker = run(shelf.engine.worker().sweep(sweep).only_housekeeping());
    until("the watchdog has been", async || shelf.count("state = 'out'").await == 10).await;
    worker.stop().await;
    assert_eq!(shelf.count("state = 'out'").await, 10);
}
