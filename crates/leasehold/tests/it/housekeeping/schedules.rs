//! Schedules that the code declares, or no longer declares.

use leasehold::schedule::Schedule;
use leasehold_testing::TestDatabase;

use super::eager;
use crate::fixture::{count, run, sql, until};
use crate::sql::{Sql, all};
use crate::support::{Note, engine};

#[tokio::test(flavor = "multi_thread")]
async fn d17_schedule_that_no_worker_declares_is_reported_and_still_fires() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    let schedule =
        |name: &str| Schedule::new(name, "0 0 1 1 *", "UTC", &Note { n: 1 }).expect("a schedule");
    let worker = engine.worker().name("mailer").housekeeping(eager());
    let worker = run(worker
        .schedule(schedule("kept"))
        .schedule(schedule("dropped"))
        .handle(async |_: Note| {}));
    until("both are declared", async || {
        count(
            &client,
            "select count(*) from leasehold_internal.schedule where declared_by = 'mailer'",
        )
        .await
            == 2
    })
    .await;
    worker.stop().await;
    // A day and a deploy later.
    sql(
        &client,
        "update leasehold_internal.schedule set last_declared_at = now() - interval '25 hours'; \
         insert into leasehold_internal.schedule (name, cron, job_name, next_slot) values ('by_hand', '0 0 1 1 *', 'x', now() + interval '1 day')",
    )
    .await;
    let mut worker = run(engine
        .worker()
        .name("mailer")
        .housekeeping(eager())
        .schedule(schedule("kept"))
        .handle(async |_: Note| {}));
    let undeclared = "select name from leasehold_internal.undeclared_schedules()";
    until("the other is known as undeclared", async || {
        all::<String>(&client, undeclared, &[]).await == ["dropped"]
    })
    .await;
    sql(&client, "update leasehold_internal.schedule set next_slot = now() - interval '1 minute' where name = 'dropped'").await;
    worker.finished(1).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_retirement_removes_only_declared_schedules() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    sql(
        &client,
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, declared_by, last_declared_at) values \
         ('declared', '0 0 1 1 *', 'x', now() + interval '1 day', 'mailer', now()), \
         ('by_hand', '0 0 1 1 *', 'x', now() + interval '1 day', null, null)",
    )
    .await;
    let worker = engine.worker().name("mailer").housekeeping(eager());
    let worker =
        worker.retire_schedule("declared").retire_schedule("by_hand").handle(async |_: Note| {});
    let worker = run(worker);
    until("the declared one is gone", async || {
        count(&client, "select count(*) from leasehold_internal.schedule").await == 1
    })
    .await;
    worker.stop().await;
    let left: Vec<String> = all(&client, "select name from leasehold_internal.schedule", &[]).await;
    assert_eq!(left, ["by_hand"]);
    let audit: Vec<String> =
        all(&client, "select actor || ' ' || action || ' ' || subject from leasehold.audit", &[])
            .await;
    assert_eq!(audit, ["mailer retire schedule declared"]);
}

#[tokio::test]
async fn d17_paused_schedule_is_not_reported_as_undeclared() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, declared_by, last_declared_at) \
         values ('s', '0 0 1 1 *', 'x', now() + interval '1 day', 'mailer', now() - interval '2 days')",
    )
    .await;
    let undeclared = "select count(*) from leasehold_internal.undeclared_schedules()";
    assert_eq!(sql.one::<i64>(undeclared, &[]).await, 1);
    sql.run("update leasehold_internal.schedule set paused_at = now(), paused_by = 'ann'").await;
    assert_eq!(sql.one::<i64>(undeclared, &[]).await, 0, "it fires nothing");
}
