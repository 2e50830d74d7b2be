//! The gate in Redis, on a real server: late, forgetful, dead, or released by a former holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::AsyncCommands;
use leasehold::sweep::{Gate, When};
use leasehold_testing::PrivateRedis;
use rustix::process::Signal;

use super::child::MAIN;
use super::fixture::{Shelf, loans};
use crate::fixture::{count, run, until};
use crate::processes::Process;

const KEY: &str = "leasehold:sweep:loans.end";

/// Makes a claim wait while the test holds lock 99.
const DAWDLE: &str = "create function library.dawdle() returns boolean language plpgsql stable as $$
     begin perform pg_advisory_lock_shared(99); perform pg_advisory_unlock_shared(99); return true; end $$;
     create table library.said (what text)";

fn gate(server: &PrivateRedis) -> Gate {
    Gate::redis(&server.url()).expect("a gate")
}

/// Sweeps 300 rows. Returns whether the lock was taken for three batches and two empty claims, released
/// each time, and free while rows were worked on.
async fn takes_and_releases(shelf: &Shelf, server: &PrivateRedis) -> bool {
    let mut client = server.connect().await.expect("a connection");
    server.flush().await.expect("flushed");
    ::redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query_async::<()>(&mut client)
        .await
        .expect("counted anew");
    let is_held = Arc::new(AtomicBool::new(false));
    let (looking, seen) = (client.clone(), Arc::clone(&is_held));
    let sweep = loans().gate(gate(server)).handle(move |_| {
        let (mut looking, seen) = (looking.clone(), Arc::clone(&seen));
        async move {
            let held = looking.exists::<_, bool>(KEY).await;
            seen.fetch_or(held.unwrap_or(true), Ordering::SeqCst);
            Ok(())
        }
    });
    assert_eq!(sweep.run_once(&shelf.engine).await.expect("a pass").finished, 300);
    let stats: String =
        ::redis::cmd("INFO").arg("commandstats").query_async(&mut client).await.expect("stats");
    let five = |command: &str| stats.contains(&format!("cmdstat_{command}:calls=5,"));
    !is_held.load(Ordering::SeqCst) && five("set") && five("eval")
}

#[tokio::test(flavor = "multi_thread")]
async fn gate_is_held_during_the_claim_and_released_before_the_handler() {
    let (shelf, server) = (Shelf::new().await, PrivateRedis::start().expect("Redis"));
    let mut first = 1;
    // A request without a reply from Redis within 150 ms times out, and then the pass proves nothing.
    until("a pass with every answer in time", async || {
        shelf.lend(first, 300).await;
        first += 300;
        takes_and_releases(&shelf, &server).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_holder_frozen_past_the_expiry_of_its_lock_takes_no_row_of_the_next_one() {
    let (shelf, server) = (Shelf::with(1000).await, PrivateRedis::start().expect("Redis"));
    shelf.sql(DAWDLE).await;
    let door = shelf.database.connect_directly().await;
    door.batch_execute("select pg_advisory_lock(99)").await.expect("shut");
    let mut redis = server.connect().await.expect("a connection");
    let url = server.url();
    let more = [("LEASEHOLD_TEST_REDIS", url.as_str())];
    let sleeper = Process::run(MAIN, "claims-slowly", &shelf.database, &more);
    let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
    // Without a reply in time it claims without the lock; such a claim is cancelled, and the next one
    // asks again.
    until("it is inside, in the middle of its claim, and has the lock", async || {
        count(&shelf.client, waits).await == 1
            && redis.exists::<_, bool>(KEY).await.expect("an answer")
    })
    .await;
    sleeper.signal(Signal::STOP);
    // As if half a minute had passed.
    redis.pexpire::<_, ()>(KEY, 1).await.expect("expired");
    until("the lock is gone", async || !redis.exists::<_, bool>(KEY).await.expect("an answer"))
        .await;
    let next = loans().gate(gate(&server)).run_once(&shelf.engine).await.expect("a pass");
    assert_eq!(next.finished, 1000, "the next one gets the lock and all the rows");
    // The claim ends in Postgres, and then the sleeper wakes.
    door.batch_execute("select pg_advisory_unlock(99)").await.expect("open");
    until("its claim has ended", async || count(&shelf.client, waits).await == 0).await;
    sleeper.signal(Signal::CONT);
    until("it has looked at everything", async || {
        count(&shelf.client, "select count(*) from library.said where what like 'SweepRunEnded%'")
            .await
            > 0
    })
    .await;
    shelf.assert_all_back(1000).await;
    let claims = "select count(*) from library.trail where to_state = 'coming'";
    assert_eq!(count(&shelf.client, claims).await, 1000, "each row was claimed once");
}

#[tokio::test(flavor = "multi_thread")]
async fn d9_late_release_keeps_the_lock_of_the_next_holder() {
    let (shelf, server) = (Shelf::with(10).await, PrivateRedis::start().expect("Redis"));
    shelf.sql(DAWDLE).await;
    let door = shelf.database.connect_directly().await;
    door.batch_execute("select pg_advisory_lock(99)").await.expect("shut");
    let slow =
        loans().gate(gate(&server)).due("ends_at < statement_timestamp() and library.dawdle()");
    let engine = shelf.engine.clone();
    // A claim without the lock, or one that the door held up for long, is tried again.
    let claiming = tokio::spawn(async move {
        loop {
            if let Ok(report) = slow.run_once(&engine).await {
                return report;
            }
        }
    });
    let mut redis = server.connect().await.expect("a connection");
    until("it is inside", async || redis.exists::<_, bool>(KEY).await.expect("an answer")).await;
    // Its time is up, and another holder has the lock.
    redis.set::<_, _, ()>(KEY, "another holder").await.expect("set");
    door.batch_execute("select pg_advisory_unlock(99)").await.expect("open");
    let report = crate::fixture::soon(claiming).await.expect("no panic");
    assert_eq!(report.finished, 10);
    let holder: Option<String> = redis.get(KEY).await.expect("an answer");
    assert_eq!(holder.as_deref(), Some("another holder"));
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_d7_sweep_claims_each_row_once_while_redis_is_flushed_killed_and_frozen() {
    let (shelf, mut server) = (Shelf::with(600).await, PrivateRedis::start().expect("Redis"));
    let sweep = || {
        loans().claim_size(50).gate(gate(&server)).when(When::continuous(Duration::from_millis(10)))
    };
    // Each worker has its own gate, as separate processes would.
    let workers: Vec<_> = (0..3).map(|_| run(shelf.engine.worker().sweep(sweep()))).collect();
    let mut lent = 600;
    // Lends new rows, some of which are still on their way when this returns.
    let mut may_continue = async |during: &str| {
        shelf.lend(lent + 1, 600).await;
        lent += 600;
        until(during, async || shelf.count("state = 'back'").await >= lent - 300).await;
    };
    for _ in 0..3 {
        server.flush().await.expect("flushed");
        may_continue("flushed").await;
    }
    server.kill().expect("killed");
    may_continue("killed").await;
    server.restart().expect("back, and empty");
    may_continue("back").await;
    server.freeze().expect("frozen");
    may_continue("frozen").await;
    server.thaw().expect("thawed");
    may_continue("thawed").await;
    until("all are back", async || shelf.count("state <> 'back'").await == 0).await;
    for worker in workers {
        worker.stop().await;
    }
    shelf.assert_all_back(lent).await;
    let claims = "select count(*) from library.trail where to_state = 'coming'";
    assert_eq!(count(&shelf.client, claims).await, lent, "each row was claimed once");
}

#[tokio::test]
async fn sweep_works_without_redis_and_refuses_an_invalid_address() {
    let shelf = Shelf::with(300).await;
    let nowhere = Gate::redis("redis+unix:///nowhere/redis.sock").expect("a gate");
    let report = loans().gate(nowhere).run_once(&shelf.engine).await.expect("a pass");
    assert_eq!(report.finished, 300);
    let text = Gate::redis("postgres://x").expect_err("no Redis").to_string();
    assert!(text.contains("redis://host:6379"), "{text}");
}
