use std::time::Duration;

use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio_postgres::Config;

async fn jobs(client: &tokio_postgres::Client) -> i64 {
    let row = client.query_one("select count(*) from leasehold.job", &[]).await.expect("migrated");
    row.get(0)
}

#[tokio::test]
async fn databases_of_two_tests_are_separate() {
    let (one, two) = (TestDatabase::new().await, TestDatabase::new().await);
    let (first, second) = (one.connect().await, two.connect().await);
    first.batch_execute("insert into leasehold.job (name) values ('a')").await.unwrap();
    assert_eq!((jobs(&first).await, jobs(&second).await), (1, 0));
    assert!(one.name().contains("databases_of_two_tests"), "{}", one.name());
    let by_url: Config = one.url().parse().unwrap();
    assert_eq!(by_url.get_dbname(), Some(one.name()));
}

#[tokio::test(flavor = "multi_thread")]
async fn database_is_dropped_with_open_sessions() {
    let (kept, dropped) = (TestDatabase::new().await, TestDatabase::new().await);
    let name = dropped.name().to_owned();
    let inside = dropped.connect_directly().await;
    drop(dropped);
    assert!(inside.query_one("select 1", &[]).await.is_err());
    let outside = kept.connect().await;
    let sql = "select from pg_database where datname = $1";
    assert!(outside.query_opt(sql, &[&name]).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn database_is_created_under_a_paused_clock() {
    let begin = tokio::time::Instant::now();
    let database = TestDatabase::new().await;
    drop(database);
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn test_may_crash_a_private_server() {
    let mut postgres = PrivatePostgres::throwaway().start().unwrap();
    let database = TestDatabase::on(&postgres).await.unwrap();
    let client = database.connect().await;
    client.batch_execute("insert into leasehold.job (name) values ('a')").await.unwrap();
    postgres.crash().unwrap();
    assert!(client.query_one("select 1", &[]).await.is_err());
    postgres.start_again().unwrap();
    assert_eq!(jobs(&database.connect().await).await, 1);
}
