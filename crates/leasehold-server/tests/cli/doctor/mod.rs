//! `leasehold doctor`: each test breaks something and reads the report. Here: the server, the schema and
//! jobs; [`services`] and [`monitoring`] have the rest.

mod monitoring;
mod services;

use leasehold_testing::{PrivatePostgres, TestDatabase};
use serde_json::Value;

use crate::fixture::{Fixture, Ran, command};

pub async fn check(fixture: &Fixture, name: &str) -> Value {
    find(&fixture.run(&["doctor", "--json"]).await, name)
}

pub fn find(ran: &Ran, name: &str) -> Value {
    let document = ran.json();
    let checks = document["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["check"] == name)
        .unwrap_or_else(|| panic!("no check {name} in {document}"))
        .clone()
}

pub async fn doctor(fixture: &Fixture) -> Ran {
    fixture.run(&["doctor", "--json", "--no-self-test"]).await
}

pub fn advice(found: &Value) -> String {
    found["advice"].as_str().unwrap().to_owned()
}

#[track_caller]
pub fn is(check: &Value, level: &str, words: &str) {
    assert!(check["level"] == level && check["text"].as_str().unwrap().contains(words), "{check}");
    assert_eq!(check["advice"].is_string(), level != "ok", "{check}");
}

/// Returns what doctor reports. Two checks measure seconds, the clock and the wake-up: on a machine
/// that stalls they may warn, so they are repeated.
async fn examine(database: &TestDatabase) -> Value {
    let mut document = Value::Null;
    for _ in 0..5 {
        let mut doctor = command(&["doctor", "--json"]);
        doctor.env("DATABASE_URL", database.direct_url());
        document = Ran::of(doctor).await.expect(0).json();
        let late = |check: &Value| {
            check["level"] == "warn" && (check["check"] == "clock" || check["check"] == "wake-up")
        };
        if !document["checks"].as_array().unwrap().iter().any(late) {
            break;
        }
    }
    document
}

#[tokio::test]
async fn doctor_passes_on_a_healthy_server_and_leaves_no_rows() {
    let postgres = tokio::task::spawn_blocking(|| PrivatePostgres::temporary().start())
        .await
        .unwrap()
        .unwrap();
    let database = TestDatabase::on(&postgres).await.unwrap();
    let document = examine(&database).await;
    assert_eq!(document["ok"], true);
    let levels: Vec<&str> = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["level"].as_str().unwrap())
        .collect();
    assert!(levels.len() >= 20 && levels.iter().all(|level| *level == "ok"), "{document}");
    let client = database.connect_directly().await;
    for table in [
        "leasehold.job",
        "leasehold_internal.lease",
        "leasehold_internal.history",
        "leasehold_internal.idempotency_key",
        "leasehold_internal.dead_job",
        "leasehold_internal.queue",
    ] {
        let rows: i64 =
            client.query_one(&format!("select count(*) from {table}"), &[]).await.unwrap().get(0);
        assert_eq!(rows, 0, "{table}");
    }
    drop(database);
    tokio::task::spawn_blocking(move || drop(postgres)).await.unwrap();
}

#[tokio::test]
async fn c5_server_without_fsync_fails_the_doctor() {
    let fixture = Fixture::new().await;
    let ran = fixture.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "fsync"), "fail", "off");
    assert_eq!(ran.json()["ok"], false);
    fixture.run(&["doctor"]).await.expect(1).prints("FAIL  fsync").prints("→");
}

/// Adds a trigger that drops every such write to a table.
async fn swallow(fixture: &Fixture, what: &str, table: &str) {
    let sql = format!(
        "create function public.swallow() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger swallow before {what} on {table} for each row execute function public.swallow()"
    );
    fixture.sql(&sql).await;
}

#[tokio::test]
async fn c19_trigger_that_drops_writes_fails_the_self_test() {
    for (what, table, step) in [
        ("insert", "leasehold.job", "the enqueued job is missing"),
        ("update", "leasehold.job", "the claim returned no job"),
        ("delete", "leasehold.job", "could not be completed"),
        ("insert", "leasehold_internal.lease", "the lease of the claim is missing"),
        ("update", "leasehold_internal.lease", "the renewal was refused"),
        ("insert", "leasehold_internal.history", "not in the history"),
    ] {
        let fixture = Fixture::new().await;
        is(&check(&fixture, "self-test").await, "ok", "enqueue, claim, renew and complete work");
        swallow(&fixture, what, table).await;
        let ran = fixture.run(&["doctor", "--json"]).await.expect(1);
        is(&find(&ran, "self-test"), "fail", step);
        is(&find(&ran, "interference"), "warn", "trigger swallow");
    }
}

#[tokio::test]
async fn c19_self_test_leaves_no_job_under_a_role_that_cannot_read_it() {
    self_test_leaves_no_job("leasehold_producer, leasehold_worker").await;
}

#[tokio::test]
async fn c19_self_test_leaves_no_job_under_a_role_that_cannot_finish_it() {
    self_test_leaves_no_job("leasehold_producer, leasehold_operator").await;
}

/// Runs doctor as a member of these roles. A job that it left behind would expire and raise an alarm.
async fn self_test_leaves_no_job(roles: &str) {
    let fixture = Fixture::new().await;
    let role = format!("stranger_{}", uuid());
    let sql = format!("create role {role} login in role {roles}");
    fixture.sql(&sql).await;
    let url = fixture.database.direct_url().replace("user=postgres", &format!("user={role}"));
    let mut doctor = command(&["doctor", "--json"]);
    doctor.env("DATABASE_URL", url);
    let ran = Ran::of(doctor).await;
    is(&find(&ran, "self-test"), "warn", "could not be checked");
    let left = "select count(*) from leasehold.job where name = 'leasehold.self_test'";
    let left: i64 = fixture.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    fixture.sql(&format!("drop role {role}")).await;
}

#[tokio::test]
async fn c19_row_policy_that_hides_jobs_fails_the_self_test() {
    for policy in ["create policy only_new on leasehold.job for insert with check (true)", ""] {
        let fixture = Fixture::new().await;
        // Superusers bypass every policy, so the schema must belong to another role.
        let owner = format!("owner_{}", uuid());
        let sql = format!(
            "create role {owner} login; \
             do $$ declare o record; begin \
               for o in select c.oid::regclass as name from pg_class c where c.relnamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) \
                         and c.relkind in ('r', 'p', 'v') loop \
                 execute format('alter table %s owner to {owner}', o.name); end loop; \
               for o in select p.oid::regprocedure as name from pg_proc p where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) loop \
                 execute format('alter function %s owner to {owner}', o.name); end loop; \
             end $$; \
             alter sequence leasehold_internal.generation owner to {owner}; \
             alter schema leasehold owner to {owner}; \
             alter schema leasehold_internal owner to {owner}; \
             alter table leasehold.job enable row level security; \
             alter table leasehold.job force row level security; {policy}"
        );
        fixture.sql(&sql).await;
        let mut config: String = fixture.database.direct_url();
        config = config.replace("user=postgres", &format!("user={owner}"));
        let mut doctor = command(&["doctor", "--json"]);
        doctor.env("DATABASE_URL", config);
        let ran = Ran::of(doctor).await.expect(1);
        is(
            &find(&ran, "self-test"),
            "fail",
            if policy.is_empty() { "policy" } else { "is missing" },
        );
        is(&find(&ran, "interference"), "warn", "row security on job");
        let drop = format!(
            "reassign owned by {owner} to postgres; drop owned by {owner}; drop role {owner}"
        );
        fixture.sql(&drop).await;
    }
}

fn uuid() -> String {
    format!(
        "{:x}",
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
    )
}

#[tokio::test]
async fn doctor_fails_without_a_schema_and_names_the_command() {
    let fixture = Fixture::new().await;
    fixture.sql("drop schema leasehold, leasehold_internal cascade").await;
    let ran = fixture.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "schema"), "fail", "leasehold migrate up");
}

#[tokio::test]
async fn doctor_fails_on_a_changed_function() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "functions").await, "ok", "all of this release");
    fixture.sql("create function leasehold.mine() returns int language sql as 'select 42'").await;
    is(&check(&fixture, "functions").await, "warn", "mine");
    fixture.sql("create or replace function leasehold_internal.wake(queue text default 'default') returns void language sql as 'select'").await;
    is(&check(&fixture, "functions").await, "fail", "wake");
}

#[tokio::test]
async fn doctor_warns_of_jobs_without_a_worker_or_handler() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "known").await;
    is(&check(&fixture, "workers").await, "warn", "mail has 1 ready");
    let register = "select leasehold_internal.register_worker('w/1', 'w', 'h', 1, '0', array['mail'], array['known'], 1, 0, false)";
    fixture.client.query(register, &[]).await.unwrap();
    fixture.keep_workers_alive().await;
    is(&check(&fixture, "workers").await, "ok", "every queue");
    is(&check(&fixture, "handlers").await, "ok", "every waiting name");
    fixture.job("mail", "stranger").await;
    is(&check(&fixture, "handlers").await, "warn", "stranger in queue mail");
    fixture.sql("select leasehold.pause('mail', 'me', 'x')").await;
    is(&check(&fixture, "workers").await, "warn", "paused with 2 ready");
}

#[tokio::test]
async fn doctor_warns_of_expired_leases_and_locked_jobs() {
    let fixture = Fixture::new().await;
    fixture.running("mail", "a").await;
    is(&check(&fixture, "leases").await, "ok", "no expired lease");
    fixture
        .client
        .execute(
            "update leasehold_internal.lease set lease_expires_at = now() - interval '2 minutes'",
            &[],
        )
        .await
        .unwrap();
    is(&check(&fixture, "leases").await, "warn", "1 lease expired");

    let id = fixture.job("hooks", "b").await;
    fixture
        .client
        .execute(
            "update leasehold.job set scheduled_at = now() - interval '2 minutes' where id = $1",
            &[&id],
        )
        .await
        .unwrap();
    is(&check(&fixture, "locked jobs").await, "ok", "none");
    let mut other = fixture.database.connect_directly().await;
    let transaction = other.transaction().await.unwrap();
    transaction.query("select from leasehold.job where id = $1 for update", &[&id]).await.unwrap();
    is(&check(&fixture, "locked jobs").await, "warn", &id.to_string());
}

#[tokio::test]
async fn c5_doctor_reports_settings_that_weaken_commits() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "synchronous_commit").await, "ok", "on");
    let name = fixture.database.name().to_owned();
    fixture.sql(&format!("alter database \"{name}\" set synchronous_commit = off")).await;
    let found = check(&fixture, "synchronous_commit").await;
    assert_ne!(found["level"], "ok", "{found}");
    fixture.sql("alter table leasehold.job set (autovacuum_enabled = false)").await;
    is(&check(&fixture, "autovacuum").await, "fail", "job");
}

#[tokio::test]
async fn b19_doctor_warns_of_a_disabled_wake_up_trigger() {
    let fixture = Fixture::new().await;
    let disable = "alter table leasehold.job disable trigger job_wakes_idle";
    fixture.sql(disable).await;
    is(&check(&fixture, "wake-up").await, "warn", "job_wakes_idle");
}

#[tokio::test]
async fn doctor_without_the_self_test_writes_nothing() {
    let fixture = Fixture::new().await;
    let before = fixture.count("select last_value from leasehold_internal.generation").await;
    let ran = fixture.run(&["doctor", "--no-self-test", "--json"]).await.expect(1);
    assert!(!ran.stdout.contains("self-test"));
    assert_eq!(fixture.count("select last_value from leasehold_internal.generation").await, before);
}

/// Sets a default for every session on this database.
async fn default_of(fixture: &Fixture, setting: &str) {
    let name = fixture.database.name();
    let sql = format!("alter database \"{name}\" set {setting}");
    fixture.sql(&sql).await;
}

#[tokio::test]
async fn b16_doctor_warns_of_isolation_behind_a_pooler() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "isolation").await, "ok", "read committed");
    default_of(&fixture, "default_transaction_isolation = 'serializable'").await;
    is(&check(&fixture, "isolation").await, "ok", "workers use read committed");
    let ran = fixture.run(&["doctor", "--json", "--pooler", "transaction"]).await;
    is(&find(&ran, "isolation"), "warn", "serializable through a pooler");
    is(&find(&ran, "pooler"), "warn", "shares sessions");
    fixture.run(&["doctor", "--pooler", "odd"]).await.expect(2).says("transaction");
}

#[tokio::test]
async fn b12_read_only_server_fails_the_doctor_and_commands() {
    let fixture = Fixture::new().await;
    is(&check(&fixture, "primary").await, "ok", "accepts writes");
    default_of(&fixture, "default_transaction_read_only = on").await;
    let ran = fixture.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "primary"), "fail", "accepts no writes");
    fixture.run(&["queues", "list"]).await.expect(5).says("accepts no writes");
}
