//! What doctor says of mirrors, sweeps, services, samples and alarms: each thing is broken, said, and
//! mended by what was advised.

use leasehold::measure;
use serde_json::Value;

use super::clock::age;
use super::doctor::{check, find, is};
use super::minute;
use super::mirrors::mirrored;
use super::support::{Place, Ran};

async fn doctor(place: &Place) -> Ran {
    place.run(&["doctor", "--json", "--no-self-test"]).await
}

/// True when doctor has such a check at all.
async fn has(place: &Place, name: &str) -> bool {
    let document = doctor(place).await.json();
    document["checks"].as_array().unwrap().iter().any(|check| check["check"] == name)
}

async fn sql(place: &Place, text: &str) {
    place.client.batch_execute(text).await.expect(text);
}

fn advice(found: &Value) -> String {
    found["advice"].as_str().unwrap().to_owned()
}

/// A minute passes, and its sample is taken and judged.
async fn a_minute_passes(place: &Place) {
    minute::passes(&place.client).await;
}

#[tokio::test]
async fn tables_of_a_service_that_are_not_of_this_release_are_said() {
    let place = Place::new().await;
    assert!(!has(&place, "annotations").await && !has(&place, "pastes").await);
    let up = ["migrate", "up", "--service", "annotations"];
    place.run(&up).await.expect(0);
    is(&check(&place, "annotations").await, "ok", "version 1, checksums fit");
    assert!(!has(&place, "pastes").await);
    sql(&place, "delete from annotations.schema_version where version = 0").await;
    let found = check(&place, "annotations").await;
    is(&found, "warn", "functions and views are of another release");
    assert!(advice(&found).contains("leasehold migrate up --service annotations"), "{found}");
    place.run(&up).await.expect(0);
    is(&check(&place, "annotations").await, "ok", "version 1");
    sql(&place, "update annotations.schema_version set checksum = 'x' where version = 1").await;
    let found = check(&place, "annotations").await;
    is(&found, "fail", "migration 1 was changed");
    assert!(advice(&found).contains("leasehold migrate status --service annotations"), "{found}");
    sql(&place, "update annotations.schema_version set version = 99 where version = 1").await;
    let found = check(&place, "annotations").await;
    is(&found, "fail", "99");
    assert!(advice(&found).contains("a newer one"), "{found}");
}

#[tokio::test]
async fn the_trigger_of_our_own_service_is_no_interference() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    is(&check(&place, "pastes").await, "ok", "version 1");
    is(&check(&place, "interference").await, "ok", "no triggers");
    sql(
        &place,
        "create function public.pastes_upload_buried() returns trigger language plpgsql as 'begin return null; end'; \
         create or replace trigger pastes_upload_buried before insert on leasehold.dead_job \
             for each row execute function public.pastes_upload_buried()",
    )
    .await;
    is(&check(&place, "interference").await, "warn", "pastes_upload_buried on dead_job");
}

#[tokio::test]
async fn a_mirror_without_its_triggers_fails_until_the_advice_is_followed() {
    let name = "mirror triggers";
    let place = Place::new().await;
    assert!(!has(&place, name).await);
    let (place, ..) = mirrored(3).await;
    is(&check(&place, name).await, "ok", "all four");
    for (how, state) in [("disable", "switched off"), ("enable replica", "switched off")] {
        sql(
            &place,
            &format!("alter table public.\"Odd names\" {how} trigger \"mirror_odd.names_update\""),
        )
        .await;
        let ran = doctor(&place).await.expect(1);
        let found = find(&ran, name);
        is(&found, "fail", &format!("mirror_odd.names_update on \"Odd names\" is {state}"));
        sql(&place, &advice(&found)).await;
        is(&check(&place, name).await, "ok", "all four");
    }
    sql(&place, "drop trigger \"mirror_odd.names_version\" on public.\"Odd names\"").await;
    let found = check(&place, name).await;
    is(&found, "fail", "mirror_odd.names_version on \"Odd names\" is missing");
    assert!(advice(&found).contains("Mirror::install"), "{found}");
    sql(&place, "drop table public.\"Odd names\"").await;
    is(&check(&place, name).await, "fail", "its table public.Odd names is not there");
}

#[tokio::test]
async fn migrating_the_service_puts_back_the_triggers_of_its_mirror() {
    let place = Place::new().await;
    let up = ["migrate", "up", "--service", "annotations"];
    place.run(&up).await.expect(0);
    is(&check(&place, "mirror triggers").await, "ok", "all four");
    sql(
        &place,
        "alter table annotations.annotation disable trigger user; \
         drop trigger \"mirror_annotations.index_delete\" on annotations.annotation",
    )
    .await;
    let found = check(&place, "mirror triggers").await;
    is(&found, "fail", "mirror_annotations.index_delete on annotations.annotation is missing");
    is(&found, "fail", "mirror_annotations.index_insert on annotations.annotation is switched off");
    assert!(advice(&found).contains("leasehold migrate up --service annotations"), "{found}");
    place.run(&up).await.expect(0);
    is(&check(&place, "mirror triggers").await, "ok", "all four");
}

#[tokio::test]
async fn a_mirror_that_nobody_compares_or_that_stays_unequal_is_said() {
    let (place, engine, mirror, store) = mirrored(3).await;
    is(&check(&place, "mirror check").await, "ok", "being compared");
    is(&check(&place, "mirror equal").await, "ok", "is new");
    sql(&place, "update leasehold.mirror set created_at = now() - interval '2 hours'").await;
    let found = check(&place, "mirror check").await;
    is(&found, "warn", "odd.names: nobody has gone on with its check for 2h");
    assert!(advice(&found).contains("start a worker"), "{found}");
    is(&check(&place, "mirror equal").await, "warn", "was never seen equal");
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    is(&check(&place, "mirror check").await, "ok", "being compared");
    is(&check(&place, "mirror equal").await, "ok", "odd.names as of");

    // Its check goes on, and finds each time that it is not equal.
    sql(&place, "update leasehold.mirror set equal_as_of = now() - interval '2 hours'").await;
    is(&check(&place, "mirror equal").await, "warn", "was last equal 2h");
    store.searched().tamper("row 3", 1, None);
    mirror.check_once(&engine).await.unwrap();
    sql(
        &place,
        "update leasehold.mirror_difference set first_seen = now() - interval '11 minutes'",
    )
    .await;
    let found = check(&place, "mirror equal").await;
    is(&found, "warn", "odd.names: 1 rows differ, the oldest for 11m");
    assert!(advice(&found).contains("leasehold mirrors differences odd.names"), "{found}");
    // What the check asked for is done.
    sql(&place, "update leasehold.job set scheduled_at = now()").await;
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    is(&check(&place, "mirror equal").await, "ok", "odd.names as of");

    sql(
        &place,
        "update leasehold.mirror set check_due_at = now() - interval '10 minutes', \
                 checked_at = now() - interval '10 minutes', \
                 check_busy_until = now() - interval '1 second'",
    )
    .await;
    is(&check(&place, "mirror check").await, "warn", "for 10m");
    // Somebody is at a long range.
    sql(&place, "update leasehold.mirror set check_busy_until = now() + interval '1 minute'").await;
    is(&check(&place, "mirror check").await, "ok", "being compared");
}

#[tokio::test]
async fn a_sweep_that_nobody_runs_or_that_leaves_rows_is_said() {
    let place = Place::new().await;
    assert!(!has(&place, "sweeps").await);
    sql(
        &place,
        "create table public.shelf (id bigint primary key, due timestamptz, status text, taken_at timestamptz, claim bigint); \
         select leasehold.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', 'NEW', 'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)",
    )
    .await;
    is(&check(&place, "sweeps").await, "ok", "1 are run");
    sql(&place, "update leasehold.sweep set next_run_at = now() - interval '10 minutes', run_ended_at = now()").await;
    let found = check(&place, "sweeps").await;
    is(&found, "warn", "shelf: due for 10m");
    assert!(advice(&found).contains("start a worker"), "{found}");
    sql(&place, "update leasehold.sweep set next_run_at = now(), watchdog_ran_at = now() - interval '10 minutes'").await;
    is(&check(&place, "sweeps").await, "warn", "its watchdog has been due for 9m");
    sql(&place, "update leasehold.sweep set watchdog_ran_at = now()").await;
    is(&check(&place, "sweeps").await, "ok", "1 are run");
    sql(&place, "insert into leasehold.sweep_failure (sweep, key, claim, attempts, last_error, dead_at) values ('shelf', '7', 1, 5, 'no', now())").await;
    let found = check(&place, "sweeps").await;
    is(&found, "warn", "shelf: 1 rows were set aside");
    assert!(advice(&found).contains("leasehold sweeps redrive shelf"), "{found}");
    sql(
        &place,
        "delete from leasehold.sweep_failure; \
                 insert into public.shelf values (1, now(), 'BUSY', now() - interval '1 day', 1)",
    )
    .await;
    a_minute_passes(&place).await;
    is(&check(&place, "sweeps").await, "warn", "shelf: 1 rows are in nobody's hands");
    sql(&place, "delete from public.shelf; select leasehold.pause_sweep('shelf', 'ann', 'a move')")
        .await;
    a_minute_passes(&place).await;
    is(&check(&place, "sweeps").await, "warn", "shelf: paused by ann");
    sql(&place, "drop table public.shelf").await;
    is(&check(&place, "sweeps").await, "warn", "its table public.shelf is not there");
}

/// A worker that lives and has been there for a while.
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
    // A sample bears the beginning of its minute: without this it would be up to 11 minutes old.
    sql(
        &place,
        "update leasehold.duty set ran_at = now() - interval '10 minutes' where name = 'measure'",
    )
    .await;
    a_worker(&place, "10 minutes").await;
    is(&check(&place, name).await, "fail", "no sample was taken for 10m");
    sql(&place, "update leasehold.worker set last_seen_at = now() - interval '1 hour'").await;
    is(&check(&place, name).await, "warn", "and no worker runs");
    // Taken, and swallowed.
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
    // It has just been taken.
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
    sql(&place, "insert into leasehold.job (name, expires_at, queue) values ('late', now(), 'mail'); select leasehold.expire_jobs()").await;
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
    // Its start cannot be moved; the function can be made to say another one.
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
