//! Sessions that statements of several callers share.

use std::time::Duration;

use leasehold::database::Database;
use leasehold::link::Links;
use leasehold_testing::TestDatabase;

use crate::fixture::{number, soon, until};

/// Longer than the server's own statement timeout.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits for the table, without the engine's lock timeout.
const SLOW: &str = "create function slow() returns void language plpgsql set lock_timeout = 0 \
                    as 'begin perform from held; end'";

#[tokio::test]
async fn statement_does_not_wait_for_a_slow_one_while_a_session_is_free() {
    let database = TestDatabase::new().await;
    // Directly: a pooler shares a few sessions between all tests.
    let client = database.connect_directly().await;
    client.batch_execute("create table held ()").await.unwrap();
    client.batch_execute(SLOW).await.unwrap();
    client.batch_execute("begin; lock table held").await.unwrap();
    let links = Links::new(&Database::new(&database.direct_url()).unwrap(), 2, LIMIT);
    let slow = links.query("select slow()", &[]);
    let quick = async {
        let watching = database.connect_directly().await;
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
