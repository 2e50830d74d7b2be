//! Rows that fail: retried, then dead, and never in the way of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::JobError;
use leasehold::sweep::{Sweep, When};

use super::fixture::{Shelf, loans};
use crate::fixture::{count, number, run, until};
use crate::logs::Logs;

const FAILED: &str =
    "select count(*) from leasehold_internal.sweep_failure where retry_at is not null";
const DEAD: &str =
    "select count(*) from leasehold_internal.sweep_failure where dead_at is not null";

/// Fails the rows 1 to 5 while `broken`.
fn picky(broken: &Arc<AtomicBool>) -> Sweep {
    let broken = Arc::clone(broken);
    loans().max_attempts(3).handle(move |batch| {
        let broken = broken.load(Ordering::SeqCst);
        async move {
            for key in batch.keys().iter().filter(|key| key.len() == 1 && key.as_str() <= "5") {
                if broken {
                    batch.fail(key, "the shelf is locked\0");
                }
            }
            Ok(())
        }
    })
}

/// Makes every failed row due for its retry.
async fn due(shelf: &Shelf) {
    shelf
        .sql("update leasehold_internal.sweep_failure set retry_at = now() where retry_at is not null")
        .await;
}

#[tokio::test]
async fn failed_rows_are_retried_and_finish_without_a_failure() {
    let shelf = Shelf::with(100).await;
    let broken = Arc::new(AtomicBool::new(true));
    let sweep = picky(&broken);
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed, report.dead), (95, 5, 0));
    assert_eq!(shelf.count("state = 'coming'").await, 5, "they stay claimed");
    assert_eq!(count(&shelf.client, FAILED).await, 5);
    let why = "select count(*) from leasehold_internal.sweep_failure where last_error = 'the shelf is locked\u{fffd}'";
    assert_eq!(count(&shelf.client, why).await, 5);
    // Their claims are old, and still the failure decides when they return.
    shelf
        .sql("update leasehold_internal.sweep_failure set retry_at = now() + interval '1 day'")
        .await;
    shelf.age_claims("3 hours").await;
    let watched = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((watched.reset, watched.retried), (0, 0), "not yet");
    due(&shelf).await;
    let watched = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((watched.reset, watched.retried), (0, 5));
    broken.store(false, Ordering::SeqCst);
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").finished, 5);
    shelf.assert_all_back(100).await;
    let left = "select count(*) from leasehold_internal.sweep_failure";
    assert_eq!(count(&shelf.client, left).await, 0, "a finished row loses its failure");
}

#[tokio::test]
async fn row_out_of_attempts_is_dead_until_an_operator_redrives_it() {
    let shelf = Shelf::with(100).await;
    let broken = Arc::new(AtomicBool::new(true));
    let sweep = picky(&broken);
    for attempt in 1..=3 {
        let report = sweep.run_once(&shelf.engine).await.expect("a pass");
        assert_eq!((report.failed, report.dead), (5, if attempt == 3 { 5 } else { 0 }));
        due(&shelf).await;
        let retried = sweep.run_watchdog_once(&shelf.engine).await.expect("a look").retried;
        assert_eq!(retried, if attempt == 3 { 0 } else { 5 });
    }
    assert_eq!((count(&shelf.client, DEAD).await, count(&shelf.client, FAILED).await), (5, 0));
    shelf.age_claims("1 year").await;
    assert_eq!(
        sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset,
        0,
        "left alone"
    );
    broken.store(false, Ordering::SeqCst);
    let one = "select count(*) from leasehold_internal.redrive_sweep('loans.end', array['1', '77'], 'ann')";
    assert_eq!(count(&shelf.client, one).await, 1, "77 is not dead");
    let rest = "select count(*) from leasehold_internal.redrive_sweep('loans.end', null, 'ann')";
    assert_eq!(count(&shelf.client, rest).await, 4);
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").retried, 5);
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").finished, 5);
    shelf.assert_all_back(100).await;
    let signed = "select count(*) from leasehold.audit where actor = 'ann' and action = 'redrive'";
    assert_eq!(count(&shelf.client, signed).await, 2);
}

#[tokio::test]
async fn error_and_panic_fail_every_row_that_is_not_finished() {
    for kind in ["error", "panic", "final"] {
        let shelf = Shelf::with(30).await;
        let sweep = loans().handle(move |batch| async move {
            let first: Vec<_> = batch.keys().iter().take(10).collect();
            batch.finish(&first).await?;
            match kind {
                "error" => Err(JobError::retry("the van broke down")),
                "final" => Err(JobError::permanent("the library burnt down")),
                _ => panic!("the van exploded"),
            }
        });
        let report = sweep.run_once(&shelf.engine).await.expect("a pass");
        let dead = if kind == "final" { 20 } else { 0 };
        assert_eq!((report.finished, report.failed, report.dead), (10, 20, dead), "{kind}");
        let recorded = "select count(*) from leasehold_internal.sweep_failure where last_error ~ 'van|library'";
        assert_eq!(count(&shelf.client, recorded).await, 20, "{kind}");
        shelf.assert_each_finished_once().await;
    }
}

#[tokio::test]
async fn row_that_cannot_be_finished_fails_alone() {
    let shelf = Shelf::with(100).await;
    // One row whose effect the table refuses: 50 is of book 0, and its number of copies is wrong.
    shelf
        .sql(
            "insert into library.books values (77, 0); update library.loans set book = 77 where id = 50;
             update library.books set out_on_loan = out_on_loan - 1 where id = 0",
        )
        .await;
    let report = loans().run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed), (99, 1));
    let why = "select count(*) from leasehold_internal.sweep_failure where key = '50' and last_error like '%not_given_back_twice%'";
    assert_eq!(count(&shelf.client, why).await, 1);
    shelf.assert_each_finished_once().await;
    assert_eq!(number(&shelf.client, "select sum(out_on_loan) from library.books").await, 0);
}

#[tokio::test]
async fn failure_of_a_lost_claim_is_not_recorded() {
    let shelf = Shelf::with(10).await;
    let engine = shelf.engine.clone();
    let sweep = loans().handle(move |batch| {
        let engine = engine.clone();
        async move {
            // Another claim holds the rows by the time this handler fails.
            let client = engine.pool().get().await?;
            let steal = "update library.loans set taken_by = taken_by + 1";
            client.batch_execute(steal).await?;
            drop(batch);
            Err(JobError::retry("late"))
        }
    });
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.failed, report.lost), (0, 10));
    assert_eq!(
        count(&shelf.client, "select count(*) from leasehold_internal.sweep_failure").await,
        0
    );
}

/// Fails every row with a password and a line break.
fn failing_with_a_password() -> Sweep {
    loans().handle(|batch| async move {
        for key in batch.keys() {
            batch.fail(key, "no route to postgres://ann:hunter2@db\nINFO all is well");
        }
        Ok(())
    })
}

#[tokio::test]
async fn h12_h25_line_about_failed_rows_has_no_password_and_no_line_break() {
    let shelf = Shelf::with(3).await;
    let logs = Logs::collect();
    failing_with_a_password().run_once(&shelf.engine).await.expect("a pass");
    let text = logs.text();
    assert!(logs.has("WARN", "no route to postgres://ann:***@db INFO all is well"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn h25_hidden_texts_of_a_sweep_reach_neither_the_log_nor_the_table() {
    let shelf = Shelf::with(3).await;
    let logs = Logs::collect();
    let sweep = failing_with_a_password().when(When::continuous(Duration::from_millis(10)));
    let worker = run(shelf.engine.worker().hide_error_texts().sweep(sweep));
    until("all have failed", async || count(&shelf.client, FAILED).await == 3).await;
    worker.stop().await;
    let hidden = "select count(*) from leasehold_internal.sweep_failure where last_error like '%hides error texts%'";
    assert_eq!(count(&shelf.client, hidden).await, 3);
    assert!(logs.has("WARN", "rows failed"), "{}", logs.text());
    assert!(!logs.text().contains("no route"), "{}", logs.text());
}
