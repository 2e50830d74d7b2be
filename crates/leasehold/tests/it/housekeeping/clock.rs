//! The database's clock jumps: nothing waits for it to catch up, and nothing is finished twice.

use leasehold_testing::TestDatabase;

use super::eager;
use crate::fixture::{count, run, sql, until};
use crate::sql::{self as statements, Sql, one};
use crate::support::{Note, engine};

#[tokio::test]
async fn d16_walk_continues_after_the_clock_went_back() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 hour', now())").await;
    sql.run("update leasehold_internal.duty set ran_at = now() + interval '1 day', cooldown = '1 hour' where name = 'walk_jobs'").await;
    assert_eq!(sql.one::<i32>("select expired from leasehold_internal.walk_jobs()", &[]).await, 1);
    // A cooldown that has just begun is kept: no clock went back.
    sql.run(
        "update leasehold_internal.duty set ran_at = now(), cooldown = '1 hour' where name = 'walk_jobs'",
    )
    .await;
    sql.run("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 hour', now())").await;
    assert_eq!(sql.one::<i32>("select expired from leasehold_internal.walk_jobs()", &[]).await, 0);
}

#[tokio::test]
async fn d16_sweep_is_due_after_the_clock_went_back() {
    let sql = Sql::new().await;
    sql.run("create table loans (id bigint primary key, ends_at timestamptz, state text, at timestamptz, claim bigint)").await;
    sql.run(
        "select leasehold_internal.declare_sweep('loans', 'public.loans', 'id', 'bigint', 'ends_at', 'state', 'a', 'b', 'c', \
             'at', 'claim', 10, 5, '1 minute', '1 minute', 100, null, null, '1 second', now())",
    )
    .await;
    let due = "select due from leasehold_internal.begin_sweep('loans')";
    sql.run(
        "update leasehold_internal.sweep set run_started_at = now(), run_ended_at = now(), \
                next_run_at = now() + interval '1 day'",
    )
    .await;
    assert!(!sql.one::<bool>(due, &[]).await, "a run that is far away on purpose");
    sql.run("update leasehold_internal.sweep set run_ended_at = now() + interval '1 day'").await;
    assert!(sql.one::<bool>(due, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn d16_schedule_that_was_moved_by_a_clock_ahead_fires_when_its_slot_comes() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    // Fired a year ahead of now, as if the clock had been a year ahead for a moment.
    sql(
        &client,
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, last_slot, moved_at) values \
         ('daily', '0 3 * * *', 'note', now() + interval '366 days', now() + interval '365 days', now() + interval '365 days'), \
         ('yearly', '0 3 1 1 *', 'note', now() + interval '200 days', now() - interval '165 days', now() - interval '165 days')",
    )
    .await;
    let worker = run(engine.worker().housekeeping(eager()).handle(async |_: Note| {}));
    until("the slot of the daily one is near again", async || {
        let near = "select count(*) from leasehold_internal.schedule where name = 'daily' \
                    and next_slot between now() and now() + interval '25 hours' and moved_at <= now()";
        count(&client, near).await == 1
    })
    .await;
    worker.stop().await;
    let kept = "select count(*) from leasehold_internal.schedule where name = 'yearly' and next_slot > now() + interval '199 days'";
    assert_eq!(count(&client, kept).await, 1, "a slot that is far away on purpose stays");
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 0, "no slot has come");
}

#[tokio::test]
async fn g2_clock_that_jumps_ahead_costs_extra_runs_and_no_second_finish() {
    let sql = Sql::new().await;
    statements::run(
        &sql.client,
        "insert into leasehold.job (name) select 'note' from generate_series(1, 50)",
    )
    .await;
    let claimed = "select id, lease_generation from leasehold.claim('w', claim_size => 50)";
    let rows = sql.client.query(claimed, &[]).await.expect("claimed");
    let (ids, old): (Vec<i64>, i64) = (rows.iter().map(|row| row.get(0)).collect(), rows[0].get(1));
    // Rows that are a day older look like a clock that is a day ahead.
    statements::run(
        &sql.client,
        "update leasehold_internal.lease set claimed_at = claimed_at - interval '1 day', \
                lease_expires_at = lease_expires_at - interval '1 day'; \
         update leasehold_internal.server_start set since = since - interval '2 days'",
    )
    .await;
    statements::run(&sql.client, "select leasehold_internal.reclaim_leases()").await;
    let state = "select count(*), max(attempts) from leasehold.job where not held";
    let row = sql.client.query_one(state, &[]).await.expect("jobs");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (50, 1), "all of them come back");
    let late = "select count(*) from leasehold.complete_many($1, $2)";
    assert_eq!(
        one::<i64>(&sql.client, late, &[&ids, &old]).await,
        0,
        "the former holder is refused"
    );
    let done = "select count(*) from (select leasehold.complete_many(array_agg(id), lease_generation) \
                  from leasehold.claim('w', claim_size => 1) group by lease_generation) d";
    assert_eq!(one::<i64>(&sql.client, done, &[]).await, 1);
}
