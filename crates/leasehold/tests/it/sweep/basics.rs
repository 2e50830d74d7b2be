//! One sweep, one worker: what is due is handled, finished and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::events::Event;
use leasehold::sweep::{Gate, When};

use super::fixture::{Shelf, loans};
use crate::fixture::{number, run};
use crate::support::wait_for;

#[tokio::test]
async fn pass_finishes_every_due_row_once_with_its_effect() {
    let shelf = Shelf::with(1234).await;
    shelf.sql("insert into library.loans values (9999, 1, now() + interval '1 day')").await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let sweep = loans().columns(["book", "id"]).handle(move |batch| {
        let seen = Arc::clone(&counted);
        async move {
            for (row, key) in batch.rows().iter().zip(batch.keys()) {
                assert_eq!(row.get::<_, i64>("id").to_string(), *key);
                assert_eq!(i64::from(row.get::<_, i32>("book")), row.get::<_, i64>(1) % 10);
            }
            seen.fetch_add(batch.keys().len(), Ordering::Relaxed);
            Ok(())
        }
    });
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.claimed, report.finished, report.batches), (1234, 1234, 13));
    assert_eq!((report.failed, report.lost), (0, 0));
    assert_eq!(seen.load(Ordering::Relaxed), 1234);
    assert_eq!(shelf.count("state = 'out'").await, 1, "not due");
    shelf.sql("delete from library.loans where state = 'out'").await;
    shelf.assert_all_back(1234).await;
    let counts = "select rows_claimed + rows_finished from leasehold_internal.sweep where name = 'loans.end'";
    assert_eq!(number(&shelf.client, counts).await, 2468);
}

#[tokio::test]
async fn worker_with_only_a_sweep_runs_it_when_it_is_due() {
    let shelf = Shelf::with(250).await;
    for gate in [Gate::none(), Gate::advisory()] {
        let sweep = loans().gate(gate).loops(2).when(When::continuous(Duration::from_millis(20)));
        let mut worker = run(shelf.engine.worker().sweep(sweep));
        wait_for(&mut worker.events, |event| {
            matches!(event, Event::SweepRunEnded { .. }).then_some(())
        })
        .await;
        worker.stop().await;
        shelf.assert_all_back(250).await;
        shelf.sql("delete from library.trail; delete from library.loans").await;
        shelf.lend(1, 250).await;
    }
}

#[tokio::test]
async fn watchdog_resets_rows_claimed_too_long_ago() {
    let shelf = Shelf::with(300).await;
    let sweep = loans();
    sweep.run_watchdog_once(&shelf.engine).await.expect("nothing to do");
    shelf
        .sql("update library.loans set state = 'coming', taken_at = now(), taken_by = 7 where id <= 200")
        .await;
    let report = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!(report.reset, 0, "claimed just now");
    shelf.age_claims("2 hours").await;
    shelf.sql("update library.loans set taken_at = now() where id = 1").await;
    let report = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((report.reset, report.more), (199, false));
    assert_eq!(shelf.count("state = 'out' and taken_at is null and taken_by is null").await, 299);
}
