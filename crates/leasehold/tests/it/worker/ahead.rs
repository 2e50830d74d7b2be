//! Jobs that are claimed ahead: bounded, renewed, released in time, and never run without their lease.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::events::Event;
use leasehold::{Enqueue, Finished, JobId, Leasehold, State};
use leasehold_testing::TestDatabase;
use tokio::sync::{Semaphore, watch};
use tokio_postgres::Client;

use super::expire_leases;
use crate::fixture::{
    Running, completed, count, ended, jobs, queue_settings, run, soon, sql, until,
};
use crate::support::{Note, engine, wait_for};

const HELD: &str = "select count(*) from leasehold.job where held";
/// Held jobs whose lease was prolonged since they were claimed.
const RENEWED: &str = "select count(*) from leasehold.job j join leasehold_internal.lease l using (lease_generation) \
     where j.held and l.ended_at is null and l.lease_expires_at > l.claimed_at + l.lease";
const UNTOUCHED: &str =
    "select count(*) from leasehold.job where not held and attempts = 0 and lost_count = 0";
const LONG: Duration = Duration::from_secs(3600);
/// One of this many jobs waits at the gate; the others end at once.
const GATED: i64 = 400;
const GATES: i64 = 12;
const ALL: i64 = GATED * GATES;
/// How many jobs the workers of these tests claim ahead.
const AHEAD: i64 = 5;
const WAITING: &str = "leasehold_worker_jobs_claimed_ahead{queue=\"default\"} 5";

/// Where handlers wait for the test.
#[derive(Clone)]
struct Gate {
    /// How many handlers wait or have waited.
    reached: watch::Sender<i64>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Self { reached: watch::Sender::new(0), open: Arc::new(Semaphore::new(0)) }
    }

    async fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
    }

    async fn is_reached(&self, times: i64) {
        let mut reached = self.reached.subscribe();
        soon(reached.wait_for(|reached| *reached >= times)).await.expect("a gate");
    }
}

async fn mostly_fast(job: Note, State(gate): State<Gate>) {
    if job.n % GATED == 0 {
        gate.pass().await;
    }
}

/// Enqueues all jobs, the gated ones at equal distances.
async fn enqueue_all(engine: &Leasehold) {
    engine.enqueue_many((1..=ALL).map(|n| Note { n })).await.expect("enqueued");
}

/// Lets a worker with one slot run until a handler waits at the gate and the worker has claimed as many jobs
/// ahead as it may. A machine that was busy at that moment makes handlers look slow: the next gate is another
/// try. Returns the jobs that wait for the slot.
async fn claims_ahead(engine: &Leasehold, client: &Client, gate: &Gate) -> HashSet<JobId> {
    for times in 1..GATES {
        gate.is_reached(times).await;
        let is_full = until("all are claimed", async || {
            // Ends that are not recorded yet are held too.
            engine.metrics().await.contains(WAITING) && count(client, HELD).await == 1 + AHEAD
        });
        if tokio::time::timeout(Duration::from_secs(2), is_full).await.is_ok() {
            let waiting = format!(
                "select id from leasehold.job where held and (kwargs ->> 'n')::int % {GATED} <> 0"
            );
            let rows = client.query(&waiting, &[]).await.expect("rows");
            return rows.iter().map(|row| JobId(row.get(0))).collect();
        }
        gate.open.add_permits(1);
    }
    panic!("the worker never claimed ahead");
}

fn started(events: &[Event]) -> HashSet<JobId> {
    let started = |event: &Event| match event {
        Event::Started { job, .. } => Some(*job),
        _ => None,
    };
    events.iter().filter_map(started).collect()
}

/// Starts a worker with one slot whose jobs may wait for it for a long time.
fn patient(engine: &Leasehold, gate: &Gate) -> Running {
    let worker = engine.worker_with(gate.clone()).queue("default", 1).grace(LONG);
    run(worker.claim_ahead(AHEAD as usize, LONG).without_housekeeping().handle(mostly_fast))
}

#[tokio::test(flavor = "multi_thread")]
async fn a38_jobs_that_wait_for_a_slot_are_released_at_once_when_the_worker_stops() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let worker = patient(&engine, &gate);
    let waiting = claims_ahead(&engine, &client, &gate).await;
    assert_eq!(waiting.len() as i64, AHEAD);
    let before = completed(&client).await;
    let (_, task) = worker.ask_to_stop();
    until("only the started one is held", async || count(&client, HELD).await == 1).await;
    assert_eq!(count(&client, UNTOUCHED).await, ALL - before - 1);
    assert!(!task.is_finished(), "the started one runs");
    gate.open.add_permits(1);
    ended(task).await.expect("a clean stop");
    assert_eq!((completed(&client).await, jobs(&client).await), (before + 1, ALL - before - 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a38_jobs_that_wait_for_a_slot_are_bounded_shown_and_renewed() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '3 seconds'").await;
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let mut worker = patient(&engine, &gate);
    let waiting = claims_ahead(&engine, &client, &gate).await;
    until("all are renewed", async || count(&client, RENEWED).await == 1 + AHEAD).await;
    // The claim loop has had all the time it needs for another claim.
    assert_eq!(count(&client, HELD).await, 1 + AHEAD);
    let metrics = engine.metrics().await;
    let shown = format!(
        "select count(*) from leasehold.workers where busy = 1 and claimed_ahead = {AHEAD}"
    );
    until("operators see them", async || count(&client, &shown).await == 1).await;
    for line in ["leasehold_worker_slots_busy{queue=\"default\"} 1", WAITING] {
        assert!(metrics.contains(line), "{line} is not in:\n{metrics}");
    }
    worker.seen();
    gate.open.add_permits(100);
    until("all are done", async || completed(&client).await == ALL).await;
    worker.stop().await;
    let once = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(count(&client, once).await, ALL, "{} waited", waiting.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a39_jobs_behind_a_handler_that_became_slow_run_in_another_worker() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let worker = engine.worker_with(gate.clone()).queue("default", 1).without_housekeeping();
    let first = run(worker.claim_ahead(AHEAD as usize, Duration::from_secs(2)).handle(mostly_fast));
    let waiting = claims_ahead(&engine, &client, &gate).await;
    assert_eq!(waiting.len() as i64, AHEAD);
    // Its gates are open.
    let open = Gate::new();
    open.open.add_permits(100);
    let second = run(engine.worker_with(open).queue("default", 1).handle(mostly_fast));
    until("all others are done", async || completed(&client).await == ALL - 1).await;
    assert_eq!(count(&client, HELD).await, 1, "the slow one runs");
    gate.open.add_permits(1);
    until("all are done", async || completed(&client).await == ALL).await;
    first.stop().await;
    second.stop().await;
    let once = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(count(&client, once).await, ALL, "no attempt was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a39_worker_of_slow_handlers_claims_no_more_than_its_slots() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..100).map(|_| Note { n: 0 })).await.expect("enqueued");
    let gate = Gate::new();
    let worker = engine.worker_with(gate.clone()).queue("default", 4).handle(mostly_fast);
    let worker = run(worker);
    let young = "select count(*) from leasehold_internal.lease where ended_at is null \
                 and claimed_at > clock_timestamp() - interval '100 ms'";
    let claimed = "select sum(cardinality(job_ids)) from leasehold_internal.lease";
    for turn in 1..=20 {
        gate.is_reached(4 * turn).await;
        // Four slots start less than one job within the time in which those that are claimed ahead must start.
        until("they have run for a while", async || count(&client, young).await == 0).await;
        assert_eq!(count(&client, claimed).await, 4 * turn, "nothing was claimed ahead");
        gate.open.add_permits(4);
    }
    gate.open.add_permits(100);
    until("all are done", async || completed(&client).await == 100).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a40_job_that_is_cancelled_while_it_waits_for_a_slot_does_not_start() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '3 seconds'").await;
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let mut worker = patient(&engine, &gate);
    let waiting: Vec<JobId> = claims_ahead(&engine, &client, &gate).await.into_iter().collect();
    let at_start = waiting[0];
    sql(&client, &format!("select leasehold.cancel({at_start}, 'test')")).await;
    // The keeper looks for cancel requests between two renewals of a lease. There are a few leases.
    worker.renewed(8).await;
    gate.open.add_permits(100);
    let mut seen = Vec::new();
    wait_for(&mut worker.events, |event| {
        seen.push(event.clone());
        matches!(event, Event::Finished { job, outcome: Finished::Cancelled, .. } if *job == at_start)
            .then_some(())
    })
    .await;
    assert!(!started(&seen).contains(&at_start), "it started");
    let states = format!(
        "select count(*) from leasehold.jobs where id = {at_start} and state = 'cancelled'"
    );
    assert_eq!(count(&client, &states).await, 1);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a40_job_that_is_cancelled_just_before_its_release_is_cancelled() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let worker = patient(&engine, &gate);
    let waiting: Vec<JobId> = claims_ahead(&engine, &client, &gate).await.into_iter().collect();
    let cancelled = waiting[0];
    // The stop follows at once: most times the keeper has not seen the request.
    sql(&client, &format!("select leasehold.cancel({cancelled}, 'test')")).await;
    let (mut events, task) = worker.ask_to_stop();
    let outcome = wait_for(&mut events, |event| match event {
        Event::Finished { job, outcome, .. } if *job == cancelled => Some(*outcome),
        _ => None,
    })
    .await;
    assert_eq!(outcome, Finished::Cancelled);
    gate.open.add_permits(1);
    ended(task).await.expect("a clean stop");
    let states = format!(
        "select count(*) from leasehold.jobs where id = {cancelled} and state = 'cancelled'"
    );
    assert_eq!(count(&client, &states).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a41_jobs_that_wait_for_a_slot_do_not_start_after_their_lease_was_lost() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '3 seconds'").await;
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let mut worker = patient(&engine, &gate);
    let waiting = claims_ahead(&engine, &client, &gate).await;
    // Nothing is claimed any more; the next renewals learn of the loss.
    sql(&client, "update leasehold_internal.queue set paused_at = now(), paused_by = 'test'").await;
    let leases =
        count(&client, "select count(distinct lease_generation) from leasehold.job where held")
            .await;
    assert_eq!(expire_leases(&client).await, 1 + AHEAD);
    for _ in 0..leases {
        worker.lost_a_lease().await;
    }
    gate.open.add_permits(1);
    let mut seen = Vec::new();
    wait_for(&mut worker.events, |event| {
        seen.push(event.clone());
        let lost =
            |event: &&Event| matches!(event, Event::Finished { outcome: Finished::Lost, .. });
        (seen.iter().filter(lost).count() as i64 == 1 + AHEAD).then_some(())
    })
    .await;
    assert!(started(&seen).is_disjoint(&waiting), "a job started without its lease");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a41_jobs_whose_lease_cannot_be_renewed_do_not_start() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '3 seconds'").await;
    enqueue_all(&engine).await;
    let gate = Gate::new();
    let mut worker = patient(&engine, &gate);
    let waiting = claims_ahead(&engine, &client, &gate).await;
    let leases =
        count(&client, "select count(distinct lease_generation) from leasehold.job where held")
            .await;
    sql(
        &client,
        "create function public.refuse() returns trigger language plpgsql as \
         'begin raise exception ''no renewal''; end'; \
         create trigger refuse before update of lease_expires_at on leasehold_internal.lease \
         for each row execute function public.refuse()",
    )
    .await;
    sql(&client, "update leasehold_internal.queue set paused_at = now(), paused_by = 'test'").await;
    for _ in 0..leases {
        worker.lost_a_lease().await;
    }
    gate.open.add_permits(1);
    let mut seen = Vec::new();
    wait_for(&mut worker.events, |event| {
        seen.push(event.clone());
        let ends = |event: &&Event| matches!(event, Event::Finished { .. });
        (seen.iter().filter(ends).count() as i64 == 1 + AHEAD).then_some(())
    })
    .await;
    assert!(started(&seen).is_disjoint(&waiting), "a job started without its lease");
    worker.stop().await;
}

/// Note 0 is on its last chance and waits at the second gate.
async fn last_chance(job: Note, State((gate, last)): State<(Gate, Gate)>) {
    match job.n {
        0 => last.pass().await,
        _ => mostly_fast(job, State(gate)).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a42_job_on_its_last_chance_waits_for_jobs_that_are_claimed_ahead() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    enqueue_all(&engine).await;
    let (gate, last) = (Gate::new(), Gate::new());
    let worker = engine.worker_with((gate.clone(), last.clone())).queue("default", 1).grace(LONG);
    let worker = worker.claim_ahead(AHEAD as usize, LONG).without_housekeeping();
    let mut worker = run(worker.handle(last_chance));
    let waiting = claims_ahead(&engine, &client, &gate).await;
    let urgent = Note { n: 0 }.draft().expect("a draft").priority(-100);
    let urgent = urgent.enqueue(&engine).await.expect("enqueued").id();
    sql(
        &client,
        &format!("update leasehold.job set lost_count = 2, attempts = 2 where id = {urgent}"),
    )
    .await;
    worker.seen();
    gate.open.add_permits(100);
    last.is_reached(1).await;
    // The ends of the others are recorded, and nothing is claimed.
    until("it is alone", async || count(&client, HELD).await == 1).await;
    let mut seen = worker.seen();
    let at =
        seen.iter().position(|event| matches!(event, Event::Started { job, .. } if *job == urgent));
    let after = seen.split_off(at.expect("it started") + 1);
    assert!(started(&seen).is_superset(&waiting), "those that were claimed ran first");
    assert!(started(&after).is_empty(), "another job started beside it");
    last.open.add_permits(1);
    until("all are done", async || completed(&client).await == ALL + 1).await;
    worker.stop().await;
}
