//! Doctor's checks of services, mirrors and sweeps: each test breaks something, reads the report, and
//! repairs it as advised.

use serde_json::Value;

use super::doctor::{check, find, is};
use super::minute;
use super::mirrors::mirrored;
use super::support::{Place, Ran};

pub async fn doctor(place: &Place) -> Ran {
    place.run(&["doctor", "--json", "--no-self-test"]).await
}

/// Returns true if doctor has such a check at all.
async fn has(place: &Place, name: &str) -> bool {
    let document = doctor(place).await.json();
    document["checks"].as_array().unwrap().iter().any(|check| check["check"] == name)
}

pub async fn sql(place: &Place, text: &str) {
    place.client.batch_execute(text).await.expect(text);
}

pub fn advice(found: &Value) -> String {
    found["advice"].as_str().unwrap().to_owned()
}

/// Lets a minute pass, with its sample and its alarms.
pub async fn a_minute_passes(place: &Place) {
    minute::passes(&place.client).await;
}

#[tokio::test]
async fn tables_of_a_service_that_are_not_of_this_release_are_said() {
    let place = Place::new().await;
    assert!(!has(&place, "annotations").await && !has(&place, "pastes").await);
    let up = ["migrate", "up", "--service", "annotations"];
    place.run(&up).await.expect(0);
    is(&check(&place, "annotations").await, "ok", "version 3, checksums fit");
    assert!(!has(&place, "pastes").await);
    sql(&place, "delete from annotations.schema_version where version = 0").await;
    let found = check(&place, "annotations").await;
    is(&found, "fail", "functions and views in the database are older than this program");
    assert!(advice(&found).contains("leasehold migrate up --service annotations"), "{found}");
    place.run(&up).await.expect(0);
    is(&check(&place, "annotations").await, "ok", "version 3");
    sql(&place, "update annotations.schema_version set checksum = 'x' where version = 2").await;
    let found = check(&place, "annotations").await;
    is(&found, "fail", "migration 2 was changed");
    assert!(advice(&found).contains("leasehold migrate status --service annotations"), "{found}");
    sql(&place, "update annotations.schema_version set version = 99 where version = 2").await;
    let found = check(&place, "annotations").await;
    is(&found, "fail", "99");
    assert!(advice(&found).contains("a newer one"), "{found}");
}

#[tokio::test]
async fn the_trigger_of_our_own_service_is_no_interference() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    is(&check(&place, "pastes").await, "ok", "version 3");
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
async fn e28_doctor_warns_of_a_store_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    assert!(!has(&place, "paste store").await, "no service has started yet");
    let store = std::env::temp_dir().join(format!("lh-doctor-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&store).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&store, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let location = format!("file://{}", store.display());
    place.client.execute("update pastes.store set location = $1", &[&location]).await.unwrap();
    mode(0o755);
    let found = check(&place, "paste store").await;
    is(&found, "warn", "other users of this machine can read");
    assert!(advice(&found).contains(&format!("chmod 700 {}", store.display())), "{found}");
    mode(0o700);
    is(&check(&place, "paste store").await, "ok", "this user alone");
    std::fs::remove_dir(&store).unwrap();
    is(&check(&place, "paste store").await, "ok", "not on this machine");
    sql(&place, "update pastes.store set location = 'https://bucket.example'").await;
    is(&check(&place, "paste store").await, "ok", "https://bucket.example");
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

    // The check runs, and finds each time that the mirror is not equal.
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
    // Run the job that the check enqueued.
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
    // A worker is checking a long range.
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
                 select leasehold.note_claimed('shelf', 1, 1, 1, now() - interval '1 day')",
    )
    .await;
    a_minute_passes(&place).await;
    is(&check(&place, "sweeps").await, "warn", "shelf: 1 rows are in nobody's hands");
    sql(
        &place,
        "select leasehold.note_claimed('shelf', 0, 0, 0, null); \
         select leasehold.pause_sweep('shelf', 'ann', 'a move')",
    )
    .await;
    a_minute_passes(&place).await;
    is(&check(&place, "sweeps").await, "warn", "shelf: paused by ann");
    sql(&place, "drop table public.shelf").await;
    is(&check(&place, "sweeps").await, "warn", "its table public.shelf is not there");
}
