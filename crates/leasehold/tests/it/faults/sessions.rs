//! Sessions that are open but no longer usable.

use std::time::Duration;

use leasehold::database::{Database, Pooler};
use leasehold::link::Link;
use leasehold::{Enqueue, Finished, Leasehold};
use leasehold_testing::{PgBouncer, PrivatePostgres, TestDatabase};
use tokio_postgres::types::Type;

use crate::fixture::{count, run, sql, until};
use crate::support::Note;

const LIMIT: Duration = Duration::from_secs(30);
const READ_ONLY: &str = "set session characteristics as transaction read only";

async fn backend(link: &Link) -> i32 {
    link.query("select pg_backend_pid()", &[]).await.expect("a backend")[0].get(0)
}

#[tokio::test]
async fn b13_session_that_accepts_no_writes_is_dropped() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    sql(&client, "create table written ()").await;
    let link = Link::new(Database::new(&database.direct_url()).unwrap(), LIMIT);
    link.query(READ_ONLY, &[]).await.expect("set");
    let write = "insert into written default values";
    assert!(link.query(write, &[]).await.is_err(), "the session accepts no writes");
    link.query(write, &[]).await.expect("another session does");
    assert_eq!(count(&client, "select count(*) from written").await, 1);
}

#[tokio::test]
async fn b13_errors_that_end_a_session_differ_from_those_of_a_statement() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    sql(
        &client,
        "create function fail(code text) returns void language plpgsql as \
         $$ begin raise exception 'made up' using errcode = code; end $$",
    )
    .await;
    let known = Database::new(&database.direct_url()).unwrap().with_pooler(Pooler::None);
    let link = Link::new(known, LIMIT);
    for (ends, codes) in [
        (
            true,
            "25006 25P02 57P01 57P02 57P03 57P04 57P05 26000 42P05 0A000 55000 08006 58030 XX000 XX001",
        ),
        (false, "22012 22008 23505 40001 40P01 42501 53200 54001 55P03 57014 P0001 LH004"),
    ] {
        for code in codes.split(' ') {
            let before = backend(&link).await;
            let failed = link.query("select fail($1)", &[(&code, Type::TEXT)]).await;
            assert!(failed.is_err(), "{code}");
            assert_eq!(backend(&link).await != before, ends, "{code}");
        }
    }
}

#[tokio::test]
async fn b13_server_that_accepts_no_writes_is_refused_and_found_again() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let mut worker = run(engine.worker().queue("default", 2).handle(async |_: Note| {}));
    Note { n: 0 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Completed);
    let name = database.name();
    sql(&client, &format!("alter database \"{name}\" set default_transaction_read_only = on"))
        .await;
    let ours = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity \
         where application_name = 'leasehold' and datname = '{name}'"
    );
    assert!(count(&client, &ours).await > 0);
    let refused = Database::new(&database.direct_url()).unwrap().connect().await.err();
    let text = refused.expect("no session on a server that accepts no writes").to_string();
    assert!(text.contains("default_transaction_read_only") && text.contains("primary"), "{text}");
    // Wait until the worker's loops have met the read-only server.
    let opened = "select sessions from pg_stat_database where datname = current_database()";
    let before = count(&client, opened).await;
    until("they came back", async || count(&client, opened).await > before + 5).await;
    sql(&client, &format!("alter database \"{name}\" reset default_transaction_read_only")).await;
    until("an enqueue is accepted", async || Note { n: 1 }.enqueue(&engine).await.is_ok()).await;
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
}

#[tokio::test]
async fn b13_pool_lends_no_connection_that_accepts_no_writes() {
    let database = TestDatabase::new().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    for n in 0..40 {
        let connection = engine.pool().get().await.expect("a connection");
        connection.batch_execute(READ_ONLY).await.expect("set");
        drop(connection);
        let draft = Note { n }.draft().expect("a draft").key(format!("{n}"));
        draft.enqueue(&engine).await.expect("repeated on another connection");
    }
    let client = database.connect_directly().await;
    assert_eq!(crate::fixture::jobs(&client).await, 40);
}

#[tokio::test]
async fn b15_session_that_lost_its_statements_is_dropped_and_no_more_are_prepared() {
    let database = TestDatabase::new().await;
    let shared = Database::new(&database.direct_url()).unwrap();
    let link = Link::new(shared.clone(), LIMIT);
    let first = backend(&link).await;
    // As a pooler does when it lends the session to another client.
    link.query("deallocate all", &[]).await.expect("deallocated");
    assert!(link.query("select pg_backend_pid()", &[]).await.is_err(), "26000");
    assert!(shared.is_pooled(), "every copy of the database knows");
    assert_ne!(backend(&link).await, first);
    let prepared = "select count(*) from pg_prepared_statements";
    let left: i64 = link.query(prepared, &[]).await.expect("asked")[0].get(0);
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b15_pooler_that_lends_backends_in_turn_is_detected() {
    let postgres = PrivatePostgres::throwaway().start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    let settings = ["server_round_robin = 1", "min_pool_size = 5"];
    let pgbouncer = PgBouncer::start_with(&postgres, 6, &settings).expect("a pooler");
    let url = pgbouncer.url(database.name());
    // Make the pooler open its five backends first.
    let client = database.connect_directly().await;
    let first = Database::new(&url).unwrap().with_pooler(Pooler::Transaction).connect().await;
    let first = first.expect("a session");
    first.batch_execute("select 1").await.expect("asked");
    let waiting = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and pid <> pg_backend_pid()",
        database.name()
    );
    until("the pooler opened its backends", async || count(&client, &waiting).await >= 5).await;
    assert!(Database::new(&url).unwrap().probe_pooler().await.expect("probed"));
    assert!(!Database::new(&database.direct_url()).unwrap().probe_pooler().await.expect("probed"));
}

#[tokio::test]
async fn b15_pooler_that_is_declared_is_not_probed() {
    let database = TestDatabase::new().await;
    let named = format!("{}&pooler=transaction", database.direct_url());
    let engine = Leasehold::connect(&named).await.expect("an engine");
    assert!(engine.database().is_pooled());
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let link = Link::new(engine.database().clone(), LIMIT);
    let jit = "select source from pg_settings where name = 'jit'";
    let source: String = link.query(jit, &[]).await.expect("asked")[0].get(0);
    assert_ne!(source, "session", "nothing is set on a session that others share");
    let direct = Database::new(&format!("{}&pooler=none", database.direct_url())).unwrap();
    assert!(!direct.probe_pooler().await.expect("nothing to probe"));
}

#[tokio::test]
async fn b16_sessions_of_the_engine_work_at_read_committed_whatever_the_default() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let name = database.name();
    let level = "set default_transaction_isolation = 'serializable'";
    sql(&client, &format!("alter database \"{name}\" {level}")).await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let ask = "select current_setting('transaction_isolation')";
    let link = Link::new(engine.database().clone(), LIMIT);
    let level: String = link.query(ask, &[]).await.expect("asked")[0].get(0);
    assert_eq!(level, "read committed");
    let connection = engine.pool().get().await.expect("a connection");
    let level: String = connection.query_one(ask, &[]).await.expect("asked").get(0);
    assert_eq!(level, "read committed");
}
