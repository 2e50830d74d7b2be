//! The purpose of sweeps, with processes that are killed and stopped.

use std::time::Duration;

use leasehold::sweep::When;
use rustix::process::Signal;

use super::child::MAIN;
use super::fixture::{Shelf, loans};
use crate::fixture::{count, number, until};
use crate::processes::Process;

/// Tables in which processes record what they do, and a door that keeps them waiting.
const PLACES: &str =
    "create table library.said (what text); create table library.door (is_open boolean)";

async fn said(shelf: &Shelf, what: &str) -> bool {
    let sql = format!("select count(*) from library.said where what like '{what}'");
    count(&shelf.client, &sql).await > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn watchdog_resets_the_rows_of_a_killed_worker() {
    let shelf = Shelf::with(1000).await;
    shelf.sql(PLACES).await;
    let mut victim = Process::run(MAIN, "400-of-1000", &shelf.database, &[]);
    until("400 are done", async || said(&shelf, "400 are done").await).await;
    victim.signal(Signal::KILL);
    victim.ended().await;
    assert_eq!(shelf.count("state = 'back'").await, 400);
    assert_eq!(shelf.count("state = 'coming'").await, 600, "stuck");
    // Neither a worker nor the watchdog touches them before their time.
    let sweep = loans();
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").claimed, 0);
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset, 0);
    shelf.age_claims("2 hours").await;
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset, 600);
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").finished, 600);
    shelf.assert_all_back(1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_claim_each_row_once() {
    let shelf = Shelf::with(1000).await;
    let sweep = loans().claim_size(50).when(When::continuous(Duration::from_millis(20)));
    let one = crate::fixture::run(shelf.engine.worker().sweep(sweep.clone()));
    let two = crate::fixture::run(shelf.engine.worker().sweep(sweep));
    until("all are back", async || shelf.count("state <> 'back'").await == 0).await;
    one.stop().await;
    two.stop().await;
    shelf.assert_all_back(1000).await;
    let claims = "select count(*) from library.trail where to_state = 'coming'";
    assert_eq!(count(&shelf.client, claims).await, 1000, "no row was claimed by both");
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_worker_stopped_for_longer_than_the_watchdog_limit_finishes_no_row() {
    let shelf = Shelf::with(1000).await;
    shelf.sql(PLACES).await;
    let sleeper = Process::run(MAIN, "waits", &shelf.database, &[]);
    until("it holds them all", async || said(&shelf, "waiting").await).await;
    sleeper.signal(Signal::STOP);
    shelf.age_claims("2 hours").await;
    let sweep = loans();
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset, 1000);
    // Another worker finishes half of them; the others wait when the sleeper wakes.
    let half = loans().due("ends_at < statement_timestamp() and id <= 500");
    assert_eq!(half.run_once(&shelf.engine).await.expect("a pass").finished, 500);
    let before = number(&shelf.client, "select sum(out_on_loan) from library.books").await;
    shelf.sql("insert into library.door values (true)").await;
    sleeper.signal(Signal::CONT);
    until("it has learnt that its claim is lost", async || said(&shelf, "%lost: 1000%").await)
        .await;
    drop(sleeper);
    shelf.assert_each_finished_once().await;
    assert_eq!(before, 500);
    // In one statement: what the sleeper sent before it was killed may still run.
    let odd = "select (select sum(out_on_loan) from library.books)
                    - (select count(*) from library.loans where state <> 'back')";
    assert_eq!(number(&shelf.client, odd).await, 0, "each effect belongs to a row that is back");
}
