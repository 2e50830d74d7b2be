//! Gates that grant every request, grant none, or do not respond: none of them matters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use leasehold::sweep::{Answer, Asking, ClaimGate, Gate, Leaving, Sweep, SweepReport};

use super::fixture::{Shelf, loans};
use crate::fixture::{count, soon};

/// Counts the locks of gates in this test's own database: other tests use the same server.
const HELD: &str = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7306 \
     and database = (select oid from pg_database where datname = current_database())";

/// A gate that always gives the same answer, and counts.
#[derive(Default)]
struct Stubborn {
    /// With `None` it never answers.
    says: Option<Answer>,
    asked: AtomicUsize,
    left: AtomicUsize,
}

impl ClaimGate for Stubborn {
    fn ask<'a>(&'a self, _: &'a str, _: &'a str) -> Asking<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.says {
            Some(answer) => Box::pin(async move { answer }),
            None => Box::pin(std::future::pending()),
        }
    }

    fn leave<'a>(&'a self, _: &'a str, _: &'a str) -> Leaving<'a> {
        self.left.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {})
    }
}

fn stubborn(says: Option<Answer>) -> Arc<Stubborn> {
    Arc::new(Stubborn { says, ..Default::default() })
}

/// Runs `cleaners` passes at once, each with a connection of its own.
async fn together(shelf: &Shelf, sweep: &Sweep, cleaners: usize) -> Vec<SweepReport> {
    let mut tasks = Vec::new();
    for _ in 0..cleaners {
        let (sweep, engine) = (sweep.clone(), shelf.engine.clone());
        tasks.push(tokio::spawn(async move { sweep.run_once(&engine).await.expect("a pass") }));
    }
    let mut reports = Vec::new();
    for task in tasks {
        reports.push(soon(task).await.expect("no panic"));
    }
    reports
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_sweep_is_correct_under_a_gate_that_grants_every_request() {
    let shelf = Shelf::with(4000).await;
    let gate = stubborn(Some(Answer::Granted));
    let sweep = loans().claim_size(50).gate(Gate::custom(gate.clone()));
    let reports = together(&shelf, &sweep, 8).await;
    assert_eq!(reports.iter().map(|report| report.finished).sum::<u64>(), 4000);
    assert_eq!(reports.iter().map(|report| report.lost).sum::<u64>(), 0);
    shelf.assert_all_back(4000).await;
    let claims = "select count(*) from library.trail where to_state = 'coming'";
    assert_eq!(count(&shelf.client, claims).await, 4000, "no row was claimed twice");
    let (asked, left) = (gate.asked.load(Ordering::SeqCst), gate.left.load(Ordering::SeqCst));
    assert!(asked >= 80 && asked == left, "asked {asked} times, left {left} times");
}

#[tokio::test(flavor = "multi_thread")]
async fn d8_sweep_ends_under_a_gate_that_grants_no_request() {
    let shelf = Shelf::with(2000).await;
    let gate = stubborn(Some(Answer::Busy));
    let sweep = loans().claim_size(50).gate(Gate::custom(gate.clone()));
    together(&shelf, &sweep, 2).await;
    shelf.assert_all_back(2000).await;
    assert!(gate.asked.load(Ordering::SeqCst) > 0);
    assert_eq!(gate.left.load(Ordering::SeqCst), 0, "no request was granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_gate_that_does_not_respond_gets_few_calls() {
    for says in [None, Some(Answer::Unavailable)] {
        let shelf = Shelf::with(2000).await;
        let gate = stubborn(says);
        let sweep = loans().claim_size(50).gate(Gate::custom(gate.clone()));
        let began = Instant::now();
        together(&shelf, &sweep, 2).await;
        // Forty claims and more, but only a few requests, each with a timeout, and one more every 15 s.
        let most = 6 + began.elapsed().as_secs() as usize / 15;
        shelf.assert_all_back(2000).await;
        let asked = gate.asked.load(Ordering::SeqCst);
        assert!((1..=most).contains(&asked), "asked {asked} times: {says:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_advisory_lock_of_another_session_does_not_stop_a_sweep() {
    let shelf = Shelf::with(300).await;
    let sweep = loans().gate(Gate::advisory());
    // Another program uses the same lock keys, and never releases them.
    let stranger = shelf.database.connect_directly().await;
    let number = leasehold::testing::gate_key("loans.end");
    let take = format!("select pg_advisory_lock(7306, {number})");
    stranger.batch_execute(&take).await.expect("taken");
    together(&shelf, &sweep, 2).await;
    shelf.assert_all_back(300).await;
    assert_eq!(count(&shelf.client, HELD).await, 1, "the stranger's");
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_advisory_gate_is_free_while_rows_are_handled() {
    let shelf = Shelf::with(1000).await;
    let engine = shelf.engine.clone();
    let sweep = loans().claim_size(100).gate(Gate::advisory()).handle(move |_| {
        let engine = engine.clone();
        async move {
            let client = engine.pool().get().await?;
            // The gate is free while rows are worked on.
            assert_eq!(count(&client, HELD).await, 0, "held while rows are worked on");
            Ok(())
        }
    });
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.batches), (1000, 10));
}
