use leasehold_testing::{PrivatePostgres, TestDatabase};
use serde_json::Value;

use super::support::{Place, Ran, command};

pub async fn check(place: &Place, name: &str) -> Value {
    find(&place.run(&["doctor", "--json"]).await, name)
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
async fn a_healthy_server_passes_and_nothing_is_left_behind() {
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
    for table in ["job", "lease", "history", "idempotency_key", "dead_job", "queue"] {
        let rows: i64 = client
            .query_one(&format!("select count(*) from leasehold.{table}"), &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(rows, 0, "{table}");
    }
    drop(database);
    tokio::task::spawn_blocking(move || drop(postgres)).await.unwrap();
}

#[tokio::test]
async fn c5_server_without_fsync_fails_the_doctor() {
    let place = Place::new().await;
    let ran = place.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "fsync"), "fail", "off");
    assert_eq!(ran.json()["ok"], false);
    place.run(&["doctor"]).await.expect(1).prints("FAIL  fsync").prints("→");
}

/// Adds a trigger that drops every such write to a table.
async fn swallow(place: &Place, what: &str, table: &str) {
    let sql = format!(
        "create function public.swallow() returns trigger language plpgsql as 'begin return null; end'; \
         create trigger swallow before {what} on leasehold.{table} for each row execute function public.swallow()"
    );
    place.client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn c19_a_trigger_that_swallows_writes_fails_the_self_test() {
    for (what, table, step) in [
        ("insert", "job", "the enqueued job is not there"),
        ("update", "job", "the claim took nothing"),
        ("delete", "job", "could not be completed"),
        ("insert", "lease", "the lease of the claim is not there"),
        ("update", "lease", "the renewal was not accepted"),
        ("insert", "history", "not in the history"),
    ] {
        let place = Place::new().await;
        is(&check(&place, "self-test").await, "ok", "enqueue, claim, renew, complete");
        swallow(&place, what, table).await;
        let ran = place.run(&["doctor", "--json"]).await.expect(1);
        is(&find(&ran, "self-test"), "fail", step);
        is(&find(&ran, "interference"), "warn", "trigger swallow");
    }
}

#[tokio::test]
async fn c19_self_test_leaves_no_job_behind_under_a_role_that_cannot_follow_it() {
    let place = Place::new().await;
    let role = format!("stranger_{}", uuid());
    let sql = format!("create role {role} login in role leasehold_producer, leasehold_worker");
    place.client.batch_execute(&sql).await.unwrap();
    let url = place.database.direct_url().replace("user=postgres", &format!("user={role}"));
    let mut doctor = command(&["doctor", "--json"]);
    doctor.env("DATABASE_URL", url);
    let ran = Ran::of(doctor).await;
    is(&find(&ran, "self-test"), "warn", "could not be checked");
    let left = "select count(*) from leasehold.job where name = 'leasehold.self_test'";
    let left: i64 = place.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
    place.client.batch_execute(&format!("drop role {role}")).await.unwrap();
}

#[tokio::test]
async fn c19_a_row_policy_that_hides_jobs_fails_the_self_test() {
    for policy in ["create policy only_new on leasehold.job for insert with check (true)", ""] {
        let place = Place::new().await;
        // Superusers bypass every policy, so the schema must belong to another role.
        let owner = format!("owner_{}", uuid());
        let sql = format!(
            "create role {owner} login; \
             do $$ declare o record; begin \
               for o in select c.oid::regclass as name from pg_class c where c.relnamespace = 'leasehold'::regnamespace \
                         and c.relkind in ('r', 'p', 'v') loop \
                 execute format('alter table %s owner to {owner}', o.name); end loop; \
               for o in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = 'leasehold'::regnamespace loop \
                 execute format('alter function %s owner to {owner}', o.name); end loop; \
             end $$; \
             alter sequence leasehold.generation owner to {owner}; \
             alter schema leasehold owner to {owner}; \
             alter table leasehold.job enable row level security; \
             alter table leasehold.job force row level security; {policy}"
        );
        place.client.batch_execute(&sql).await.unwrap();
        let mut config: String = place.database.direct_url();
        config = config.replace("user=postgres", &format!("user={owner}"));
        let mut doctor = command(&["doctor", "--json"]);
        doctor.env("DATABASE_URL", config);
        let ran = Ran::of(doctor).await.expect(1);
        is(
            &find(&ran, "self-test"),
            "fail",
            if policy.is_empty() { "policy" } else { "is not there" },
        );
        is(&find(&ran, "interference"), "warn", "row security on job");
        let drop = format!(
            "reassign owned by {owner} to postgres; drop owned by {owner}; drop role {owner}"
        );
        place.client.batch_execute(&drop).await.unwrap();
    }
}

fn uuid() -> String {
    format!(
        "{:x}",
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
    )
}

#[tokio::test]
async fn a_missing_schema_fails_and_says_what_to_run() {
    let place = Place::new().await;
    place.client.batch_execute("drop schema leasehold cascade").await.unwrap();
    let ran = place.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "schema"), "fail", "leasehold migrate up");
}

#[tokio::test]
async fn a_function_that_somebody_changed_is_found() {
    let place = Place::new().await;
    is(&check(&place, "functions").await, "ok", "all of this release");
    place
        .client
        .batch_execute("create function leasehold.mine() returns int language sql as 'select 42'")
        .await
        .unwrap();
    is(&check(&place, "functions").await, "warn", "mine");
    place.client.batch_execute("create or replace function leasehold.wake(queue text default 'default') returns void language sql as 'select'").await.unwrap();
    is(&check(&place, "functions").await, "fail", "wake");
}

#[tokio::test]
async fn work_that_nobody_will_take_is_reported() {
    let place = Place::new().await;
    place.job("mail", "known").await;
    is(&check(&place, "workers").await, "warn", "mail has 1 waiting");
    let register = "select leasehold.register_worker('w/1', 'w', 'h', 1, '0', array['mail'], array['known'], 1, 0, false)";
    place.client.query(register, &[]).await.unwrap();
    place.workers_live().await;
    is(&check(&place, "workers").await, "ok", "every queue");
    is(&check(&place, "handlers").await, "ok", "every waiting name");
    place.job("mail", "stranger").await;
    is(&check(&place, "handlers").await, "warn", "stranger in queue mail");
    place.client.batch_execute("select leasehold.pause('mail', 'me', 'x')").await.unwrap();
    is(&check(&place, "workers").await, "warn", "paused with 2 waiting");
}

#[tokio::test]
async fn overdue_leases_and_locked_jobs_are_reported() {
    let place = Place::new().await;
    place.running("mail", "a").await;
    is(&check(&place, "leases").await, "ok", "none");
    place
        .client
        .execute("update leasehold.lease set lease_expires_at = now() - interval '2 minutes'", &[])
        .await
        .unwrap();
    is(&check(&place, "leases").await, "warn", "1 ran out");

    let id = place.job("hooks", "b").await;
    place
        .client
        .execute(
            "update leasehold.job set scheduled_at = now() - interval '2 minutes' where id = $1",
            &[&id],
        )
        .await
        .unwrap();
    is(&check(&place, "locked jobs").await, "ok", "none");
    let mut other = place.database.connect_directly().await;
    let transaction = other.transaction().await.unwrap();
    transaction.query("select from leasehold.job where id = $1 for update", &[&id]).await.unwrap();
    is(&check(&place, "locked jobs").await, "warn", &id.to_string());
}

#[tokio::test]
async fn c5_settings_that_weaken_commits_are_reported() {
    let place = Place::new().await;
    is(&check(&place, "synchronous_commit").await, "ok", "on");
    let name = place.database.name().to_owned();
    place
        .client
        .batch_execute(&format!("alter database \"{name}\" set synchronous_commit = off"))
        .await
        .unwrap();
    let found = check(&place, "synchronous_commit").await;
    assert_ne!(found["level"], "ok", "{found}");
    place
        .client
        .batch_execute("alter table leasehold.job set (autovacuum_enabled = false)")
        .await
        .unwrap();
    is(&check(&place, "autovacuum").await, "fail", "job");
}

#[tokio::test]
async fn b19_a_disabled_wake_up_trigger_is_reported() {
    let place = Place::new().await;
    let disable = "alter table leasehold.job disable trigger job_wakes_idle";
    place.client.batch_execute(disable).await.unwrap();
    is(&check(&place, "wake-up").await, "warn", "job_wakes_idle");
}

#[tokio::test]
async fn doctor_without_the_self_test_writes_nothing() {
    let place = Place::new().await;
    let before = place.number("select last_value from leasehold.generation").await;
    let ran = place.run(&["doctor", "--no-self-test", "--json"]).await.expect(1);
    assert!(!ran.stdout.contains("self-test"));
    assert_eq!(place.number("select last_value from leasehold.generation").await, before);
}

/// Sets a default for every session on this database.
async fn default_of(place: &Place, setting: &str) {
    let name = place.database.name();
    let sql = format!("alter database \"{name}\" set {setting}");
    place.client.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn b16_isolation_that_a_pooler_hides_is_reported() {
    let place = Place::new().await;
    is(&check(&place, "isolation").await, "ok", "read committed");
    default_of(&place, "default_transaction_isolation = 'serializable'").await;
    is(&check(&place, "isolation").await, "ok", "workers use read committed");
    let ran = place.run(&["doctor", "--json", "--pooler", "transaction"]).await;
    is(&find(&ran, "isolation"), "warn", "serializable through a pooler");
    is(&find(&ran, "pooler"), "warn", "shares sessions");
    place.run(&["doctor", "--pooler", "odd"]).await.expect(2).says("transaction");
}

#[tokio::test]
async fn b12_server_that_accepts_no_writes_is_reported_and_refused() {
    let place = Place::new().await;
    is(&check(&place, "primary").await, "ok", "accepts writes");
    default_of(&place, "default_transaction_read_only = on").await;
    let ran = place.run(&["doctor", "--json"]).await.expect(1);
    is(&find(&ran, "primary"), "fail", "accepts no writes");
    place.run(&["queues", "list"]).await.expect(5).says("accepts no writes");
}
