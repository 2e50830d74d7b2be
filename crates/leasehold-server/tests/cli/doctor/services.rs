//! Doctor's checks of services, mirrors and sweeps: each test breaks something, reads the report, and
//! repairs it as advised.

use leasehold_testing::minutes::pass_minute;

use super::{advice, check, doctor, find, is};
use crate::fixture::Fixture;
use crate::mirrors::mirrored;

/// Returns true if doctor has such a check at all.
async fn has(fixture: &Fixture, name: &str) -> bool {
    let document = doctor(fixture).await.json();
    document["checks"].as_array().unwrap().iter().any(|check| check["check"] == name)
}

#[tokio::test]
async fn doctor_fails_on_tables_of_another_release() {
    let fixture = Fixture::new().await;
    assert!(!has(&fixture, "annotations").await && !has(&fixture, "pastes").await);
    let up = ["migrate", "up", "--service", "annotations"];
    fixture.run(&up).await.expect(0);
    is(&check(&fixture, "annotations").await, "ok", "version 4, checksums fit");
    assert!(!has(&fixture, "pastes").await);
    fixture.sql("delete from annotations.schema_version where version = 0").await;
    let found = check(&fixture, "annotations").await;
    is(&found, "fail", "functions and views in the database are older than this program");
    assert!(advice(&found).contains("leasehold migrate up --service annotations"), "{found}");
    fixture.run(&up).await.expect(0);
    is(&check(&fixture, "annotations").await, "ok", "version 4");
    fixture.sql("update annotations.schema_version set checksum = 'x' where version = 2").await;
    let found = check(&fixture, "annotations").await;
    is(&found, "fail", "migration 2 was changed");
    assert!(advice(&found).contains("leasehold migrate status --service annotations"), "{found}");
    fixture.sql("update annotations.schema_version set version = 99 where version = 2").await;
    let found = check(&fixture, "annotations").await;
    is(&found, "fail", "99");
    assert!(advice(&found).contains("a newer one"), "{found}");
}

#[tokio::test]
async fn doctor_warns_of_a_trigger_that_is_not_of_the_engine() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    is(&check(&fixture, "pastes").await, "ok", "version 4");
    is(&check(&fixture, "interference").await, "ok", "no triggers");
    fixture.sql("create function pastes.buried() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger paste_buried before insert on leasehold_internal.dead_job \
             for each row execute function pastes.buried()",
    )
    .await;
    is(&check(&fixture, "interference").await, "warn", "paste_buried on dead_job");
}

#[tokio::test]
async fn e28_doctor_warns_of_a_store_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    assert!(!has(&fixture, "paste store").await, "no service has started yet");
    let store = std::env::temp_dir().join(format!("lh-doctor-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&store).unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&store, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let location = format!("file://{}", store.display());
    fixture.client.execute("update pastes.store set location = $1", &[&location]).await.unwrap();
    mode(0o755);
    let found = check(&fixture, "paste store").await;
    is(&found, "warn", "other users of this machine can read");
    assert!(advice(&found).contains(&format!("chmod 700 {}", store.display())), "{found}");
    mode(0o700);
    is(&check(&fixture, "paste store").await, "ok", "readable by its owner only");
    std::fs::remove_dir(&store).unwrap();
    is(&check(&fixture, "paste store").await, "ok", "not on this machine");
    fixture.sql("update pastes.store set location = 'https://bucket.example'").await;
    is(&check(&fixture, "paste store").await, "ok", "https://bucket.example");
}

#[tokio::test]
async fn doctor_fails_on_a_mirror_without_triggers_until_they_are_back() {
    let name = "mirror triggers";
    let fixture = Fixture::new().await;
    assert!(!has(&fixture, name).await);
    let (fixture, ..) = mirrored(3).await;
    is(&check(&fixture, name).await, "ok", "all four");
    for (how, state) in [("disable", "disabled"), ("enable replica", "disabled")] {
        fixture
            .sql(&format!(
                "alter table public.\"Odd names\" {how} trigger \"mirror_odd.names_update\""
            ))
            .await;
        let ran = doctor(&fixture).await.expect(1);
        let found = find(&ran, name);
        is(&found, "fail", &format!("mirror_odd.names_update on \"Odd names\" is {state}"));
        fixture.sql(&advice(&found)).await;
        is(&check(&fixture, name).await, "ok", "all four");
    }
    fixture.sql("drop trigger \"mirror_odd.names_version\" on public.\"Odd names\"").await;
    let found = check(&fixture, name).await;
    is(&found, "fail", "mirror_odd.names_version on \"Odd names\" is missing");
    assert!(advice(&found).contains("Mirror::install"), "{found}");
    fixture.sql("drop table public.\"Odd names\"").await;
    let found = check(&fixture, name).await;
    is(&found, "fail", "its table public.Odd names does not exist");
    assert!(advice(&found).contains("leasehold mirrors forget odd.names"), "{found}");
    fixture.run(&["mirrors", "forget", "odd.names"]).await.expect(4).says("compares every row");
    let forget = ["mirrors", "forget", "odd.names", "--why", "dropped", "--yes"];
    fixture.run(&forget).await.expect(0).prints("is forgotten");
    fixture.run(&forget).await.expect(3);
    assert!(!has(&fixture, name).await);
}

#[tokio::test]
async fn migrate_up_restores_mirror_triggers() {
    let fixture = Fixture::new().await;
    let up = ["migrate", "up", "--service", "annotations"];
    fixture.run(&up).await.expect(0);
    is(&check(&fixture, "mirror triggers").await, "ok", "all four");
    fixture
        .sql(
            "alter table annotations.annotation disable trigger user; \
         drop trigger \"mirror_annotations.index_delete\" on annotations.annotation",
        )
        .await;
    let found = check(&fixture, "mirror triggers").await;
    is(&found, "fail", "mirror_annotations.index_delete on annotations.annotation is missing");
    is(&found, "fail", "mirror_annotations.index_insert on annotations.annotation is disabled");
    assert!(advice(&found).contains("leasehold migrate up --service annotations"), "{found}");
    fixture.run(&up).await.expect(0);
    is(&check(&fixture, "mirror triggers").await, "ok", "all four");
}

#[tokio::test]
async fn doctor_warns_of_unchecked_and_unequal_mirrors() {
    let (fixture, engine, mirror, store) = mirrored(3).await;
    is(&check(&fixture, "mirror check").await, "ok", "being checked");
    is(&check(&fixture, "mirror equal").await, "ok", "is new");
    fixture
        .sql("update leasehold_internal.mirror set created_at = now() - interval '2 hours'")
        .await;
    let found = check(&fixture, "mirror check").await;
    is(&found, "warn", "odd.names: its check has not continued for 2h");
    assert!(advice(&found).contains("start a worker"), "{found}");
    is(&check(&fixture, "mirror equal").await, "warn", "was never equal");
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    is(&check(&fixture, "mirror check").await, "ok", "being checked");
    is(&check(&fixture, "mirror equal").await, "ok", "odd.names as of");

    // The check runs, and finds each time that the mirror is not equal.
    fixture
        .sql("update leasehold_internal.mirror set equal_as_of = now() - interval '2 hours'")
        .await;
    is(&check(&fixture, "mirror equal").await, "warn", "was last equal 2h");
    store.searched().tamper("row 3", 1, None);
    mirror.check_once(&engine).await.unwrap();
    fixture
        .sql("update leasehold_internal.mirror_difference set first_seen = now() - interval '11 minutes'")
        .await;
    let found = check(&fixture, "mirror equal").await;
    is(&found, "warn", "odd.names: 1 rows differ, the oldest for 11m");
    assert!(advice(&found).contains("leasehold mirrors differences odd.names"), "{found}");
    // Run the job that the check enqueued.
    fixture.sql("update leasehold.job set scheduled_at = now()").await;
    mirror.pass_once(&engine).await.unwrap();
    mirror.check_once(&engine).await.unwrap();
    is(&check(&fixture, "mirror equal").await, "ok", "odd.names as of");

    fixture
        .sql(
            "update leasehold_internal.mirror set check_due_at = now() - interval '10 minutes', \
                 compared_at = now() - interval '10 minutes', \
                 check_busy_until = now() - interval '1 second'",
        )
        .await;
    is(&check(&fixture, "mirror check").await, "warn", "for 10m");
    // A worker is checking a long range.
    fixture
        .sql("update leasehold_internal.mirror set check_busy_until = now() + interval '1 minute'")
        .await;
    is(&check(&fixture, "mirror check").await, "ok", "being checked");
}

#[tokio::test]
async fn doctor_warns_of_sweeps_that_do_not_run_or_leave_rows() {
    let fixture = Fixture::new().await;
    assert!(!has(&fixture, "sweeps").await);
    fixture.sql("create table public.shelf (id bigint primary key, due timestamptz, status text, taken_at timestamptz, claim bigint); \
         select leasehold_internal.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', 'NEW', 'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)",
    )
    .await;
    is(&check(&fixture, "sweeps").await, "ok", "every sweep runs");
    fixture.sql("update leasehold_internal.sweep set next_run_at = now() - interval '10 minutes', run_ended_at = now()").await;
    let found = check(&fixture, "sweeps").await;
    is(&found, "warn", "shelf: due for 10m");
    assert!(advice(&found).contains("start a worker"), "{found}");
    fixture.sql("update leasehold_internal.sweep set next_run_at = now(), watchdog_ran_at = now() - interval '10 minutes'").await;
    is(&check(&fixture, "sweeps").await, "warn", "its watchdog has been due for 9m");
    fixture.sql("update leasehold_internal.sweep set watchdog_ran_at = now()").await;
    is(&check(&fixture, "sweeps").await, "ok", "every sweep runs");
    fixture.sql("insert into leasehold_internal.sweep_failure (sweep, key, claim, attempts, last_error, dead_at) values ('shelf', '7', 1, 5, 'no', now())").await;
    let found = check(&fixture, "sweeps").await;
    is(&found, "warn", "shelf: 1 rows are dead");
    assert!(advice(&found).contains("leasehold sweeps redrive shelf"), "{found}");
    fixture
        .sql(
            "delete from leasehold_internal.sweep_failure; \
                 select leasehold_internal.note_claimed('shelf', 1, 1, 1, now() - interval '1 day')",
        )
        .await;
    pass_minute(&fixture.client).await;
    is(
        &check(&fixture, "sweeps").await,
        "warn",
        "shelf: 1 rows are claimed past the watchdog limit",
    );
    fixture
        .sql(
            "select leasehold_internal.note_claimed('shelf', 0, 0, 0, null); \
         select leasehold.pause_sweep('shelf', 'ann', 'a move')",
        )
        .await;
    pass_minute(&fixture.client).await;
    is(&check(&fixture, "sweeps").await, "warn", "shelf: paused by ann");
    fixture.sql("drop table public.shelf").await;
    let found = check(&fixture, "sweeps").await;
    is(&found, "warn", "its table public.shelf does not exist");
    assert!(advice(&found).contains("leasehold sweeps forget shelf"), "{found}");
}
