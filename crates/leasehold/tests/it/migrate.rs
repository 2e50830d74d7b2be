//! Migrations: applied once, as a whole or not at all, and without stopping other work.

use leasehold::SchemaError;
use leasehold::migrate;
use leasehold_testing::TestDatabase;
use tokio_postgres::{Client, NoTls};

use crate::sql::{Sql, blocked, claim, joined, one, pid, run, text, until};

/// Creates an empty database beside the migrated one, and returns its name.
pub async fn empty(sql: &Sql) -> String {
    let name: String = sql.database.name().chars().take(40).chain("_empty".chars()).collect();
    // Not `template1`, which may have open connections.
    sql.run(&format!("create database \"{name}\" template template0")).await;
    name
}

pub async fn connect(database: &TestDatabase, name: &str) -> Client {
    let mut config = database.direct_config();
    config.dbname(name);
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub async fn drop_empty(sql: &Sql, name: &str) {
    let statement = format!("drop database if exists \"{name}\" with (force)");
    // The server waits a few seconds for the sessions that it terminates, and then refuses.
    crate::fixture::until("the database is dropped", async || {
        sql.client.batch_execute(&statement).await.is_ok()
    })
    .await;
}

const STANDS: &str = "select to_regclass('leasehold.job') is not null";

#[tokio::test]
async fn i2_concurrent_migrators_migrate_once() {
    let sql = Sql::new().await;
    let name = empty(&sql).await;
    let mut migrators = Vec::new();
    for _ in 0..6 {
        let mut client = connect(&sql.database, &name).await;
        migrators.push(tokio::spawn(async move { migrate::up(&mut client).await }));
    }
    let mut applied = Vec::new();
    for migrator in migrators {
        applied.extend(joined(migrator).await.expect("every migrator is content"));
    }
    applied.sort_unstable();
    let all: Vec<i32> = migrate::MIGRATIONS.iter().map(|one| one.version).collect();
    assert_eq!(applied, all, "each version by one of them");
    let mut client = connect(&sql.database, &name).await;
    assert!(migrate::status(&client).await.unwrap().is_current());
    assert_eq!(migrate::up(&mut client).await.unwrap(), [0_i32; 0], "again: nothing to do");
    run(&client, "select leasehold.enqueue('note'); select leasehold.claim('w')").await;
    drop_empty(&sql, &name).await;
}

#[tokio::test]
async fn i2_killed_migrator_leaves_nothing_and_the_next_one_finishes() {
    let sql = Sql::new().await;
    let name = empty(&sql).await;
    let observer = connect(&sql.database, &name).await;
    // An event trigger that waits stops the migrator at a table in the middle.
    run(
        &observer,
        "create function public.stall() returns event_trigger language plpgsql as $$
         declare command record;
         begin
            for command in select * from pg_event_trigger_ddl_commands() loop
                if command.object_identity = current_setting('test.stall_at', true) then
                    perform pg_advisory_xact_lock(43);
                end if;
            end loop;
         end $$;
         create event trigger stall on ddl_command_end execute function public.stall();
         select pg_advisory_lock(43)",
    )
    .await;
    for at in [
        "leasehold.schema_version",
        "leasehold.job",
        "leasehold_internal.dead_job",
        "leasehold.audit",
        "leasehold.contract()",
        "leasehold.jobs",
    ] {
        let mut migrator = connect(&sql.database, &name).await;
        run(&migrator, &format!("set test.stall_at = '{at}'")).await;
        let migrator_pid = pid(&migrator).await;
        let before: i64 = one(&observer, "select count(*) from pg_class", &[]).await;
        let migrating = tokio::spawn(async move { migrate::up(&mut migrator).await.is_err() });
        blocked(&observer, migrator_pid).await;
        run(&observer, &format!("select pg_terminate_backend({migrator_pid})")).await;
        assert!(joined(migrating).await, "killed at {at}");
        until(
            &observer,
            "select not exists (select from pg_stat_activity where pid = $1)",
            &[&migrator_pid],
        )
        .await;
        let after: i64 = one(&observer, "select count(*) from pg_class", &[]).await;
        // Whole steps before it may be there; nothing of the step itself is.
        assert!(after >= before, "{at}");
        if at.ends_with("schema_version") || at.ends_with("dead_job") {
            assert!(!one::<bool>(&observer, STANDS, &[]).await, "{at}");
        }
        let functions: i64 = one(
            &observer,
            // A migration itself creates the function of its trigger.
            "select count(*) from pg_proc where pronamespace = to_regnamespace('leasehold_internal') \
             and prorettype <> 'trigger'::regtype",
            &[],
        )
        .await;
        assert_eq!(functions, 0, "{at}");
    }
    run(&observer, "select pg_advisory_unlock(43)").await;
    let mut client = connect(&sql.database, &name).await;
    migrate::up(&mut client).await.expect("the next one finishes");
    assert!(migrate::status(&client).await.unwrap().is_current());
    drop_empty(&sql, &name).await;
}

#[tokio::test]
async fn i2_changed_or_newer_schema_is_refused() {
    let sql = Sql::new().await;
    let mut client = sql.actor().await;
    assert_eq!(migrate::up(&mut client).await.unwrap(), [0_i32; 0]);
    run(&client, "update leasehold.schema_version set checksum = '\\x00' where version = 1").await;
    assert!(matches!(migrate::up(&mut client).await, Err(SchemaError::Changed { version: 1, .. })));
    run(&client, "delete from leasehold.schema_version where version > 0; \
                  insert into leasehold.schema_version values (1, 'tables', '\\x00'), (999, 'later', '\\x00')")
        .await;
    let status = migrate::status(&client).await.unwrap();
    assert_eq!(status.found, Some(999));
    assert!(!status.is_current());
}

#[tokio::test]
async fn c14_migration_without_its_lock_does_not_stop_workers() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.enqueue(3).await;
    // A long transaction that has read and written jobs.
    let long = sql.actor().await;
    run(&long, "begin; select leasehold.enqueue('note')").await;
    // A migration that wants an exclusive lock on the table, with the usual timeouts.
    let migrator = sql.actor().await;
    let migrator_pid = pid(&migrator).await;
    let script = "begin; set local lock_timeout = '2s'; set local statement_timeout = '10min'; \
                  alter table leasehold.job add column later int; commit";
    let migrating = tokio::spawn(async move {
        let mut tries = 0;
        loop {
            tries += 1;
            match migrator.batch_execute(script).await {
                Ok(()) => return tries,
                Err(error) => {
                    assert!(text(&error).contains("lock timeout"), "{}", text(&error));
                    run(&migrator, "rollback").await;
                }
            }
        }
    });
    blocked(&sql.client, migrator_pid).await;
    // These wait behind it, and run when its lock timeout strikes, though the long transaction is
    // still open.
    let held = claim(&sql.client, "w", 1).await;
    assert_eq!(held.ids.len(), 1);
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await
    );
    run(&long, "commit").await;
    assert!(joined(migrating).await > 1, "it tried again");
    sql.run(&format!("select leasehold.complete({}::bigint, {})", held.ids[0], held.generation))
        .await;
}

#[tokio::test]
async fn c14_replacing_functions_does_not_wait_for_open_transactions() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    let long = sql.actor().await;
    run(&long, "begin").await;
    let held = claim(&long, "w", 1).await;
    let mut migrator = sql.actor().await;
    run(
        &migrator,
        "update leasehold.schema_version set checksum = '\\x00' where version = 0; set lock_timeout = '1ms'",
    )
    .await;
    assert!(!migrate::status(&migrator).await.unwrap().functions_current);
    migrate::up(&mut migrator).await.expect("beside an open transaction");
    assert!(migrate::status(&migrator).await.unwrap().is_current());
    assert!(
        one::<bool>(
            &long,
            "select leasehold.complete($1::bigint, $2)",
            &[&held.ids[0], &held.generation]
        )
        .await
    );
    run(&long, "commit").await;
    assert_eq!(sql.count("finished_job").await, 1);
}

#[tokio::test]
async fn i10_up_needs_no_right_to_create_on_a_current_schema() {
    let sql = Sql::new().await;
    let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
    sql.run(&format!(
        "create role {role}; grant usage on schema leasehold to {role}; \
         grant select on leasehold.schema_version to {role}"
    ))
    .await;
    let mut client = sql.actor().await;
    run(&client, &format!("set role {role}")).await;
    let create = "select has_database_privilege(current_database(), 'create')";
    assert!(!one::<bool>(&client, create, &[]).await);
    assert_eq!(migrate::up(&mut client).await.expect("nothing to do"), [0_i32; 0]);
    run(&client, "reset role").await;
    sql.run(&format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn i10_up_sends_no_notice_on_a_current_schema() {
    let sql = Sql::new().await;
    let (mut client, mut connection) =
        sql.database.direct_config().connect(NoTls).await.expect("a connection");
    let (said, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                drop(said.send(notice.message().to_owned()));
            }
        }
    });
    migrate::up(&mut client).await.expect("current");
    // With the functions of another build, and another look at the version table.
    run(&client, "update leasehold.schema_version set checksum = '\\x00' where version = 0").await;
    migrate::up(&mut client).await.expect("replaced");
    drop(client);
    let mut notices = Vec::new();
    while let Some(notice) = hearing.recv().await {
        notices.push(notice);
    }
    assert_eq!(notices, [""; 0]);
}
