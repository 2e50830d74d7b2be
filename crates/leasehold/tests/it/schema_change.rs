//! Tables and functions change under workers that have prepared their statements.

use std::time::Duration;

use leasehold::Enqueue;
use leasehold::database::Database;
use leasehold::link::Links;
use leasehold::migrate;
use leasehold::sweep::When;
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::fixture::{completed, count, jobs, run, sql, until};
use crate::support::{self, Note};
use crate::sweep::fixture::{Shelf, loans};

/// Changes a busy table: tries with a short lock timeout until it succeeds.
async fn change(client: &Client, text: &str) {
    sql(client, "set lock_timeout = '200ms'").await;
    until("the table is changed", async || client.batch_execute(text).await.is_ok()).await;
}

#[tokio::test]
async fn c21_statement_that_a_migration_made_stale_is_prepared_anew() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    sql(&client, "create table public.shelf (id int); insert into public.shelf values (1)").await;
    let database = Database::new(&database.url()).expect("an address");
    let links = Links::new(&database, 1, Duration::from_secs(30));
    let columns =
        async || links.query("select * from public.shelf", &[]).await.map(|rows| rows[0].len());
    assert_eq!(columns().await.expect("an answer"), 1);
    change(&client, "alter table public.shelf add column place text").await;
    // The first query fails, and its session is not used again.
    columns().await.expect_err("a stale statement");
    assert_eq!(columns().await.expect("an answer"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_worker_keeps_working_while_a_migration_changes_tables_and_functions() {
    let database = TestDatabase::new().await;
    let mut client = database.connect_directly().await;
    let engine = support::engine(&database).await;
    let worker = run(engine.worker().handle(async |_: Note| {}));
    for round in 0..4_i64 {
        engine.enqueue_many((0..50).map(|n| Note { n })).await.expect("enqueued");
        change(
            &client,
            &format!("alter table leasehold.job add column new_{round} text default 'x'"),
        )
        .await;
        change(
            &client,
            &format!("alter table leasehold_internal.lease add column new_{round} bigint"),
        )
        .await;
        // Every function is replaced, as by a release that has no migration.
        sql(&client, "delete from leasehold.schema_version where version = 0").await;
        migrate::up(&mut client).await.expect("migrated");
        Note { n: round }.enqueue(&engine).await.expect("enqueued");
        until("all are done", async || completed(&client).await == 51 * (round + 1)).await;
    }
    assert_eq!(jobs(&client).await, 0);
    let dead = "select count(*) from leasehold_internal.dead_job";
    assert_eq!(count(&client, dead).await, 0, "none was counted as failed");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c21_sweep_keeps_working_when_columns_change_their_type() {
    let shelf = Shelf::with(20).await;
    shelf.sql("drop trigger note_state on library.loans").await;
    let sweep = loans()
        .columns(["book"])
        .when(When::continuous(Duration::from_millis(10)))
        .watchdog_every(Duration::from_millis(50));
    let worker = run(shelf.engine.worker().sweep(sweep));
    let back = async |loans: i64| shelf.count("state = 'back'").await == loans;
    until("they are back", async || back(20).await).await;
    // A claim now returns another type: the prepared statement is stale.
    let client = shelf.database.connect_directly().await;
    change(&client, "alter table library.loans alter column book type bigint").await;
    shelf.lend(21, 20).await;
    until("they are back", async || back(40).await).await;
    // The key now has another type: the statement itself was made for the old one.
    change(&client, "alter table library.loans alter column id type text").await;
    let more = "insert into library.loans (id, book, ends_at) select 'loan ' || n, 1, now() - interval '1 day'
                  from generate_series(1, 20) n; update library.books set out_on_loan = out_on_loan + 20 where id = 1";
    shelf.sql(more).await;
    // The watchdog resets rows that the old statements claimed.
    until("they are back", async || {
        shelf.age_claims("3 hours").await;
        back(60).await
    })
    .await;
    worker.stop().await;
    let left = "select coalesce(sum(out_on_loan), 0)::bigint from library.books";
    assert_eq!(count(&shelf.client, left).await, 0, "each loan gave back one copy");
}
