use leasehold_testing::{PgBouncer, PrivatePostgres, TestDatabase};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

async fn connect(pooler: &PgBouncer, database: &str) -> Client {
    let (client, connection) = pooler.config(database).connect(NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// Queries one value by the simple protocol: an old pooler supports no named statements.
async fn ask(client: &Client, sql: &str) -> String {
    for message in client.simple_query(sql).await.expect(sql) {
        if let SimpleQueryMessage::Row(row) = message {
            return row.get(0).unwrap_or_default().to_owned();
        }
    }
    panic!("no row: {sql}")
}

#[tokio::test]
async fn clients_share_a_server_connection_between_transactions() {
    let postgres = PrivatePostgres::throwaway().start().unwrap();
    let pooler = PgBouncer::start(&postgres, 1).unwrap();
    let database = TestDatabase::on(&postgres).await.unwrap();
    let (one, two) =
        (connect(&pooler, database.name()).await, connect(&pooler, database.name()).await);
    let pid = ask(&one, "select pg_backend_pid()").await;
    assert_eq!(ask(&two, "select pg_backend_pid()").await, pid);
    // What one client sets for its session, another client gets.
    one.batch_execute("set application_name = 'left behind'").await.unwrap();
    one.batch_execute("select set_config('leasehold.x', 'left behind', false)").await.unwrap();
    assert_eq!(ask(&two, "select current_setting('leasehold.x', true)").await, "left behind");
}

#[tokio::test]
async fn connection_options_are_accepted() {
    let postgres = PrivatePostgres::throwaway().start().unwrap();
    let pooler = PgBouncer::start(&postgres, 1).unwrap();
    let mut config = pooler.config("postgres");
    config.options("-c statement_timeout=5s");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(ask(&client, "select 1").await, "1");
    drop(pooler);
    assert!(client.simple_query("select 1").await.is_err());
}
