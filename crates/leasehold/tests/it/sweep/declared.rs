//! Declarations: a mistake is reported before anything is claimed.

use leasehold::sweep::{States, Sweep};

use super::fixture::{GIVE_BACK, Shelf, loans};
use crate::fixture::{count, run};

async fn refusal(shelf: &Shelf, sweep: Sweep) -> String {
    let worker = shelf.engine.worker().sweep(sweep.clone());
    let started = worker.run_until(std::future::ready(())).await;
    let text = started.expect_err("a worker that cannot start").to_string();
    let once = sweep.run_once(&shelf.engine).await.expect_err("neither once").to_string();
    assert!(text.contains(&once), "{text} / {once}");
    once
}

#[tokio::test]
async fn i5_sweep_with_contradictory_settings_does_not_start() {
    let shelf = Shelf::with(3).await;
    let bare = || Sweep::new("a", "library.loans");
    for (sweep, said) in [
        (bare(), ".due("),
        (bare().due("true"), ".order_by("),
        (bare().due("true").order_by("ends_at"), ".status("),
        (Sweep::new("Loans End", "library.loans"), "a-z"),
        (
            loans().status("state", States::new("a", "a", "b")),
            "\"a\", \"a\" and \"b\"; they must be three different words",
        ),
        (loans().claim_size(0), "claim_size is 0; it must be between 1 and 100000"),
        (loans().loops(0), "loops is 0; it must be between 1 and 64"),
        (loans().max_attempts(0), "max_attempts is 0; it must be between 1 and 1000"),
        (loans().watchdog_after(std::time::Duration::ZERO), "watchdog_after is 0;"),
        (loans().watchdog_every(std::time::Duration::ZERO), "watchdog_every is 0;"),
        (loans().limit(std::time::Duration::ZERO), "limit is 0ns; it must be between 1 s and 1 h"),
    ] {
        let text = refusal(&shelf, sweep).await;
        assert!(text.contains(said), "{text}");
    }
    let twice = shelf.engine.worker().sweep(loans()).sweep(loans());
    let text = twice.run_until(std::future::ready(())).await.expect_err("twice").to_string();
    assert!(text.contains("named twice"), "{text}");
    assert_eq!(shelf.count("state = 'out'").await, 3);
}

#[tokio::test]
async fn i5_sweep_that_does_not_fit_its_table_names_what_is_missing() {
    let shelf = Shelf::with(3).await;
    shelf
        .sql(
            "create table library.plain (id int, code text primary key, ends_at timestamptz, state text,
                 taken_at timestamptz, taken_by bigint, taken_int int);
             create table library.parted (id int, ends_at timestamptz) partition by range (id);
             create view library.seen as select * from library.loans",
        )
        .await;
    let on = |table: &str| {
        Sweep::new("loans.end", table)
            .due("ends_at < now()")
            .order_by("ends_at")
            .status("state", States::new("out", "coming", "back"))
            .claimed_at("taken_at")
            .claim("taken_by")
    };
    for (sweep, said) in [
        (on("library.nothing"), "no table"),
        (on("library.parted"), "each partition"),
        (on("library.seen"), "not a plain table"),
        (on("library.plain").key("number"), ".key(column)"),
        (on("library.plain").key("id"), "unique"),
        (on("library.plain").key("code").order_by("begins_at"), ".order_by(column)"),
        (on("library.plain").key("code").claim("fence"), "add column \"fence\" bigint"),
        (on("library.plain").key("code").claim("taken_int"), "must be bigint"),
        (on("library.plain").key("code").claimed_at("since"), "Sweep::install"),
        (on("library.plain").key("code").columns(["colour"]), "colour"),
        (on("library.plain").key("code").due("ends_at < yesterday"), "due"),
        (on("library.plain").key("code").finishing("update nothing set a = 1"), "finishing"),
        (on("library.plain").key("code").due("true) or (true"), ""),
    ] {
        if said.is_empty() {
            continue; // Trusted text: its author may write anything.
        }
        let text = refusal(&shelf, sweep).await;
        assert!(text.contains(said), "{text}");
    }
    assert_eq!(
        count(&shelf.client, "select count(*) from leasehold_internal.sweep").await,
        0,
        "nothing is stored"
    );
}

#[tokio::test]
async fn install_adds_missing_columns_and_indexes_once() {
    let shelf = Shelf::new().await;
    shelf
        .sql(
            "create table \"Odd Table\" (\"the key\" text primary key, \"due at\" timestamptz, \"st\"\"ate\" text default 'it''s w\\aiting');
             insert into \"Odd Table\" select 'key ''\"' || n, now() - interval '1 day' from generate_series(1, 30) n",
        )
        .await;
    let sweep = Sweep::new("odd", "Odd Table")
        .key("the key")
        .due("\"due at\" < statement_timestamp()")
        .order_by("due at")
        .status("st\"ate", States::new("it's w\\aiting", "cl'aimed", "\"done\""))
        .claim_size(7);
    let mut client = shelf.database.connect_directly().await;
    for _ in 0..2 {
        sweep.install(&mut client).await.expect("installed");
    }
    let indexes = "select count(*) from pg_indexes where tablename = 'Odd Table' and indexdef like '% WHERE %'";
    assert_eq!(count(&shelf.client, indexes).await, 2);
    let report = sweep.run_once(&shelf.engine).await.expect("a pass");
    assert_eq!((report.finished, report.batches), (30, 5), "names and words of every kind");
    let done =
        "select count(*) from \"Odd Table\" where \"st\"\"ate\" = '\"done\"' and claim is not null";
    assert_eq!(count(&shelf.client, done).await, 30);
    assert!(sweep.install_sql().expect("text").contains("create index if not exists"));
}

#[tokio::test]
async fn finishing_runs_every_kind_of_statement() {
    let kept = "kept as (insert into library.notes select id from finished returning n)";
    let doubled = format!("doubled as (select id * 2 as id from finished), {kept}");
    let write = "insert into library.notes select n + 1 from kept";
    for (sweep, noted) in [
        (loans().finishing(GIVE_BACK), 0),
        (loans().finishing("insert into library.notes select id from finished;"), 10),
        // A query runs only because its rows are read.
        (loans().finishing("select library.note(id) from finished"), 10),
        (loans().finishing("(select library.note(id) from finished)"), 10),
        (loans().finishing("insert into library.notes select id from finished returning n"), 10),
        (
            loans().finishing("with a as (select id from finished) select library.note(id) from a"),
            10,
        ),
        (loans().finishing_with(doubled, write), 20),
        (loans().finishing_with(kept, "select library.note(n) from kept -- the end"), 20),
        (loans().finishing_with(format!("{kept} -- all of them"), "select 1"), 10),
    ] {
        let shelf = Shelf::with(10).await;
        shelf
            .sql("create table library.notes (n bigint);
                  create function library.note(n bigint) returns void language sql as 'insert into library.notes values (n)'")
            .await;
        let report = sweep.run_once(&shelf.engine).await.expect("a pass");
        assert_eq!(report.finished, 10);
        assert_eq!(count(&shelf.client, "select count(*) from library.notes").await, noted);
        let worker = run(shelf.engine.worker().sweep(sweep));
        worker.stop().await;
    }
}

#[tokio::test]
async fn i5_finishing_whose_with_writes_is_refused_with_the_right_call() {
    let shelf = Shelf::with(3).await;
    shelf.sql("create table library.notes (n bigint)").await;
    let nested = "with kept as (insert into library.notes select id from finished returning n)
                  select n from kept";
    let text = refusal(&shelf, loans().finishing(nested)).await;
    assert!(text.contains("finishing_with") && text.contains("top level"), "{text}");
    assert_eq!(shelf.count("state = 'out'").await, 3, "nothing was claimed");
}
