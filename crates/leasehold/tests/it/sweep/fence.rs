//! The fence: a claimer that lost its claim changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::sweep::Sweep;

use super::fixture::{Shelf, loans};
use crate::fixture::{count, sql};

/// Runs `meanwhile` between the first claim and its finish.
fn interrupted(shelf: &Shelf, meanwhile: &'static str) -> Sweep {
    let engine = shelf.engine.clone();
    let times = Arc::new(AtomicUsize::new(0));
    loans().handle(move |_| {
        let engine = engine.clone();
        let first = times.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                let client = engine.pool().get().await?;
                sql(&client, meanwhile).await;
            }
            Ok(())
        }
    })
}

#[tokio::test]
async fn claim_finishes_no_row_that_was_reset() {
    let shelf = Shelf::with(10).await;
    let sweep = interrupted(
        &shelf,
        "update library.loans set state = 'out', taken_at = null, taken_by = null where id <= 4",
    );
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    // Lost, waiting again, and finished by the next claim.
    assert_eq!((report.claimed, report.finished, report.lost), (14, 10, 4));
    assert_eq!(shelf.count("state = 'back'").await, 10);
    let out = count(&shelf.client, "select sum(out_on_loan) from library.books").await;
    assert_eq!(out, 0, "each effect once");
}

#[tokio::test]
async fn claim_finishes_no_row_that_another_claim_holds() {
    let shelf = Shelf::with(10).await;
    let sweep = interrupted(&shelf, "update library.loans set taken_by = 7 where id <= 4");
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (6, 4));
    assert_eq!(shelf.count("state = 'coming' and taken_by = 7").await, 4, "theirs");
    let out = count(&shelf.client, "select sum(out_on_loan) from library.books").await;
    assert_eq!(out, 4, "no effect without a finish");
}

#[tokio::test]
async fn claim_finishes_no_row_that_was_finished_by_hand() {
    let shelf = Shelf::with(10).await;
    let sweep =
        interrupted(&shelf, "update library.loans set state = 'back', taken_by = 7 where id <= 4");
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (6, 4));
    shelf.assert_each_finished_once().await;
}

#[tokio::test]
async fn renewal_returns_lost_rows_and_keeps_the_others() {
    let shelf = Shelf::with(10).await;
    let engine = shelf.engine.clone();
    let sweep = loans().handle(move |batch| {
        let engine = engine.clone();
        async move {
            let client = engine.pool().get().await?;
            sql(
                &client,
                "update library.loans set taken_at = now() - interval '1 day';
                 update library.loans set taken_by = 7 where id <= 4",
            )
            .await;
            let kept = batch.renew().await?;
            assert_eq!((kept.done, kept.lost.len()), (6, 4));
            assert!(kept.lost.iter().all(|key| key.as_str() <= "4"), "{:?}", kept.lost);
            let asked: Vec<String> = (1..=6).map(|n| n.to_string()).collect();
            let early = batch.finish(&asked).await?;
            assert_eq!((early.done, early.lost.len()), (2, 0), "what is lost is not tried again");
            Ok(())
        }
    });
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (6, 4));
    assert_eq!(shelf.count("state = 'back' and taken_at > now() - interval '1 hour'").await, 6);
}

#[tokio::test]
async fn claims_are_numbered_in_the_order_of_their_locks() {
    let shelf = Shelf::with(1000).await;
    loans().claim_size(100).run_once(&shelf.engine).await.expect("a pass");
    let order = "select count(*) from (select claim > lag(claim) over (order by min(at)) as grows
                   from library.trail where to_state = 'coming' group by claim) t where not grows";
    assert_eq!(count(&shelf.client, order).await, 0);
    let claims = "select count(distinct claim) from library.trail where to_state = 'coming'";
    assert_eq!(count(&shelf.client, claims).await, 10);
}
