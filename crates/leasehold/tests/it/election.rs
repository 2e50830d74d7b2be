//! The election of a housekeeper: it saves work, and nothing depends on it.

use std::time::Duration;

use leasehold::housekeeping::HousekeepingConfig;
use leasehold::schedule::{Missed, Schedule};
use leasehold_testing::TestDatabase;

use crate::fixture::{back_date_leases, completed, count, jobs, number, run as start, sql, until};
use crate::sql::{Sql, claim, one, pid, run};
use crate::support::{Note, engine};

/// The keys of the election's advisory lock.
const ELECTION: &str = "7305, 2";

fn eager() -> HousekeepingConfig {
    HousekeepingConfig::default().reclaim_every(Duration::from_millis(10))
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_d4_lost_jobs_are_reclaimed_while_another_session_holds_the_election() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    // The session of a dead housekeeper, or a program that uses the same lock keys.
    let stranger = database.connect_directly().await;
    sql(&stranger, &format!("select pg_advisory_lock({ELECTION})")).await;
    engine.enqueue_many((0..20).map(|n| Note { n })).await.expect("enqueued");
    sql(&client, "select leasehold.claim('dead', claim_size => 20)").await;
    back_date_leases(&client).await;
    let worker = start(
        engine.worker().queue("default", 10).housekeeping(eager()).handle(async |_: Note| {}),
    );
    until("every job is done", async || completed(&client).await == 20).await;
    worker.stop().await;
    let held = "select count(*) from pg_locks where locktype = 'advisory' and granted \
         and classid = 7305 \
         and database = (select oid from pg_database where datname = current_database())";
    assert_eq!(count(&client, held).await, 1, "the stranger still has it");
}

#[tokio::test]
async fn d2_sql_claim_reclaims_lost_jobs_when_no_housekeeper_runs() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(3).await;
    let dead = claim(&sql.client, "dead", 3).await;
    sql.overdue(dead.generation).await;
    let next = claim(&sql.client, "next", 3).await;
    let mut got = next.ids;
    while got.len() < 3 {
        // `leasehold.claim` takes lost jobs one at a time.
        got.extend(claim(&sql.client, "next", 3).await.ids);
    }
    got.sort_unstable();
    assert_eq!(got, ids);
}

#[tokio::test]
async fn d3_election_lock_ends_with_its_statement_or_its_connection() {
    let sql = Sql::new().await;
    let lent = sql.actor().await;
    assert!(one::<bool>(&lent, "select elected from leasehold_internal.reclaim()", &[]).await);
    let held = "select count(*) from pg_locks where locktype = 'advisory' and pid = $1";
    let lent_pid = pid(&lent).await;
    assert_eq!(sql.one::<i64>(held, &[&lent_pid]).await, 0, "its next user holds no lock");
    // A housekeeper loses its connection in the middle of its duty.
    run(&lent, "begin; select leasehold_internal.reclaim()").await;
    assert_eq!(sql.one::<i64>(held, &[&lent_pid]).await, 1);
    sql.run(&format!("select pg_terminate_backend({lent_pid})")).await;
    crate::sql::until(
        &sql.client,
        "select not exists (select from pg_stat_activity where pid = $1)",
        &[&lent_pid],
    )
    .await;
    assert!(sql.one::<bool>("select elected from leasehold_internal.reclaim()", &[]).await);
}

/// Terminates every other client session of this database.
const CUT_OFF: &str = "select pg_terminate_backend(pid) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";

#[tokio::test(flavor = "multi_thread")]
async fn d3_d10_housekeepers_that_lose_their_connections_fire_each_slot_once() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    let schedule = Schedule::new("report", "* * * * *", "UTC", &Note { n: 1 }).expect("a schedule");
    let schedule = schedule.missed(Missed::All);
    // Two hours of slots have passed. The row is stored before a worker starts: a slot that comes
    // due between the declaration and a change of it would fire twice.
    let minute = "(extract(epoch from next_slot) / 60)::bigint";
    let store = format!(
        "insert into leasehold_internal.schedule (name, cron, job_name, kwargs, missed, next_slot) \
         values ('report', '* * * * *', 'note', '{{\"n\": 1}}', 'all', \
                 date_trunc('minute', now()) - interval '2 hours') returning {minute}"
    );
    let began = number(&client, &store).await;
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let worker = engine.worker().queue("default", 4).housekeeping(eager());
            start(worker.schedule(schedule.clone()).handle(async |_: Note| {}))
        })
        .collect();
    let next = format!("select {minute} from leasehold_internal.schedule");
    until("the first slot has fired", async || number(&client, &next).await > began).await;
    let mut cuts = 0;
    until("every slot has fired", async || {
        let left = "select count(*) from leasehold_internal.schedule where next_slot <= now()";
        let caught_up = count(&client, left).await == 0;
        if !caught_up && cuts < 20 {
            cuts += 1;
            sql(&client, CUT_OFF).await;
        }
        caught_up
    })
    .await;
    until("every job has run", async || jobs(&client).await == 0).await;
    for worker in workers {
        worker.stop().await;
    }
    let slots = number(&client, &next).await - began;
    println!("cut off {cuts} times during {slots} slots");
    // The job of a slot that came due during the stop may still wait: no worker is left to run it.
    assert_eq!(completed(&client).await + jobs(&client).await, slots);
}
