//! A duty that fails stops no other, and reports its error.

use leasehold::events::Event;
use leasehold::schedule::{Schedule, ScheduleError};
use leasehold::{Enqueue, Job, WorkerError};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use super::{done_but, eager, litter};
use crate::fixture::{count, run, sql, until};
use crate::logs::Logs;
use crate::sql::{Sql, refused};
use crate::support::{Note, engine, wait_for};

/// A job without arguments: a unit struct.
#[derive(Debug, Job, Serialize, Deserialize)]
#[job(name = "nightly")]
struct Nightly;

/// Waits until a duty has failed five times, and returns its error.
async fn failing(worker: &mut crate::fixture::Running, wanted: &str) -> String {
    wait_for(&mut worker.events, |event| match event {
        Event::DutyFailing { duty, error, times, .. } if duty == wanted && *times >= 5 => {
            Some(error.clone())
        }
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_schedule_that_cannot_fire_stops_no_other_duty() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    litter(&client).await;
    // As an earlier release stored them: before the good schedule, and more than one statement reads.
    sql(
        &client,
        "alter table leasehold_internal.schedule drop constraint schedule_kwargs_object; \
         insert into leasehold_internal.schedule (name, cron, job_name, kwargs, next_slot) \
         select 'bad' || i, '* * * * *', 'nightly', 'null', now() - interval '1 hour' from generate_series(1, 150) i",
    )
    .await;
    let mut worker = run(engine.worker().housekeeping(eager()).handle(async |_: Note| {}));
    done_but(&client, "nothing").await;
    let error = failing(&mut worker, "fire schedule bad1").await;
    assert!(error.contains("job_kwargs_object"), "{error}");
    worker.stop().await;
    assert_eq!(
        count(&client, "select count(*) from leasehold.job where name = 'nightly'").await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_duty_that_fails_stops_no_other_duty() {
    for (broken, function, named) in [
        ("reclaim", "reclaim(up_to int, anyway boolean)", "reclaim leases"),
        ("walk_jobs", "walk_jobs(every interval, up_to int)", "walk over jobs"),
        ("extend_history", "extend_history(days int)", "prune extend_history"),
        (
            "prune_keys",
            "prune_keys(up_to int, keep interval, after text, out removed int, out more boolean, out reached text)",
            "prune keys",
        ),
    ] {
        let database = TestDatabase::new().await;
        let (engine, client) = (engine(&database).await, database.connect_directly().await);
        litter(&client).await;
        let same = format!("leasehold_internal.{}", function.split('(').next().unwrap_or_default());
        let text = format!(
            "do $do$ declare body text := pg_get_functiondef('{same}'::regproc); begin \
                 execute regexp_replace(body, 'AS \\$function\\$.*', \
                     'AS $function$ begin raise exception ''broken on purpose''; end $function$'); end $do$"
        );
        sql(&client, &text).await;
        let mut worker = run(engine.worker().housekeeping(eager()).handle(async |_: Note| {}));
        done_but(&client, broken).await;
        assert_eq!(failing(&mut worker, named).await, "broken on purpose");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_unit_struct_is_enqueued_scheduled_and_handled() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    Nightly.enqueue(&engine).await.expect("enqueued");
    engine.enqueue_many([Nightly, Nightly]).await.expect("enqueued by COPY");
    let schedule = Schedule::new("nightly", "0 0 1 1 *", "UTC", &Nightly).expect("a schedule");
    let worker = engine.worker().housekeeping(eager()).schedule(schedule);
    let mut worker = run(worker.handle(async |_: Nightly| {}));
    worker.finished(3).await;
    until("the schedule is stored", async || {
        count(&client, "select count(*) from leasehold_internal.schedule where kwargs = '{}'").await
            == 1
    })
    .await;
    sql(&client, "update leasehold_internal.schedule set next_slot = now() - interval '1 minute'")
        .await;
    worker.finished(1).await;
    worker.stop().await;
    assert_eq!(crate::fixture::completed(&client).await, 4);
}

#[tokio::test]
async fn d14_schedule_is_refused_if_its_job_would_be() {
    #[derive(Job, Serialize, Deserialize)]
    #[job(name = "large")]
    struct Large {
        text: String,
    }
    let large = Large { text: "x".repeat(300_000) };
    let refusal = Schedule::new("large", "* * * * *", "UTC", &large).expect_err("too large");
    assert!(matches!(refusal, ScheduleError::Job(_)), "{refusal}");
    let good = Schedule::new("good", "* * * * *", "UTC", &Note { n: 1 }).expect("a schedule");
    let (mut no_object, mut long_name) = (good.clone(), good);
    no_object.kwargs = serde_json::json!([1]);
    long_name.job_name = "n".repeat(201);
    for bad in [no_object, long_name] {
        assert!(matches!(bad.check(), Err(ScheduleError::Job(_))), "{bad:?}");
        // Its fields are public, so the worker checks the schedule again when it starts.
        let database = TestDatabase::new().await;
        let worker = engine(&database).await.worker().schedule(bad).handle(async |_: Note| {});
        let ended = worker.run_until_idle().await;
        assert!(matches!(ended, Err(WorkerError::Config(_))), "{ended:?}");
    }
    let sql = Sql::new().await;
    for (columns, values) in [
        ("kwargs", "'null'"),
        ("kwargs", "'[]'"),
        (
            "kwargs",
            "jsonb_build_object('a', (select string_agg(md5(i::text), '') from generate_series(1, 9000) i))",
        ),
        ("queue", "''"),
        ("queue", "repeat('q', 65)"),
        ("tag", "repeat('t', 201)"),
    ] {
        let text = format!(
            "insert into leasehold_internal.schedule (name, cron, job_name, next_slot, {columns}) \
             values ('s', '* * * * *', 'x', now(), {values})"
        );
        assert_eq!(refused(&sql.client, &text, &[]).await.0, "23514", "{columns} {values}");
    }
    let no_name = "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) values ('s', '* * * * *', '', now())";
    assert_eq!(refused(&sql.client, no_name, &[]).await.0, "23514");
}

#[tokio::test(flavor = "multi_thread")]
async fn d23_schedule_with_a_slot_beyond_the_calendar_stops_no_housekeeping() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    litter(&client).await;
    sql(
        &client,
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) \
         values ('never', '* * * * *', 'nightly', '-infinity'), ('ever', '* * * * *', 'nightly', 'infinity'), \
                ('far', '* * * * *', 'nightly', '20000-01-01')",
    )
    .await;
    sql(
        &client,
        "update leasehold_internal.schedule set moved_at = now() + interval '2 hours' where name = 'far'",
    )
    .await;
    let worker = run(engine.worker().housekeeping(eager()).handle(async |_: Note| {}));
    done_but(&client, "nothing").await;
    worker.stop().await;
    let fired = "select count(*) from leasehold.job where name = 'nightly'";
    assert_eq!(count(&client, fired).await, 0);
}

#[tokio::test]
async fn a36_burials_by_housekeeping_are_errors_in_the_log() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    sql(
        &client,
        "insert into leasehold.job (name, max_attempts) values ('lost', 1); \
         select leasehold.claim('dead'); \
         update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour'; \
         insert into leasehold.job (name, scheduled_at, expires_at) \
         values ('late', now() - interval '1 hour', now())",
    )
    .await;
    let logs = Logs::collect();
    let worker = run(engine.worker().handle(async |_: Note| {}));
    until("both are logged", async || {
        logs.has("ERROR", "the worker of their last attempt")
            && logs.has("ERROR", "not started before they expired")
    })
    .await;
    worker.stop().await;
    assert!(logs.has("ERROR", "queue=\"default\" jobs=1"), "{}", logs.text());
    assert_eq!(count(&client, "select count(*) from leasehold_internal.dead_job").await, 2);
}
