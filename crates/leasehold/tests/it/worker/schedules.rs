//! Jobs that schedules enqueue.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold::events::Event;
use leasehold::housekeeping::HousekeepingConfig;
use leasehold::schedule::{Missed, Schedule};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::fixture::{completed, count, jobs, number, run, sql, until};
use crate::support::{Note, engine};

/// Counts all jobs that were ever made, in one statement: a job moves from one table to the other.
const MADE: &str = "select (select count(*) from leasehold.job) \
    + (select coalesce(sum(cardinality(job_ids)), 0) from leasehold_internal.history)";

/// Returns a cron text with one slot per day, about twelve hours away.
async fn daily(client: &Client) -> String {
    let hour = "select extract(hour from now() at time zone 'UTC' + interval '12 hours')";
    format!("0 {} * * *", count(client, hour).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn d10_each_slot_fires_once_however_many_workers_declare_it() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let every_minute =
        Schedule::new("report", "* * * * *", "UTC", &Note { n: 1 }).expect("a schedule");
    let every_minute = every_minute.missed(Missed::All);
    let eager = HousekeepingConfig::default().reclaim_every(Duration::from_millis(10));
    let mut workers: Vec<_> = (0..3)
        .map(|_| {
            let worker = engine.worker().queue("default", 4).housekeeping(eager.clone());
            run(worker.schedule(every_minute.clone()).handle(async |_: Note| {}))
        })
        .collect();
    until("the schedule is declared", async || {
        count(&client, "select count(*) from leasehold_internal.schedule").await == 1
    })
    .await;
    // A slot may have come by now.
    sql(&client, "update leasehold_internal.schedule set paused_at = now(), paused_by = 'test'")
        .await;
    let before = count(&client, MADE).await;
    // An hour of slots passes.
    let minute = "(extract(epoch from next_slot) / 60)::bigint";
    let back = format!(
        "update leasehold_internal.schedule set paused_at = null, paused_by = null, \
         next_slot = date_trunc('minute', now()) - interval '1 hour' returning {minute}"
    );
    let began = number(&client, &back).await;
    let caught_up = "select count(*) from leasehold_internal.schedule where next_slot > now()";
    until("every slot has fired", async || count(&client, caught_up).await == 1).await;
    until("every job has run", async || jobs(&client).await == 0).await;
    for worker in &mut workers {
        let fired = |event: &Event| matches!(event, Event::ScheduleFired { .. });
        println!("fired by one worker: {}", worker.seen().iter().filter(|e| fired(e)).count());
    }
    for worker in workers {
        worker.stop().await;
    }
    let slots =
        number(&client, &format!("select {minute} from leasehold_internal.schedule")).await - began;
    // The job of a slot that came due at the very end may still wait: no worker is left to run it.
    assert_eq!(count(&client, MADE).await - before, slots);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedule_with_missed_slots_runs_once_for_all_of_them() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let cron = daily(&client).await;
    let schedule = Schedule::new("report", cron, "UTC", &Note { n: 1 }).expect("a schedule");
    let eager = HousekeepingConfig::default().reclaim_every(Duration::from_millis(10));
    let worker = engine.worker().queue("default", 4).housekeeping(eager).schedule(schedule);
    let mut worker = run(worker.handle(async |_: Note| {}));
    until("the schedule is declared", async || {
        count(&client, "select count(*) from leasehold_internal.schedule").await == 1
    })
    .await;
    sql(
        &client,
        "update leasehold_internal.schedule set next_slot = next_slot - interval '2000 days'",
    )
    .await;
    worker.finished(1).await;
    worker.stop().await;
    assert_eq!(completed(&client).await, 1);
    let noted = "select count(*) from leasehold_internal.schedule where missed_slots >= 999 and next_slot > now() and last_job_id is not null";
    assert_eq!(count(&client, noted).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_slot_is_the_next_one_by_the_clock_of_the_database() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    // The clock of this process is a year behind the time that its statements see.
    sql(
        &client,
        "create schema ahead;
         create function ahead.statement_timestamp() returns timestamptz language sql as
             $$ select pg_catalog.statement_timestamp() + interval '1 year' $$;
         do $$ begin
             execute format('alter database %I set search_path = ahead, pg_catalog, public', current_database());
         end $$",
    )
    .await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let cron = daily(&client).await;
    let schedule = Schedule::new("daily", cron, "UTC", &Note { n: 1 }).expect("a schedule");
    let worker = engine.worker().schedule(schedule).handle(async |_: Note| {});
    let tally = worker.run_until_idle().await.expect("nothing is due");
    assert_eq!(tally.completed, 0, "no slot has passed since it was declared");
    let ahead = "select count(*) from leasehold_internal.schedule \
                 where next_slot > now() + interval '11 months' and missed_slots = 0";
    assert_eq!(count(&client, ahead).await, 1);
}
