//! What a claim, a finish and the watchdog read, with few rows and with many.

use leasehold::testing::{SweepSql, sweep_sql};
use leasehold_testing::plan::Plan;
use tokio_postgres::Client;

use super::fixture::{Shelf, loans};
use crate::fixture::until;

async fn plan(client: &Client, sql: &str, types: &str, values: &str) -> Plan {
    leasehold_testing::plan::plan(client, "loans", sql, types, values).await
}

async fn assert_plans(client: &Client, sql: &SweepSql, when: &str) {
    let claim = plan(client, &sql.claim, "bigint", "10").await;
    assert_eq!(claim.reads, ["Index Scan loans_out", "Tid Scan"], "claim, {when}");
    let on = plan(client, &sql.claim_on, "bigint, text", "10, now()::text").await;
    assert_eq!(on.reads, ["Index Scan loans_out", "Tid Scan"], "claim on, {when}");
    let keys = "'{1,2,3,4,5}', 7, 'loans.end'";
    let finish = plan(client, &sql.finish, "text[], bigint, text", keys).await;
    assert_eq!(finish.reads, ["Index Scan loans_pkey"], "finish, {when}");
    let renew = plan(client, &sql.renew, "text[], bigint", "'{1,2,3}', 7").await;
    assert_eq!(renew.reads, ["Index Scan loans_pkey"], "renew, {when}");
    let stuck =
        plan(client, &sql.reset_stuck, "text, float8, bigint", "'loans.end', 7200, 100").await;
    assert_eq!(stuck.reads, ["Index Scan loans_coming", "Tid Scan"], "watchdog, {when}");
    for (what, pages) in
        [("claim", claim.pages), ("finish", finish.pages), ("watchdog", stuck.pages)]
    {
        assert!(pages < 600, "{what} reads {pages} pages, {when}");
    }
}

#[tokio::test]
async fn g13_sweep_reads_its_partial_indexes_with_ten_rows_and_with_a_hundred_thousand() {
    let shelf = Shelf::with(10).await;
    let sql = sweep_sql(&loans(), &shelf.engine).await.expect("a sweep");
    let client = shelf.database.connect_directly().await;
    client.batch_execute(sql.settings).await.expect("settings");
    assert_plans(&client, &sql, "ten rows without statistics").await;
    shelf.sql("analyze library.loans").await;
    assert_plans(&client, &sql, "ten rows").await;
    shelf.lend(11, 100_000).await;
    assert_plans(&client, &sql, "a hundred thousand rows without statistics").await;
    shelf.sql("analyze library.loans").await;
    assert_plans(&client, &sql, "a hundred thousand rows").await;
    // The night is over: statistics say that nothing waits. Then a new day's rows come.
    shelf.sql("update library.loans set state = 'back'").await;
    // An ANALYZE by autovacuum, of another table, has a snapshot that keeps dead rows for a while.
    until("dead rows are gone", async || {
        shelf.sql("vacuum analyze library.loans").await;
        plan(&client, &sql.claim, "bigint", "10").await.pages < 600
    })
    .await;
    shelf.lend(200_000, 100_000).await;
    assert_plans(&client, &sql, "a hundred thousand where there were none").await;
    shelf.sql("update library.loans set state = 'coming', taken_at = now(), taken_by = 7 where state = 'out'").await;
    let keys = "'{200001,200002,200003}', 7, 'loans.end'";
    let finish = plan(&client, &sql.finish, "text[], bigint, text", keys).await;
    assert_eq!(finish.reads, ["Index Scan loans_pkey"], "a hundred thousand are claimed");
    assert!(finish.pages < 200, "a finish of three rows reads {} pages", finish.pages);
}

#[tokio::test]
async fn g13_pass_does_not_reread_finished_rows_under_an_old_snapshot() {
    let shelf = Shelf::with(20_000).await;
    let old = shelf.database.connect_directly().await;
    old.batch_execute("begin isolation level repeatable read; select count(*) from library.loans")
        .await
        .expect("a snapshot");
    let sql = sweep_sql(&loans(), &shelf.engine).await.expect("a sweep");
    let client = shelf.database.connect_directly().await;
    client.batch_execute(sql.settings).await.expect("settings");
    shelf.sql("update library.loans set state = 'back' where id <= 19990").await;
    let from_the_start = plan(&client, &sql.claim, "bigint", "10").await.pages;
    let place = "(select ends_at::text from library.loans where id = 19991)";
    let place: String =
        shelf.client.query_one(&format!("select {place}"), &[]).await.expect("a place").get(0);
    let on = plan(&client, &sql.claim_on, "bigint, text", &format!("10, '{place}'")).await.pages;
    assert!(on < 300, "{on} pages from the last place");
    assert!(from_the_start > on * 2, "{from_the_start} pages: the comparison shows nothing");
    old.batch_execute("commit").await.expect("over");
}
