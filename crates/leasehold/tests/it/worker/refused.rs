//! Finishes that Postgres refuses, for a while or for good.

use std::time::Duration;

use leasehold::{ConnectError, Enqueue, Finished, Job, JobResult, Leasehold, Outcome, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio_postgres::Client;

use crate::fixture::{completed, count, jobs, run, sql, until};
use crate::support::{Note, engine};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "bad", priority = -1)]
struct Bad {}

/// Refuses every way to end an attempt of a job named `bad`.
async fn refuse_bad_jobs(client: &Client) {
    let text = "create function refuse() returns trigger language plpgsql as \
                $$ begin raise exception 'no end for bad jobs'; end $$; \
                create trigger refuse before update or delete on leasehold.job for each row \
                when (old.name = 'bad' and old.held) execute function refuse()";
    sql(client, text).await;
}

const BAD_IS_HELD: &str = "select count(*) from leasehold.job where name = 'bad' and held";

#[tokio::test(flavor = "multi_thread")]
async fn a25_refused_finish_delays_no_other_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    refuse_bad_jobs(&client).await;
    let worker =
        engine.worker().queue("default", 4).handle(async |_: Bad| {}).handle(async |_: Note| {});
    Bad {}.enqueue(&engine).await.expect("enqueued");
    engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
    let worker = run(worker);
    until("the good jobs", async || completed(&client).await == 50).await;
    assert_eq!(count(&client, BAD_IS_HELD).await, 1, "the bad job is still refused");
    worker.stop().await;
    assert_eq!((completed(&client).await, jobs(&client).await), (50, 1));
}

/// Refuses the claim of a job named `bad`, and of one with `n` = 3.
async fn refuse_bad_claims(client: &Client) {
    let text = "create function refuse() returns trigger language plpgsql as \
                $$ begin raise exception 'no start for bad jobs'; end $$; \
                create trigger refuse before update on leasehold.job for each row \
                when (new.held and (new.name = 'bad' or new.kwargs ->> 'n' = '3')) \
                execute function refuse()";
    sql(client, text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a37_job_whose_claim_is_refused_blocks_no_other_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    refuse_bad_claims(&client).await;
    Bad {}.enqueue(&engine).await.expect("enqueued");
    engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
    let worker =
        engine.worker().queue("default", 4).handle(async |_: Bad| {}).handle(async |_: Note| {});
    let worker = run(worker);
    until("the good jobs", async || completed(&client).await == 49).await;
    let waiting = "select count(*) from leasehold.job where not held and attempts = 0";
    assert_eq!(count(&client, waiting).await, 2, "the refused ones wait as they were");
    sql(&client, "drop trigger refuse on leasehold.job").await;
    until("the refused jobs", async || completed(&client).await == 51).await;
    worker.stop().await;
}

#[tokio::test]
async fn a37_claim_in_plain_sql_passes_a_refused_job_too() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    refuse_bad_claims(&client).await;
    Bad {}.enqueue(&engine).await.expect("enqueued");
    engine.enqueue_many((0..2).map(|n| Note { n })).await.expect("enqueued");
    let claim = "select count(*) from leasehold.claim('w', claim_size => 10) where name = 'note'";
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.push(count(&client, claim).await);
    }
    assert_eq!(claimed, [1, 1, 0], "one job per call while a job is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a37_refused_job_on_its_last_chance_blocks_no_other_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    refuse_bad_claims(&client).await;
    Bad {}.enqueue(&engine).await.expect("enqueued");
    sql(&client, "update leasehold.job set lost_count = 2").await;
    engine.enqueue_many((10..30).map(|n| Note { n })).await.expect("enqueued");
    let worker =
        engine.worker().queue("default", 4).handle(async |_: Bad| {}).handle(async |_: Note| {});
    let worker = run(worker);
    until("the good jobs", async || completed(&client).await == 20).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_refused_failure_delays_no_other_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    refuse_bad_jobs(&client).await;
    let worker = engine
        .worker()
        .queue("default", 4)
        .handle(async |_: Bad| -> JobResult { Ok(Outcome::Snooze(Duration::from_secs(60))) })
        .handle(async |_: Note| {});
    let bad = Bad {}.enqueue(&engine).await.expect("enqueued").id();
    engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
    let mut worker = run(worker);
    let ends = worker.finished(51).await;
    assert_eq!(ends.iter().filter(|end| end.1 == Finished::Completed).count(), 50);
    assert!(ends.contains(&(bad, Finished::Lost)), "its lease brings it back");
    worker.stop().await;
    assert_eq!((completed(&client).await, count(&client, BAD_IS_HELD).await), (50, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_refused_completion_is_recorded_as_a_failure_with_the_reason() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(
        &client,
        "create function refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'no completion for bad jobs'; end $$; \
         create trigger refuse before insert on leasehold_internal.history for each row \
         when ('bad' = any (new.names)) execute function refuse()",
    )
    .await;
    // One lease for all of them: the statement that completes them is refused as a whole.
    engine.enqueue_many((0..20).map(|n| Note { n })).await.expect("enqueued");
    Bad {}.enqueue(&engine).await.expect("enqueued");
    let worker =
        engine.worker().queue("default", 50).handle(async |_: Bad| {}).handle(async |_: Note| {});
    let mut worker = run(worker);
    let ends = worker.finished(21).await;
    assert_eq!(ends.iter().filter(|end| end.1 == Finished::Completed).count(), 20, "{ends:?}");
    worker.stop().await;
    let failed = "select count(*) from leasehold.job where name = 'bad' and not held \
                and last_error like '%no completion for bad jobs%'";
    assert_eq!((completed(&client).await, count(&client, failed).await), (20, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_waits_beyond_the_calendar_are_clamped() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |job: Note| -> JobResult {
        Ok(match job.n {
            0 => Outcome::Snooze(Duration::MAX),
            _ => Outcome::Retry { after: Duration::MAX, why: "much later".into() },
        })
    };
    engine.enqueue_many((0..2).map(|n| Note { n })).await.expect("enqueued");
    let mut worker = run(engine.worker().queue("default", 2).handle(handler));
    let mut ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    ends.sort_by_key(|end| *end == Finished::Snoozed);
    assert_eq!(ends, [Finished::Retried, Finished::Snoozed]);
    worker.stop().await;
    let clamped = "select count(*) from leasehold.job where not held and expires_at > scheduled_at \
                   and scheduled_at between now() + interval '9 years' and now() + interval '11 years'";
    assert_eq!(count(&client, clamped).await, 2);
}

#[tokio::test]
async fn a25_database_in_latin1_is_refused_at_connect() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let name = format!("{}_latin1", database.name());
    let create = format!(
        "create database {name} encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'"
    );
    sql(&client, &create).await;
    let url = database.direct_url().replace(database.name(), &name);
    let refused = Leasehold::connect(&url).await.err();
    sql(&client, &format!("drop database {name} with (force)")).await;
    assert!(
        matches!(&refused, Some(ConnectError::Encoding(found)) if found == "LATIN1"),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_g11_results_without_room_keep_their_slots() {
    const SLOTS: i64 = 10;
    // The smallest room for unrecorded results of a queue; see `decisions`.
    const ROOM: i64 = 1024;
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let holder = database.connect_directly().await;
    sql(&holder, "begin; lock table leasehold_internal.history in exclusive mode").await;
    let started = std::sync::Arc::new(std::sync::atomic::AtomicI64::new(0));
    let handler =
        async |_: Note, State(started): State<std::sync::Arc<std::sync::atomic::AtomicI64>>| {
            started.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        };
    engine.enqueue_many((0..ROOM * 2).map(|n| Note { n })).await.expect("enqueued");
    let slots = usize::try_from(SLOTS).expect("a few");
    // What is claimed ahead has a bound of its own: see `ahead`.
    let worker = engine.worker_with(started.clone()).claim_ahead(0, Duration::ZERO);
    let worker = run(worker.queue("default", slots).handle(handler));
    until("all the room is taken", async || {
        let started = started.load(std::sync::atomic::Ordering::SeqCst);
        assert!(started <= ROOM + SLOTS, "{started} ran, and nothing can be recorded");
        started == ROOM + SLOTS
    })
    .await;
    let held = "select count(*) from leasehold.job where held";
    assert!(count(&client, held).await <= ROOM + SLOTS * 2, "no claims beyond the room");
    sql(&holder, "commit").await;
    until("everything", async || completed(&client).await == ROOM * 2).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_job_whose_row_is_locked_delays_no_other_of_its_lease() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let holder = database.connect_directly().await;
    let gate = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let handler = async |_: Note, State(gate): State<std::sync::Arc<tokio::sync::Semaphore>>| {
        let _ = gate.acquire().await;
    };
    engine.enqueue_many((0..12).map(|n| Note { n })).await.expect("enqueued");
    let worker = engine.worker_with(gate.clone()).queue("default", 12).handle(handler);
    let worker = run(worker);
    let held = "select count(*) from leasehold.job where held";
    until("all run", async || count(&client, held).await == 12).await;
    let lock = "begin; select from leasehold.job where kwargs ->> 'n' = '5' for no key update";
    sql(&holder, lock).await;
    gate.add_permits(12);
    until("the others", async || completed(&client).await == 11).await;
    assert_eq!(count(&client, held).await, 1, "the lock is still held");
    sql(&holder, "commit").await;
    until("everything", async || completed(&client).await == 12).await;
    worker.stop().await;
    let again = "select count(*) from leasehold_internal.history, unnest(attempts) a where a > 1";
    assert_eq!(count(&client, again).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_refusal_with_a_code_of_the_users_own_is_permanent() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(
        &client,
        "create function refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'closed for bad jobs' using errcode = 'ZZ001'; end $$; \
         create trigger refuse before insert on leasehold_internal.history for each row \
         when ('bad' = any (new.names)) execute function refuse()",
    )
    .await;
    engine.enqueue_many((0..5).map(|n| Note { n })).await.expect("enqueued");
    Bad {}.enqueue(&engine).await.expect("enqueued");
    let worker =
        engine.worker().queue("default", 10).handle(async |_: Bad| {}).handle(async |_: Note| {});
    let mut worker = run(worker);
    let ends = worker.finished(6).await;
    assert_eq!(ends.iter().filter(|end| end.1 == Finished::Completed).count(), 5, "{ends:?}");
    worker.stop().await;
    let failed = "select count(*) from leasehold.job where name = 'bad' and not held \
                and last_error like '%closed for bad jobs%'";
    assert_eq!((completed(&client).await, count(&client, failed).await), (5, 1));
}
