//! Doctor's checks of samples, alarms, canaries and sessions that hold back vacuum.

use leasehold::measure;
use leasehold_testing::minutes::{age, pass_minute};

use super::{advice, check, doctor, find, is};
use crate::fixture::Fixture;

/// Registers a live worker that started `started` ago.
async fn a_worker(fixture: &Fixture, started: &str) {
    let register = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['mail'], '{}', 1, 0, false)";
    fixture.sql(register).await;
    fixture
        .sql(&format!(
            "update leasehold_internal.worker set started_at = now() - interval '{started}'"
        ))
        .await;
    fixture.keep_workers_alive().await;
}

#[tokio::test]
async fn doctor_fails_when_samples_are_missing_or_vanish() {
    let (name, fixture) = ("samples", Fixture::new().await);
    is(&check(&fixture, name).await, "ok", "the first worker takes them");
    a_worker(&fixture, "1 second").await;
    is(&check(&fixture, name).await, "ok", "has just started");
    a_worker(&fixture, "10 minutes").await;
    let found = find(&doctor(&fixture).await.expect(1), name);
    is(&found, "fail", "no sample was taken yet, although workers run");
    assert!(advice(&found).contains("--no-housekeeping"), "{found}");
    pass_minute(&fixture.client).await;
    is(&check(&fixture, name).await, "ok", "the last sample was taken");

    age(&fixture.client, "10 minutes").await;
    // A sample carries the beginning of its minute: without this it could be up to 11 minutes old.
    fixture.sql("update leasehold_internal.duty set ran_at = now() - interval '10 minutes' where name = 'measure'",
    )
    .await;
    a_worker(&fixture, "10 minutes").await;
    is(&check(&fixture, name).await, "fail", "no sample was taken for 10m");
    fixture
        .sql("update leasehold_internal.worker set last_seen_at = now() - interval '1 hour'")
        .await;
    is(&check(&fixture, name).await, "warn", "and no worker runs");
    // A sample is taken, and a trigger drops it.
    fixture.sql("create function public.swallow() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger swallow before insert on leasehold_internal.measure for each row execute function public.swallow()",
    )
    .await;
    measure::sample(&fixture.client).await.unwrap().expect("a sample");
    is(&check(&fixture, name).await, "fail", "leasehold_internal.measure does not have them");
}

#[tokio::test]
async fn doctor_fails_when_samples_are_not_evaluated() {
    let (name, fixture) = ("evaluation", Fixture::new().await);
    is(&check(&fixture, name).await, "ok", "no sample to evaluate yet");
    let only_sampled = async || fixture.sql("select leasehold_internal.sample()").await;
    only_sampled().await;
    // The sample has just been taken.
    is(&check(&fixture, name).await, "ok", "no sample to evaluate yet");
    age(&fixture.client, "6 minutes").await;
    only_sampled().await;
    let found = find(&doctor(&fixture).await.expect(1), name);
    is(&found, "fail", "were never evaluated");
    assert!(advice(&found).contains("leasehold workers"), "{found}");
    pass_minute(&fixture.client).await;
    is(&check(&fixture, name).await, "ok", "was evaluated");
    for _ in 0..4 {
        age(&fixture.client, "1 minute").await;
        only_sampled().await;
    }
    // Between the last two of them a minute of the real clock may have ended, too.
    let found = check(&fixture, name).await;
    is(&found, "fail", "samples of the last");
    is(&found, "fail", "were not evaluated");
}

#[tokio::test]
async fn doctor_warns_of_active_alarms_and_late_notifications() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "alarms").await, "ok", "no active alarms");
    is(&check(&fixture, "notifications").await, "ok", "no webhook or command is registered");
    fixture
        .sql("select leasehold_internal.declare_alarm_receiver('leasehold.alarm.webhook')")
        .await;
    is(&check(&fixture, "notifications").await, "ok", "leasehold.alarm.webhook");
    fixture.sql("insert into leasehold.job (name, scheduled_at, expires_at, queue) values ('late', now() - interval '1 minute', now(), 'mail'); select leasehold_internal.expire_jobs()").await;
    pass_minute(&fixture.client).await;
    let found = check(&fixture, "alarms").await;
    is(&found, "warn", "1 expired_jobs mail, for");
    assert!(advice(&found).contains("leasehold alarms ack"), "{found}");
    is(&check(&fixture, "notifications").await, "ok", "leasehold.alarm.webhook");
    fixture.run(&["alarms", "ack", "1", "--why", "looking"]).await.expect(0);
    is(&check(&fixture, "alarms").await, "ok", "1 expired_jobs mail (acknowledged)");

    fixture.sql("update leasehold.job set enqueued_at = now() - interval '11 minutes'").await;
    let found = check(&fixture, "notifications").await;
    is(&found, "warn", "1 notifications wait, the oldest for 11m");
    assert!(advice(&found).contains("leasehold alarms test"), "{found}");
    fixture.sql("delete from leasehold.job; update leasehold_internal.alarm_receiver set seen_at = now() - interval '3 hours'").await;
    is(
        &check(&fixture, "notifications").await,
        "warn",
        "leasehold.alarm.webhook: its process was last seen 3h",
    );
}

#[tokio::test]
async fn doctor_distinguishes_a_stopped_producer_from_a_stopped_worker() {
    let (name, fixture) = ("canaries", Fixture::new().await);
    is(&check(&fixture, name).await, "ok", "no queue has --min-completed set");
    let watch = ["alarms", "watch", "mail", "--min-completed", "1", "--new-queue"];
    fixture.run(&watch).await.expect(0);
    is(&check(&fixture, name).await, "ok", "mail has no canary");
    let canary = async || {
        fixture.sql("select leasehold.enqueue('leasehold.canary', '{}', 'mail', tag => 'leasehold.canary')",
        )
        .await;
    };
    let completed = async || {
        fixture.sql("select leasehold.complete(c.id, c.lease_generation) from leasehold.claim('w', 'mail', 1) c").await;
    };
    canary().await;
    is(&check(&fixture, name).await, "ok", "mail has its first canary");
    completed().await;
    pass_minute(&fixture.client).await;
    is(&check(&fixture, name).await, "ok", "mail is alive");
    for _ in 0..6 {
        pass_minute(&fixture.client).await;
    }
    let found = check(&fixture, name).await;
    is(&found, "warn", "mail: no canary for");
    assert!(advice(&found).contains("leasehold alarms unwatch"), "{found}");
    canary().await;
    age(&fixture.client, "6 minutes").await;
    let found = check(&fixture, name).await;
    is(&found, "warn", "mail: a canary has waited for 6m");
    assert!(advice(&found).contains("start a worker"), "{found}");
    completed().await;
    is(&check(&fixture, name).await, "warn", "unknown, because no samples are taken");
    fixture.sql("select leasehold.pause('mail', 'ann', 'a move')").await;
    is(&check(&fixture, name).await, "ok", "mail is paused");
}

#[tokio::test]
async fn doctor_warns_of_sessions_that_hold_back_vacuum() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "vacuum").await, "ok", "nothing has held it back");
    let other = fixture.database.connect_directly().await;
    other
        .batch_execute("set application_name = 'report'; begin; create temporary table t ()")
        .await
        .unwrap();
    is(&check(&fixture, "vacuum").await, "ok", "nothing has held it back");
    // The start of a transaction cannot be moved, so the function is made to report another one.
    let text: String = fixture
        .client
        .query_one("select replace(pg_get_functiondef('leasehold_internal.vacuum_holders'::regproc), 'clock_timestamp()', '(clock_timestamp() + interval ''1 hour'')')", &[])
        .await
        .unwrap()
        .get(0);
    fixture.sql(&text).await;
    let found = check(&fixture, "vacuum").await;
    is(&found, "warn", "application report");
    assert!(advice(&found).starts_with("end it: select pg_terminate_backend("), "{found}");
}
