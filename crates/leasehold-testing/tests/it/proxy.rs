use std::time::Duration;

use leasehold_testing::proxy::{FaultProxy, Rule};
use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio_postgres::{Client, Error, NoTls};

/// A database with an empty table `t (n)`, a proxy in front of it, and a client without the proxy.
struct Setup {
    proxy: FaultProxy,
    direct: Client,
    _database: TestDatabase,
}

impl Setup {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let direct = database.connect_directly().await;
        direct.batch_execute("create table t (n int8)").await.unwrap();
        let proxy = FaultProxy::before(&database.direct_config()).unwrap();
        Self { proxy, direct, _database: database }
    }

    async fn client(&self) -> Client {
        self.try_client().await.expect("connects through the proxy")
    }

    async fn try_client(&self) -> Result<Client, Error> {
        let (client, connection) = self.proxy.config().connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Returns the sum of the table, read without the proxy.
    async fn sum(&self) -> i64 {
        let row =
            self.direct.query_one("select coalesce(sum(n), 0)::int8 from t", &[]).await.unwrap();
        row.get(0)
    }

    /// Returns whether a transaction holds the table's only row.
    async fn is_locked(&self) -> bool {
        let sql = "select n from t for update skip locked";
        self.direct.query(sql, &[]).await.unwrap().is_empty()
    }

    async fn wait_until_locked(&self) {
        let locked = async { while !self.is_locked().await {} };
        tokio::time::timeout(LIMIT, locked).await.expect("the row gets locked");
    }

    async fn wait_until_free(&self) {
        let free = async { while self.is_locked().await {} };
        tokio::time::timeout(LIMIT, free).await.expect("the row gets free");
    }
}

/// Only a failing test takes this long.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn proxy_without_rules_passes_everything() {
    let setup = Setup::new().await;
    let mut client = setup.client().await;
    client.execute("insert into t values ($1)", &[&1i64]).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into t values (2)", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    let row = client.query_one("select repeat('x', 1000000)", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0).len(), 1_000_000);
    let long = "y".repeat(1_000_000);
    let row = client.query_one("select length($1::text)", &[&long]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 1_000_000);
    assert_eq!(setup.sum().await, 3);
    assert_eq!(setup.proxy.connections(), 1);
    let url: tokio_postgres::Config = setup.proxy.url().parse().unwrap();
    assert!(url.connect(NoTls).await.is_ok());
}

#[tokio::test]
async fn lost_reply_leaves_the_row() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let rule = setup.proxy.add(Rule::drop_reply_to("insert into t"));
    let error = client.execute("insert into t values (1)", &[]).await.unwrap_err();
    assert!(error.is_closed() || error.as_db_error().is_none(), "{error:?}");
    // Fired means that the server has finished, so there is nothing to wait for.
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await, 1);
    // The rule fires only once.
    setup.client().await.execute("insert into t values (2)", &[]).await.unwrap();
    assert_eq!((setup.sum().await, setup.proxy.fired(rule)), (3, 1));
}

#[tokio::test]
async fn lost_reply_to_a_commit_leaves_the_row() {
    let setup = Setup::new().await;
    let mut client = setup.client().await;
    let rule = setup.proxy.add(Rule::drop_reply_to_commit());
    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into t values (1)", &[]).await.unwrap();
    assert!(transaction.commit().await.is_err());
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await, 1);
}

#[tokio::test]
async fn commit_of_a_failed_transaction_does_not_match_the_rule() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let rule = setup.proxy.add(Rule::drop_reply_to_commit());
    client.batch_execute("begin").await.unwrap();
    client.batch_execute("select 1/0").await.unwrap_err();
    client.batch_execute("commit").await.unwrap();
    assert_eq!(setup.proxy.fired(rule), 0);
}

#[tokio::test]
async fn statement_prepared_earlier_is_recognised() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let insert = client.prepare("insert into t values ($1)").await.unwrap();
    client.prepare("select 1").await.unwrap();
    let rule = setup.proxy.add(Rule::drop_reply_to("insert into t").skip(2));
    client.execute(&insert, &[&1i64]).await.unwrap();
    client.execute(&insert, &[&2i64]).await.unwrap();
    client.execute(&insert, &[&4i64]).await.unwrap_err();
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await, 7);
}

#[tokio::test]
async fn pipeline_loses_the_chosen_and_later_replies_only() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let insert = client.prepare("insert into t values ($1)").await.unwrap();
    let chosen = client.prepare("insert into t values ($1) -- chosen").await.unwrap();
    let rule = setup.proxy.add(Rule::drop_reply_to("-- chosen"));
    let run = async |statement, n: i64| client.execute(statement, &[&n]).await;
    let (first, second, third) = tokio::join!(run(&insert, 1), run(&chosen, 2), run(&insert, 4),);
    assert!(first.is_ok() && second.is_err() && third.is_err(), "{first:?} {second:?} {third:?}");
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await & 3, 3);
}

#[tokio::test]
async fn copy_does_not_shift_the_lost_reply() {
    use std::pin::pin;
    let setup = Setup::new().await;
    let client = setup.client().await;
    for round in 0..2 {
        let sink = client.copy_in::<_, &[u8]>("copy t from stdin").await.unwrap();
        let mut sink = pin!(sink);
        futures_util::SinkExt::send(&mut sink, &b"1\n"[..]).await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 1, "round {round}");
    }
    let rule = setup.proxy.add(Rule::drop_reply_to("-- chosen"));
    client.execute("insert into t values (10)", &[]).await.unwrap();
    client.execute("insert into t values (100) -- chosen", &[]).await.unwrap_err();
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await, 112);
}

#[tokio::test]
async fn statement_cut_off_before_it_is_sent_never_runs() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let rule = setup.proxy.add(Rule::cut_before("insert into t").times(2));
    client.execute("insert into t values (1)", &[]).await.unwrap_err();
    setup.client().await.batch_execute("insert into t values (2)").await.unwrap_err();
    setup.proxy.wait_fired_times(rule, 2).await.unwrap();
    setup.client().await.batch_execute("insert into t values (4)").await.unwrap();
    assert_eq!(setup.sum().await, 4);
}

#[tokio::test]
async fn blackhole_after_a_statement_keeps_its_locks() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    setup.direct.batch_execute("insert into t values (1)").await.unwrap();
    client.batch_execute("begin").await.unwrap();
    let rule = setup.proxy.add(Rule::blackhole_after("for update"));
    let asking = tokio::spawn(async move {
        let rows = client.query("select n from t for update", &[]).await;
        (client, rows)
    });
    setup.proxy.wait_fired(rule).await.unwrap();
    setup.wait_until_locked().await;
    assert!(!asking.is_finished());
    setup.proxy.remove(rule);
    let (client, rows) = asking.await.unwrap();
    assert_eq!(rows.unwrap().len(), 1);
    client.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn client_that_dies_behind_a_blackhole_keeps_its_locks() {
    let setup = Setup::new().await;
    let other = setup.client().await;
    let (client, connection) = setup.proxy.config().connect(NoTls).await.unwrap();
    let socket = tokio::spawn(connection);
    setup.direct.batch_execute("insert into t values (1)").await.unwrap();
    client.batch_execute("begin").await.unwrap();
    let rule = setup.proxy.add(Rule::blackhole_after("for update"));
    let asking = tokio::spawn(async move { client.query("select n from t for update", &[]).await });
    setup.proxy.wait_fired(rule).await.unwrap();
    setup.wait_until_locked().await;
    // The client dies: its socket closes.
    socket.abort();
    assert!(socket.await.unwrap_err().is_cancelled());
    asking.await.unwrap().unwrap_err();
    // Gives the proxy many occasions to forward the end.
    for _ in 0..50 {
        other.batch_execute("select 1").await.unwrap();
    }
    assert!(setup.is_locked().await);
    setup.proxy.remove(rule);
    setup.wait_until_free().await;
}

#[tokio::test]
async fn blackhole_holds_everything_until_it_is_removed() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let rule = setup.proxy.add(Rule::blackhole());
    let asking = tokio::spawn(async move { client.execute("insert into t values (1)", &[]).await });
    setup.proxy.wait_fired(rule).await.unwrap();
    assert_eq!(setup.sum().await, 0);
    assert!(!asking.is_finished());
    setup.proxy.heal();
    asking.await.unwrap().unwrap();
    assert_eq!(setup.sum().await, 1);
}

#[tokio::test]
async fn reset_ends_every_connection_and_allows_new_ones() {
    let setup = Setup::new().await;
    let (one, two) = (setup.client().await, setup.client().await);
    assert_eq!(setup.proxy.reset_all(), 2);
    assert!(one.batch_execute("select 1").await.is_err());
    assert!(two.batch_execute("select 1").await.is_err());
    setup.client().await.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn refused_connections_are_counted() {
    let setup = Setup::new().await;
    let rule = setup.proxy.add(Rule::refuse_connections().times(2));
    assert!(setup.try_client().await.is_err());
    assert!(setup.try_client().await.is_err());
    assert!(setup.try_client().await.is_ok());
    assert_eq!(setup.proxy.fired(rule), 2);
}

#[tokio::test]
async fn cut_after_a_client_message_delivers_it() {
    let setup = Setup::new().await;
    let rule = setup.proxy.add(Rule::cut_after_client_message(2));
    let client = setup.client().await;
    client.batch_execute("insert into t values (1)").await.unwrap();
    client.batch_execute("insert into t values (2)").await.unwrap_err();
    assert_eq!(setup.proxy.fired(rule), 1);
}

#[tokio::test]
async fn cut_inside_a_row_is_an_error() {
    let setup = Setup::new().await;
    // Row description, row, …
    let rule = setup.proxy.add(Rule::cut_inside_server_message(2));
    let client = setup.client().await;
    client.simple_query("select repeat('x', 100000)").await.unwrap_err();
    assert_eq!(setup.proxy.fired(rule), 1);
}

#[tokio::test]
async fn slow_network_changes_no_result() {
    let setup = Setup::new().await;
    let slow = setup.proxy.add(Rule::throttle(200_000));
    let late = setup.proxy.add(Rule::delay(Duration::from_millis(5)));
    let one = setup.proxy.add(Rule::delay_statement("repeat", Duration::from_millis(5)));
    let client = setup.client().await;
    let row = client.query_one("select repeat('x', 50000)", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0).len(), 50_000);
    assert!(setup.proxy.fired(slow) >= 5);
    assert!(setup.proxy.fired(late) >= 2);
    assert_eq!(setup.proxy.fired(one), 1);
}

#[tokio::test]
async fn proxy_passes_cancel_requests() {
    let setup = Setup::new().await;
    let client = setup.client().await;
    let token = client.cancel_token();
    let sleeping = tokio::spawn(async move { client.batch_execute("select pg_sleep(600)").await });
    let asleep = "select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    while setup.direct.query(asleep, &[]).await.unwrap().is_empty() {}
    token.cancel_query(NoTls).await.unwrap();
    let error = sleeping.await.unwrap().unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014");
}

#[tokio::test]
async fn proxy_reconnects_to_a_restarted_server() {
    let mut postgres = PrivatePostgres::throwaway().start().unwrap();
    let proxy = FaultProxy::before(&postgres.config("postgres")).unwrap();
    postgres.crash().unwrap();
    assert!(proxy.config().connect(NoTls).await.is_err());
    postgres.start_again().unwrap();
    assert!(proxy.config().connect(NoTls).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn unused_fault_rule_panics_with_its_description() {
    let setup = FaultProxy::before("host=/nowhere user=me".parse().as_ref().unwrap()).unwrap();
    let rule = setup.add(Rule::drop_reply_to("x"));
    let error = setup.wait_fired(rule).await.unwrap_err().to_string();
    assert!(error.contains("fired 0 times instead of 1"), "{error}");
}
