//! Finishes that take longer than the statement timeout.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testing::{PgBouncer, PrivatePostgres, TestDatabase};

use super::fixture::{Shelf, TABLES, loans};
use crate::fixture::{count, sql};

/// Fails after a while if more than 20 rows are finished by one statement.
const SLOW: &str = "select library.slow(count(*)) from finished";

fn slow(seconds: u32) -> String {
    format!(
        "create function library.slow(rows bigint) returns void language plpgsql as $$
         begin
             if rows > 20 then
                 perform pg_sleep({seconds});
                 raise exception 'too many';
             end if;
         end $$"
    )
}

#[tokio::test]
async fn d20_finish_that_times_out_is_halved_until_it_succeeds() {
    let shelf = Shelf::with(200).await;
    // Longer than the test may take, unless the server ends it before the client times out.
    shelf.sql(&slow(600)).await;
    let sweep = loans().limit(Duration::from_secs(6)).finishing(SLOW);
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed, report.lost), (200, 0, 0));
    assert_eq!(shelf.count("state = 'back'").await, 200);
    shelf.assert_each_finished_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d20_finish_without_a_response_through_a_pooler_is_halved() {
    let postgres = PrivatePostgres::throwaway().start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    let pgbouncer = PgBouncer::start(&postgres, 6).expect("a pooler");
    let client = database.connect_directly().await;
    sql(&client, TABLES).await;
    sql(&client, &slow(6)).await;
    sql(
        &client,
        "insert into library.loans (id, book, ends_at)
         select n, n % 10, statement_timestamp() - interval '1 day' from generate_series(1, 60) n",
    )
    .await;
    let engine = Leasehold::connect(&pgbouncer.url(database.name())).await.expect("an engine");
    assert!(engine.database().is_pooled());
    let sweep = loans().limit(Duration::from_secs(4)).finishing(SLOW);
    let report = sweep.run_once(&engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed, report.lost), (60, 0, 0));
    let done = "select count(*) from library.loans where state = 'back'";
    assert_eq!(count(&client, done).await, 60);
}
