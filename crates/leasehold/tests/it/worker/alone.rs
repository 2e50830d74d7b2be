//! Jobs on their last chance, lost jobs and slow queues: how they affect other jobs.

use std::sync::Arc;

use leasehold::events::Event;
use leasehold::{Enqueue, Finished, JobId, State};
use leasehold_testing::TestDatabase;
use tokio::sync::Semaphore;

use crate::fixture::{completed, count, run, sql, until};
use crate::support::{Note, engine};

const HELD: &str = "select count(*) from leasehold.job where held";

/// Notes with a negative number wait for the gate.
async fn gated(job: Note, State(gate): State<Arc<Semaphore>>) {
    if job.n < 0 {
        let _ = gate.acquire().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a30_nothing_is_claimed_while_a_job_on_its_last_chance_runs() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let gate = Arc::new(Semaphore::new(0));
    let alone = Note { n: -1 }.draft().expect("a draft").queue("slow");
    alone.enqueue(&engine).await.expect("enqueued");
    sql(&client, "update leasehold.job set lost_count = 2, attempts = 2").await;
    let worker = engine.worker_with(Arc::clone(&gate)).queue("slow", 5).queue("default", 50);
    let first = run(worker.handle(gated));
    until("it runs", async || count(&client, HELD).await == 1).await;
    engine.enqueue_many((1..40).map(|n| Note { n })).await.expect("enqueued");
    // Another worker gets all of them, in the queue of the last chance and in the other one.
    for n in 100..110 {
        let draft = Note { n }.draft().expect("a draft").queue("slow");
        draft.enqueue(&engine).await.expect("enqueued");
    }
    let worker = engine.worker_with(Arc::clone(&gate)).queue("slow", 5).queue("default", 50);
    let second = run(worker.handle(gated));
    until("all others are done", async || completed(&client).await == 49).await;
    assert_eq!(count(&client, HELD).await, 1, "the last chance still runs");
    gate.add_permits(1);
    until("it is done", async || completed(&client).await == 50).await;
    // Afterwards the first worker claims again.
    second.stop().await;
    Note { n: 7 }.enqueue(&engine).await.expect("enqueued");
    until("the next is done", async || completed(&client).await == 51).await;
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a28_urgent_job_starts_before_the_lost_ones_of_a_dead_worker() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..200).map(|n| Note { n })).await.expect("enqueued");
    sql(&client, "update leasehold.job set lost_count = 1, attempts = 1").await;
    let draft = Note { n: 1000 }.draft().expect("a draft").priority(-100);
    let urgent = draft.enqueue(&engine).await.expect("enqueued").id();
    let mut worker = run(engine.worker().queue("default", 1).handle(async |_: Note| {}));
    let first: JobId = worker.finished(1).await[0].0;
    assert_eq!(first, urgent);
    until("all are done", async || completed(&client).await == 201).await;
    worker.stop().await;
    let open = "select count(*) from leasehold_internal.lease where ended_at is null";
    assert_eq!(count(&client, open).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a28_lost_jobs_are_finished_many_at_a_time() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..500).map(|n| Note { n })).await.expect("enqueued");
    sql(&client, "update leasehold.job set lost_count = 1, attempts = 1").await;
    sql(
        &client,
        "create table public.calls (n int); create function public.note_call() returns trigger language plpgsql as \
         'begin insert into public.calls values (1); return null; end'; \
         create trigger note_call after delete on leasehold.job \
         for each statement execute function public.note_call()",
    )
    .await;
    let worker = run(engine.worker().queue("default", 500).handle(async |_: Note| {}));
    until("all are done", async || completed(&client).await == 500).await;
    worker.stop().await;
    let calls = count(&client, "select count(*) from calls").await;
    assert!(calls < 250, "{calls} statements for 500 jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a35_claim_that_hangs_in_one_queue_delays_no_other_queue() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let holder = database.connect_directly().await;
    sql(
        &holder,
        "create function public.stall() returns trigger language plpgsql set lock_timeout = 0 as \
         'begin if new.held and new.queue = ''slow'' then perform pg_advisory_xact_lock(41); end if; \
          return new; end'; \
         create trigger stall before update on leasehold.job for each row execute function public.stall(); \
         select pg_advisory_lock(41)",
    )
    .await;
    let draft = Note { n: 0 }.draft().expect("a draft").queue("slow");
    draft.enqueue(&engine).await.expect("enqueued");
    let worker = engine.worker().queue("slow", 1).queue("default", 1);
    let mut worker = run(worker.allow_other_queues().handle(async |_: Note| {}));
    let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                 and wait_event_type = 'Lock' and query like '%claim_next%'";
    until("the claim hangs", async || count(&holder, waits).await == 1).await;
    for n in 1..=3 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
        until("the other queue continues", async || completed(&client).await == n).await;
    }
    assert_eq!(count(&holder, waits).await, 1, "it still hangs");
    sql(&holder, "select pg_advisory_unlock(41)").await;
    until("all are done", async || completed(&client).await == 4).await;
    // The claim was not abandoned: it got its reply.
    let recovered = |event: &Event| matches!(event, Event::ClaimRecovered { .. });
    assert!(!worker.seen().iter().any(recovered));
    worker.stop().await;
    let again = "select count(*) from leasehold_internal.history, unnest(attempts) a where a > 1";
    assert_eq!(count(&client, again).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a31_more_priorities_than_are_remembered_are_worked_off_in_order() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(
        &client,
        "insert into leasehold.job (name, kwargs, priority) \
         select 'note', jsonb_build_object('n', i), i from generate_series(1, 700) i",
    )
    .await;
    // One at a time: a worker that has to scan for each of them would take more than a minute.
    let worker = engine.worker().queue("default", 1).poll_every(std::time::Duration::from_secs(30));
    let worker = worker.handle(async |_: Note| {});
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    until("all are done", async || completed(&client).await == 700).await;
    drop(stop);
    running.await.expect("no panic").expect("a clean stop");
    let late = "select count(*) from (select h.lease_generation, min(h.n) as low, \
                       lag(max(h.n)) over (order by h.lease_generation) as before \
                  from (select lease_generation, unnest(job_ids) as n from leasehold_internal.history) h \
                 group by h.lease_generation) g where g.low < g.before";
    assert_eq!(count(&client, late).await, 0, "claims went up the priorities");
}

#[tokio::test(flavor = "multi_thread")]
async fn a35_finish_that_hangs_in_one_queue_delays_no_other_queue() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let holder = database.connect_directly().await;
    sql(
        &holder,
        "create function public.stall() returns trigger language plpgsql set lock_timeout = 0 as \
         'begin perform pg_advisory_xact_lock(43); return old; end'; \
         create trigger stall before delete on leasehold.job for each row \
         when (old.queue = 'a' and old.kwargs ->> 'n' = '0') execute function public.stall(); \
         select pg_advisory_lock(43)",
    )
    .await;
    let enqueue = async |queue: &str, n: i64| {
        let draft = Note { n }.draft().expect("a draft").queue(queue);
        draft.enqueue(&engine).await.expect("enqueued");
    };
    enqueue("a", 0).await;
    let others = ["b", "c", "d", "e", "f"];
    let worker = others.iter().fold(engine.worker().queue("a", 2), |w, other| w.queue(*other, 1));
    let mut worker = run(worker.allow_other_queues().handle(async |_: Note| {}));
    let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                 and wait_event_type = 'Lock' and query like '%complete_many%'";
    until("the finish hangs", async || count(&holder, waits).await == 1).await;
    for round in 1..=3_i64 {
        for other in others {
            enqueue(other, round).await;
        }
        until("the others", async || completed(&client).await == 5 * round).await;
    }
    // Its own queue continues on another session.
    enqueue("a", 1).await;
    until("the next of the queue", async || completed(&client).await == 16).await;
    assert_eq!(count(&holder, waits).await, 1, "it still hangs");
    sql(&holder, "select pg_advisory_unlock(43)").await;
    until("all are done", async || completed(&client).await == 17).await;
    let lost = |event: &Event| matches!(event, Event::Finished { finished: Finished::Lost, .. });
    assert!(!worker.seen().iter().any(lost));
    worker.stop().await;
}
