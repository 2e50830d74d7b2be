//! The watchdog: takes claims away, a bounded number at a time, whether their holders are dead or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::events::Event;
use leasehold::sweep::When;

use super::fixture::{Shelf, loans};
use crate::fixture::{count, run, soon, until};
use crate::logs::Logs;
use crate::support::wait_for;

/// Claims everything for a holder that went away three hours ago.
const ABANDONED: &str = "update library.loans set state = 'coming', taken_by = 7,
     taken_at = now() - interval '3 hours'";

#[tokio::test(flavor = "multi_thread")]
async fn d11_slow_worker_loses_its_rows_and_finishes_none_of_them() {
    let shelf = Shelf::with(200).await;
    let engine = shelf.engine.clone();
    // Two hours of work, as the watchdog sees it.
    let slow = loans().claim_size(200).handle(move |batch| {
        let engine = engine.clone();
        async move {
            let client = engine.pool().get().await?;
            let aged = "update library.loans set taken_at = taken_at - interval '2 hours' where state = 'coming'";
            crate::fixture::sql(&client, aged).await;
            let watched = loans().run_watchdog_once(&engine).await?;
            assert_eq!(watched.reset, 200);
            let other = loans().run_once(&engine).await?;
            assert_eq!(other.finished, 200, "the next worker does it all");
            drop(batch);
            Ok(())
        }
    });
    let report = slow.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (0, 200));
    shelf.assert_all_back(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d11_slow_worker_that_renews_keeps_its_rows() {
    let shelf = Shelf::with(200).await;
    let engine = shelf.engine.clone();
    let slow = loans().claim_size(200).handle(move |batch| {
        let engine = engine.clone();
        async move {
            let client = engine.pool().get().await?;
            for _ in 0..3 {
                let aged = "update library.loans set taken_at = taken_at - interval '90 minutes' where state = 'coming'";
                crate::fixture::sql(&client, aged).await;
                assert_eq!(loans().run_watchdog_once(&engine).await?.reset, 0);
                assert_eq!(batch.renew().await?.done, 200);
            }
            Ok(())
        }
    });
    let report = slow.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (200, 0));
    shelf.assert_all_back(200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_concurrent_watchdogs_and_passes_do_nothing_twice() {
    let shelf = Shelf::with(6000).await;
    shelf.sql("alter table library.loans disable trigger all").await;
    shelf.sql(ABANDONED).await;
    shelf.sql("alter table library.loans enable trigger all").await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let engine = shelf.engine.clone();
        tasks.push(tokio::spawn(async move {
            loans().run_watchdog_once(&engine).await.expect("a look").reset
        }));
    }
    let mut reset = 0;
    for task in tasks {
        reset += soon(task).await.expect("no panic");
    }
    assert_eq!(reset, 6000, "each row by one of them");
    let back = "select count(*) from library.trail where to_state = 'out'";
    assert_eq!(count(&shelf.client, back).await, 6000);
    // The watchdogs of three workers run beside their cleaners, without an election.
    let sweep = loans()
        .when(When::continuous(Duration::from_millis(10)))
        .watchdog_every(Duration::from_millis(1));
    let workers: Vec<_> = (0..3).map(|_| run(shelf.engine.worker().sweep(sweep.clone()))).collect();
    until("all are back", async || shelf.count("state <> 'back'").await == 0).await;
    for worker in workers {
        worker.stop().await;
    }
    shelf.assert_all_back(6000).await;
}

#[tokio::test]
async fn d13_watchdog_resets_a_bounded_number_of_rows_and_reports_more() {
    let shelf = Shelf::with(2500).await;
    shelf.sql(ABANDONED).await;
    let sweep = loans().watchdog_most(1100);
    let first = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((first.reset, first.more), (1100, true));
    let second = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((second.reset, second.more), (1100, true));
    let third = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!((third.reset, third.more), (300, false));
    let again = sweep.run_watchdog_once(&shelf.engine).await.expect("a look");
    assert_eq!(again.reset, 0, "nothing twice");
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").finished, 2500);
    shelf.assert_all_back(2500).await;
}

#[tokio::test]
async fn d13_clock_jump_under_living_workers_repeats_no_effect() {
    let shelf = Shelf::with(300).await;
    let engine = shelf.engine.clone();
    let jumps = Arc::new(AtomicUsize::new(3));
    // All claims look three hours old in the middle of their work, three times.
    let jumped = loans().claim_size(300).handle(move |batch| {
        let (engine, jumps) = (engine.clone(), Arc::clone(&jumps));
        async move {
            let left = jumps.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            if left.is_err() {
                return Ok(());
            }
            let client = engine.pool().get().await?;
            let jump = "update library.loans set taken_at = taken_at - interval '3 hours'";
            crate::fixture::sql(&client, jump).await;
            let rows = batch.keys().len();
            assert_eq!(loans().run_watchdog_once(&engine).await?.reset, rows as u64);
            let early: Vec<_> = batch.keys().iter().take(100).collect();
            assert_eq!(batch.finish(&early).await?.lost.len(), early.len());
            Ok(())
        }
    });
    let report = jumped.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.lost), (300, report.claimed - 300));
    assert!(report.lost >= 302, "{report:?}: three batches were lost");
    shelf.assert_all_back(300).await;
}

#[tokio::test]
async fn d13_watchdog_killed_half_way_leaves_whole_pieces_to_the_next_one() {
    let shelf = Shelf::with(3000).await;
    shelf.sql(ABANDONED).await;
    // The last piece cannot be written: a trigger kills the watchdog there.
    shelf
        .sql(
            "create function library.kill() returns trigger language plpgsql as $$ begin
                 perform pg_terminate_backend(pg_backend_pid()); return new; end $$;
             create trigger kill before update on library.loans for each row
                 when (old.id = 2100 and new.state = 'out') execute function library.kill()",
        )
        .await;
    let sweep = loans();
    assert!(sweep.run_watchdog_once(&shelf.engine).await.is_err(), "its connection is gone");
    let back = shelf.count("state = 'out'").await;
    assert!(back > 0 && back % 1000 == 0 && back < 3000, "{back} went back");
    let woken = "select count(*) from leasehold_internal.sweep where next_run_at <= now()";
    assert_eq!(count(&shelf.client, woken).await, 1, "what went back is due at once");
    shelf.sql("drop trigger kill on library.loans").await;
    let rest = sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset;
    assert_eq!(i64::try_from(rest).expect("small"), 3000 - back);
}

#[tokio::test]
async fn claim_without_a_time_or_with_a_future_time_is_reset() {
    let shelf = Shelf::with(3).await;
    shelf
        .sql(
            "update library.loans set state = 'coming', taken_by = 7;
             update library.loans set taken_at = now() + interval '1 year' where id = 1",
        )
        .await;
    let sweep = loans();
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset, 0);
    assert_eq!(shelf.count("taken_at between now() - interval '1 hour' and now()").await, 3);
    shelf.age_claims("2 hours").await;
    assert_eq!(sweep.run_watchdog_once(&shelf.engine).await.expect("a look").reset, 3);
}

#[tokio::test]
async fn table_can_let_only_the_watchdog_reset_rows() {
    let shelf = Shelf::with(10).await;
    shelf
        .sql(
            "create function library.guard() returns trigger language plpgsql as $$ begin
                 if coalesce(current_setting('leasehold.watchdog', true), '') <> 'loans.end' then
                     raise exception 'only the watchdog goes back'; end if;
                 return new; end $$;
             create trigger guard before update on library.loans for each row
                 when (old.state = 'coming' and new.state = 'out') execute function library.guard()",
        )
        .await;
    shelf.sql(ABANDONED).await;
    let by_hand = "update library.loans set state = 'out'";
    assert!(shelf.client.batch_execute(by_hand).await.is_err());
    assert_eq!(loans().run_watchdog_once(&shelf.engine).await.expect("a look").reset, 10);
    assert_eq!(loans().run_once(&shelf.engine).await.expect("a pass").finished, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_watchdog_resets_run_before_the_next_night() {
    let shelf = Shelf::with(50).await;
    shelf.sql("alter table library.loans disable trigger all").await;
    shelf.sql(ABANDONED).await;
    shelf.sql("alter table library.loans enable trigger all").await;
    // The night is twelve hours away.
    let night = "select to_char(now() at time zone 'UTC' + interval '12 hours', 'HH24:MI')";
    let at: String = shelf.client.query_one(night, &[]).await.expect("a time").get(0);
    let sweep = loans()
        .when(When::nightly(&at, "UTC").expect("a night"))
        .watchdog_every(Duration::from_millis(10));
    let mut worker = run(shelf.engine.worker().sweep(sweep));
    // The sweep may be done before the watchdog reports what it did.
    let (mut reset, mut is_over) = (0_u64, false);
    wait_for(&mut worker.events, |event| {
        match event {
            Event::SweepReset { reset: more, .. } => reset += *more,
            Event::SweepRunEnded { .. } => is_over = true,
            _ => {}
        }
        (reset == 50 && is_over).then_some(())
    })
    .await;
    worker.stop().await;
    shelf.assert_all_back(50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchdog_counts_due_rows() {
    let shelf = Shelf::with(30).await;
    let later = "update library.loans set ends_at = now() + interval '1 day' where id <= 10";
    shelf.sql(later).await;
    // A count that takes too long is left to the next turn of the watchdog.
    until("they are counted", async || {
        loans().run_watchdog_once(&shelf.engine).await.expect("a turn");
        let counted =
            "select count(*) from leasehold_internal.sweep where due_counted_at is not null";
        count(&shelf.client, counted).await == 1
    })
    .await;
    let due = "select rows_due from leasehold_internal.sweep";
    assert_eq!(count(&shelf.client, due).await, 20);
    // A caller that only resets rows does not know what is due, and leaves the number alone.
    leasehold::sweep::run_watchdog(&shelf.engine, "loans.end", "ann").await.expect("a turn");
    assert_eq!(count(&shelf.client, due).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn watchdog_counts_claimed_and_stuck_rows() {
    let shelf = Shelf::with(30).await;
    shelf
        .sql(
            "update library.loans set state = 'coming', taken_by = 7,
                    taken_at = now() - interval '1 hour' where id <= 10;
             update library.loans set taken_at = now() - interval '1 day' where id <= 4;
             insert into leasehold_internal.sweep_failure (sweep, key, claim, attempts, last_error, dead_at)
             select 'loans.end', n::text, 7, 5, 'no', now() from generate_series(1, 2) n",
        )
        .await;
    let counted =
        "select count(*) from leasehold_internal.sweep where claims_counted_at is not null";
    until("they are counted", async || {
        // A watchdog resets no row that is locked.
        let locked = shelf.database.connect_directly().await;
        crate::fixture::sql(&locked, "begin; select * from library.loans where id <= 4 for update")
            .await;
        loans().run_watchdog_once(&shelf.engine).await.expect("a turn");
        count(&shelf.client, counted).await == 1
    })
    .await;
    let numbers =
        "select claimed_now * 10000 + unfailed_now * 100 + stuck_now from leasehold_internal.sweep";
    assert_eq!(count(&shelf.client, numbers).await, 10 * 10000 + 8 * 100 + 2);
    let oldest = "select count(*) from leasehold_internal.sweep where oldest_claim_at < now() - interval '23 hours'";
    assert_eq!(count(&shelf.client, oldest).await, 1);
}

#[tokio::test]
async fn d14_watchdog_that_keeps_failing_is_logged_until_it_recovers() {
    let shelf = Shelf::with(3).await;
    let logs = Logs::collect();
    let rename = "alter function leasehold_internal.begin_watchdog(text) rename to watchdog_away";
    let mut worker = run(shelf.engine.worker().sweep(loans()));
    shelf.sql(rename).await;
    let error = wait_for(&mut worker.events, |event| match event {
        Event::DutyFailing { duty, error, .. } if duty == "run watchdog of sweep loans.end" => {
            Some(error.clone())
        }
        _ => None,
    })
    .await;
    assert!(error.contains("begin_watchdog"), "{error}");
    assert!(logs.has("WARN", "keeps failing"), "{}", logs.text());
    shelf
        .sql("alter function leasehold_internal.watchdog_away(text) rename to begin_watchdog")
        .await;
    until("it succeeds again", async || logs.has("INFO", "succeeds again")).await;
    worker.stop().await;
    let warnings = logs.text().lines().filter(|line| line.contains("keeps failing")).count();
    assert_eq!(warnings, 1, "{}", logs.text());
}
