//! A database without the engine's schema, or with another one.

use leasehold::{ConnectError, Enqueue, EnqueueError, Leasehold, SchemaError};
use leasehold_testing::TestDatabase;

use crate::support::Note;

async fn connect_error(database: &TestDatabase) -> ConnectError {
    match Leasehold::connect(&database.url()).await {
        Ok(_) => panic!("the engine must not start on this database"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn missing_schema_is_reported_with_the_command_that_creates_it() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client
        .batch_execute("drop schema leasehold, leasehold_internal cascade")
        .await
        .expect("dropped");
    let error = connect_error(&database).await;
    assert!(matches!(error, ConnectError::Schema(SchemaError::Missing)), "{error:?}");
    assert!(error.to_string().contains("leasehold migrate up"), "{error}");

    let error = Note { n: 1 }.enqueue(&client).await.expect_err("no schema");
    assert!(matches!(error, EnqueueError::NoSchema(_)), "{error:?}");
    assert!(error.to_string().contains("leasehold migrate up"), "{error}");

    Leasehold::connect_and_migrate(&database.direct_url()).await.expect("migrated");
    Note { n: 1 }.enqueue(&client).await.expect("enqueued");
}

#[tokio::test]
async fn schema_without_its_functions_is_too_old_for_an_enqueue() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let drop = "drop function leasehold.enqueue(text, jsonb, text, int, timestamptz, timestamptz, text, int, text, interval, text, text, bigint, jsonb, jsonb, jsonb)";
    client.batch_execute(drop).await.expect("dropped");
    let error = Note { n: 1 }.enqueue(&client).await.expect_err("no function");
    assert!(matches!(error, EnqueueError::NoSchema(_)), "{error:?}");
}

#[tokio::test]
async fn schema_newer_than_the_program_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let newer =
        "insert into leasehold.schema_version (version, name, checksum) values (99, 'later', '')";
    client.batch_execute(newer).await.expect("a newer schema");
    let error = connect_error(&database).await;
    assert!(matches!(error, ConnectError::Schema(SchemaError::New { found: 99, .. })), "{error:?}");
    assert!(error.to_string().contains("upgrade this program"), "{error}");
    // Nor does the program migrate a schema that it does not know.
    assert!(Leasehold::connect_and_migrate(&database.direct_url()).await.is_err());
}

#[tokio::test]
async fn migration_that_was_changed_after_it_ran_is_refused() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let change = "update leasehold.schema_version set checksum = '' where version = 1";
    client.batch_execute(change).await.expect("changed");
    let error = connect_error(&database).await;
    let changed = matches!(error, ConnectError::Schema(SchemaError::Changed { version: 1, .. }));
    assert!(changed, "{error:?}");
    assert!(error.to_string().contains("restore the original file"), "{error}");
}

#[tokio::test]
async fn missing_database_is_reported_with_advice() {
    let database = TestDatabase::new().await;
    let url = database.direct_url().replace(database.name(), "no_such_database");
    let error = Leasehold::connect(&url).await.err().expect("no such database").to_string();
    assert!(error.contains("\"no_such_database\" does not exist"), "{error}");
    assert!(error.contains("create it, for example by createdb"), "{error}");
}
