//! Sessions that statements of several callers share.

use std::time::Duration;

use leasehold::database::Database;
use leasehold::link::Links;
use leasehold_testing::TestDatabase;

use crate::rig::{number, soon, until};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_statement_does_not_stand_behind_a_slow_one_while_another_session_is_free() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    client.batch_execute("create table held ()").await.unwrap();
    client.batch_execute("begin; lock table held").await.unwrap();
    let links = Links::new(&Database::new(&database.url()).unwrap(), 2, LIMIT);
    let slow = links.query("select from held", &[]);
    let quick = async {
        let watching = database.connect().await;
        until("the slow one waits", async || {
            let sql = "select count(*) from pg_locks where not granted \
                       and relation = to_regclass('held')";
            number(&watching, sql).await == 1
        })
        .await;
        for _ in 0..4 {
            soon(links.query("select 1", &[])).await.unwrap();
        }
        client.batch_execute("commit").await.unwrap();
    };
    let (slow, ()) = tokio::join!(slow, quick);
    slow.unwrap();
}
