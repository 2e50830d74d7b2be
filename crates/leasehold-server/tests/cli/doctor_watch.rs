//! Doctor's checks of samples, alarms, canaries and sessions that hold back vacuum.

use leasehold::measure;

use super::clock::age;
use super::doctor::{check, find, is};
use super::doctor_parts::{a_minute_passes, advice, doctor, sql};
use super::support::Place;

/// Registers a live worker that started `started` ago.
async fn a_worker(place: &Place, started: &str) {
    let register = "select leasehold.register_worker('w/1', 'w', 'h', 1, '0', array['mail'], '{}', 1, 0, false)";
    sql(place, register).await;
    sql(place, &format!("update leasehold.worker set started_at = now() - interval '{started}'"))
        .await;
    place.workers_live().await;
}

#[tokio::test]
async fn samples_that_nobody_takes_or_that_vanish_are_said() {
    let (name, place) = ("measuring", Place::new().await);
    is(&check(&place, name).await, "ok", "the first worker begins");
    a_worker(&place, "1 second").await;
    is(&check(&place, name).await, "ok", "has just begun");
    a_worker(&place, "10 minutes").await;
    let found = find(&doctor(&place).await.expect(1), name);
    is(&found, "fail", "no sample was taken ever, although workers run");
    assert!(advice(&found).contains("--no-housekeeping"), "{found}");
    a_minute_passes(&place).await;
    is(&check(&place, name).await, "ok", "the last sample was taken");

    age(&place.client, "10 minutes").await;
    // A sample carries the beginning of its minute: without this it could be up to 11 minutes old.
    sql(
        &place,
        "update leasehold.duty set ran_at = now() - interval '10 minutes' where name = 'measure'",
    )
    .await;
    a_worker(&place, "10 minutes").await;
    is(&check(&place, name).await, "fail", "no sample was taken for 10m");
    sql(&place, "update leasehold.worker set last_seen_at = now() - interval '1 hour'").await;
    is(&check(&place, name).await, "warn", "and no worker runs");
    // A sample is taken, and a trigger drops it.
    sql(
        &place,
        "create function public.swallow() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger swallow before insert on leasehold.measure for each row execute function public.swallow()",
    )
    .await;
    measure::sample(&place.client).await.unwrap().expect("a sample");
    is(&check(&place, name).await, "fail", "not in leasehold.measure");
}

#[tokio::test]
async fn samples_that_nobody_judges_are_said() {
    let (name, place) = ("judging", Place::new().await);
    is(&check(&place, name).await, "ok", "nothing to judge yet");
    let only_sampled = async || sql(&place, "select leasehold.take_sample()").await;
    only_sampled().await;
    // The sample has just been taken.
    is(&check(&place, name).await, "ok", "nothing to judge yet");
    age(&place.client, "6 minutes").await;
    only_sampled().await;
    let found = find(&doctor(&place).await.expect(1), name);
    is(&found, "fail", "were never judged");
    assert!(advice(&found).contains("leasehold workers"), "{found}");
    a_minute_passes(&place).await;
    is(&check(&place, name).await, "ok", "was judged");
    for _ in 0..4 {
        age(&place.client, "1 minute").await;
        only_sampled().await;
    }
    // Between the last two of them a minute of the real clock may have ended, too.
    let found = check(&place, name).await;
    is(&found, "fail", "samples of the last");
    is(&found, "fail", "were not judged");
}

#[tokio::test]
async fn alarms_that_are_up_and_words_that_do_not_arrive_are_said() {
    let place = Place::new().await;
    is(&check(&place, "alarms").await, "ok", "none is up");
    is(&check(&place, "telling").await, "ok", "nobody is told");
    sql(&place, "select leasehold.declare_alarm_receiver('leasehold.alarm.webhook')").await;
    is(&check(&place, "telling").await, "ok", "leasehold.alarm.webhook");
    sql(&place, "insert into leasehold.job (name, scheduled_at, expires_at, queue) values ('late', now() - interval '1 minute', now(), 'mail'); select leasehold.expire_jobs()").await;
    a_minute_passes(&place).await;
    let found = check(&place, "alarms").await;
    is(&found, "warn", "1 expired_jobs mail, for");
    assert!(advice(&found).contains("leasehold alarms ack"), "{found}");
    is(&check(&place, "telling").await, "ok", "leasehold.alarm.webhook");
    place.run(&["alarms", "ack", "1", "--why", "looking"]).await.expect(0);
    is(&check(&place, "alarms").await, "ok", "1 expired_jobs mail (acknowledged)");

    sql(&place, "update leasehold.job set enqueued_at = now() - interval '11 minutes'").await;
    let found = check(&place, "telling").await;
    is(&found, "warn", "1 words about alarms wait, the oldest for 11m");
    assert!(advice(&found).contains("leasehold alarms test"), "{found}");
    sql(&place, "delete from leasehold.job; update leasehold.alarm_receiver set seen_at = now() - interval '3 hours'").await;
    is(
        &check(&place, "telling").await,
        "warn",
        "leasehold.alarm.webhook: whoever carries these was last seen 3h",
    );
}

#[tokio::test]
async fn a_canary_that_does_not_come_says_whose_fault_it_is() {
    let (name, place) = ("canaries", Place::new().await);
    is(&check(&place, name).await, "ok", "no queue is watched");
    place.run(&["alarms", "watch", "mail", "--min-completed", "1"]).await.expect(0);
    is(&check(&place, name).await, "ok", "mail has none");
    let canary = async || {
        sql(
            &place,
            "select leasehold.enqueue('leasehold.canary', '{}', 'mail', tag => 'leasehold.canary')",
        )
        .await;
    };
    let completed = async || {
        sql(&place, "select leasehold.complete(c.id, c.lease_generation) from leasehold.claim('w', 'mail', 1) c").await;
    };
    canary().await;
    is(&check(&place, name).await, "ok", "mail has just begun");
    completed().await;
    a_minute_passes(&place).await;
    is(&check(&place, name).await, "ok", "mail is alive");
    for _ in 0..6 {
        a_minute_passes(&place).await;
    }
    let found = check(&place, name).await;
    is(&found, "warn", "mail: none came for");
    assert!(advice(&found).contains("leasehold alarms unwatch"), "{found}");
    canary().await;
    age(&place.client, "6 minutes").await;
    let found = check(&place, name).await;
    is(&found, "warn", "mail: one has waited for 6m");
    assert!(advice(&found).contains("start a worker"), "{found}");
    completed().await;
    is(&check(&place, name).await, "warn", "cannot be told while nothing is measured");
    sql(&place, "select leasehold.pause('mail', 'ann', 'a move')").await;
    is(&check(&place, name).await, "ok", "mail is paused");
}

#[tokio::test]
async fn what_holds_back_vacuum_is_said_even_when_it_does_not_say_since_when() {
    let place = Place::new().await;
    is(&check(&place, "vacuum").await, "ok", "nothing has held it back");
    let other = place.database.connect_directly().await;
    other
        .batch_execute("set application_name = 'report'; begin; create temporary table t ()")
        .await
        .unwrap();
    is(&check(&place, "vacuum").await, "ok", "nothing has held it back");
    // The start of a transaction cannot be moved, so the function is made to report another one.
    let text: String = place
        .client
        .query_one("select replace(pg_get_functiondef('leasehold.vacuum_holders'::regproc), 'clock_timestamp()', '(clock_timestamp() + interval ''1 hour'')')", &[])
        .await
        .unwrap()
        .get(0);
    sql(&place, &text).await;
    let found = check(&place, "vacuum").await;
    is(&found, "warn", "application report");
    assert!(advice(&found).starts_with("end it: select pg_terminate_backend("), "{found}");
}
