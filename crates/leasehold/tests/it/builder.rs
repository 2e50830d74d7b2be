//! Settings of the handle: each one changes what its sessions do.

use std::time::Duration;

use leasehold::tokio_postgres::config::SslMode;
use leasehold::{
    ConnectError, Enqueue, EnqueueError, Leasehold, Pooler, SchemaCheck, SchemaError, Tls,
};
use leasehold_testing::TestDatabase;
use tokio::net::TcpListener;

use crate::support::{Note, until};

async fn show(engine: &Leasehold, setting: &str) -> String {
    let client = engine.pool().get().await.expect("a connection");
    let rows = client.query("select current_setting($1)", &[&setting]).await.expect(setting);
    rows[0].get(0)
}

#[tokio::test]
async fn defaults_of_the_handle_are_those_that_the_crate_page_lists() {
    let database = TestDatabase::new().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    assert_eq!(engine.pool().status().max_size, 16);
    assert_eq!(show(&engine, "statement_timeout").await, "1min");
    assert_eq!(show(&engine, "application_name").await, "leasehold");
    assert!(!engine.database().is_pooled());
}

#[tokio::test]
async fn builder_settings_reach_every_session() {
    let database = TestDatabase::new().await;
    let engine = Leasehold::builder()
        .max_connections(3)
        .statement_timeout(Duration::from_millis(2500))
        .application_name("orders")
        .connect(&database.direct_url())
        .await
        .expect("an engine");
    assert_eq!(engine.pool().status().max_size, 3);
    assert_eq!(show(&engine, "statement_timeout").await, "2500ms");
    assert_eq!(show(&engine, "application_name").await, "orders");
    // The sessions that a worker opens get them too.
    let session = engine.database().connect().await.expect("a session");
    let rows = session.query("show statement_timeout", &[]).await.expect("a setting");
    assert_eq!(rows[0].get::<_, &str>(0), "2500ms");
}

#[tokio::test]
async fn caller_waits_for_a_connection_of_the_pool_as_long_as_the_connect_timeout() {
    let database = TestDatabase::new().await;
    let engine = Leasehold::builder()
        .max_connections(1)
        .connect_timeout(Duration::from_secs(2))
        .connect(&database.url())
        .await
        .expect("an engine");
    let held = engine.pool().get().await.expect("the only connection");
    let error = Note { n: 1 }.enqueue(&engine).await.expect_err("no connection is free");
    assert!(matches!(error, EnqueueError::NoConnection(_)), "{error}");
    drop(held);
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
}

#[tokio::test]
async fn connecting_to_a_server_that_does_not_reply_ends_at_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let limit = Duration::from_millis(300);
    let connecting = Leasehold::builder()
        .connect_timeout(limit)
        .connect(&format!("postgres://me@127.0.0.1:{port}/none?pooler=none"))
        .await;
    let error = connecting.err().expect("no reply");
    assert!(matches!(error, ConnectError::TimedOut(time) if time == limit), "{error}");
}

#[tokio::test]
async fn enqueue_ends_at_the_call_timeout() {
    let database = TestDatabase::new().await;
    let limit = Duration::from_millis(300);
    let engine = Leasehold::builder()
        .call_timeout(limit)
        .connect(&database.direct_url())
        .await
        .expect("an engine");
    let blocker = database.connect_directly().await;
    blocker.batch_execute("begin; lock table leasehold.job").await.expect("a lock");
    let error = Note { n: 1 }.enqueue(&engine).await.expect_err("the table is locked");
    assert!(matches!(error, EnqueueError::TimedOut(time) if time == limit), "{error}");
    let error = engine.enqueue_many([Note { n: 1 }]).await.expect_err("the table is locked");
    assert!(matches!(error, EnqueueError::TimedOut(time) if time == 4 * limit), "{error}");
    blocker.batch_execute("rollback").await.expect("rolled back");
}

#[tokio::test]
async fn tls_that_is_required_is_not_left_out() {
    let database = TestDatabase::new().await;
    let connecting = Leasehold::builder().tls(Tls::Require).connect(&database.direct_url()).await;
    let error = connecting.err().expect("the private server offers no TLS");
    assert!(matches!(error, ConnectError::Unreachable(_) | ConnectError::Tls(_)), "{error}");
    let url = database.direct_url();
    let plain = Leasehold::builder().tls(Tls::Disable).connect(&url).await.expect("an engine");
    let mode = plain.database().config().get_ssl_mode();
    assert!(matches!(mode, SslMode::Disable));
}

#[tokio::test]
async fn builder_overrides_the_pooler_of_the_address() {
    let database = TestDatabase::new().await;
    let builder = || Leasehold::builder().pooler(Pooler::Transaction);
    let config = database.direct_config();
    let engine = builder().connect_with(config).await.expect("an engine");
    assert!(engine.database().is_pooled());
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued without prepared statements");
    // The engine sets nothing on a session that it shares.
    assert_eq!(show(&engine, "statement_timeout").await, "0");
}

#[tokio::test]
async fn schema_is_checked_applied_or_left_alone() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client
        .batch_execute("drop schema leasehold, leasehold_internal cascade")
        .await
        .expect("an empty database");
    let connect =
        async |schema| Leasehold::builder().schema(schema).connect(&database.direct_url()).await;
    let error = connect(SchemaCheck::Check).await.err().expect("no schema");
    assert!(matches!(error, ConnectError::Schema(SchemaError::Missing)), "{error}");
    let blind = connect(SchemaCheck::None).await.expect("an engine");
    let error = Note { n: 1 }.enqueue(&blind).await.expect_err("no schema");
    assert!(matches!(error, EnqueueError::NoSchema(_)), "{error}");
    connect(SchemaCheck::Migrate).await.expect("an engine");
    Note { n: 1 }.enqueue(&blind).await.expect("enqueued");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_their_value() {
    let url = "postgres://me@localhost/none";
    for (builder, text) in [
        (Leasehold::builder().max_connections(0), "max_connections is 0; it must be 1 to 10000"),
        (Leasehold::builder().connect_timeout(Duration::ZERO), "connect_timeout is 0ns"),
        (Leasehold::builder().call_timeout(Duration::ZERO), "call_timeout is 0ns"),
        (Leasehold::builder().statement_timeout(Duration::ZERO), "statement_timeout is 0ns"),
    ] {
        let error = builder.connect(url).await.err().expect("refused").to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_is_worked_while_a_worker_of_it_lives() {
    let database = TestDatabase::new().await;
    let engine = crate::support::engine(&database).await;
    assert!(!engine.queues().is_worked("default").await.expect("a reply"));
    let worker =
        crate::fixture::run(engine.worker().queue("default", 1).handle(async |_: Note| {}));
    until(async || engine.queues().is_worked("default").await.expect("a reply")).await;
    assert!(!engine.queues().is_worked("mail").await.expect("a reply"));
    worker.stop().await;
    assert!(!engine.queues().is_worked("default").await.expect("a reply"));
}
