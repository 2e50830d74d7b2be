//! Which table and which rows a sweep means: keys of every type, names without a schema, and two sweeps
//! of one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::Leasehold;
use leasehold::database::Database;
use leasehold::sweep::{States, Sweep, SweepError};

use super::fixture::{Shelf, loans};
use crate::fixture::{count, sql};

fn things() -> Sweep {
    Sweep::new("things", "public.things")
        .due("true")
        .order_by("id")
        .status("state", States::new("waiting", "claimed", "done"))
        .claim_size(10)
}

#[tokio::test]
async fn d19_key_of_any_type_is_claimed_failed_retried_and_finished() {
    let shelf = Shelf::new().await;
    shelf.sql("create domain public.code as char(12) check (value <> 'x'); create domain public.number as bigint").await;
    for (kind, value) in [
        ("int", "n"),
        ("bigint", "n"),
        ("uuid", "gen_random_uuid()"),
        ("text collate \"C\"", "'a,{\"' || n"),
        ("varchar(20) collate \"C\"", "'a,{\"' || n"),
        ("varchar(8)", "'ü' || n"),
        ("char(26)", "lpad(n::text, 26, '0')"),
        ("char(36)", "gen_random_uuid()::text"),
        ("char(40)", "'shorter ' || n"),
        ("public.code", "'c' || n"),
        ("public.number", "n"),
        ("bit(8)", "n::bit(8)"),
        ("bit varying(9)", "n::bit(8)::varbit"),
        ("timestamptz", "'2026-01-01'::timestamptz + n * interval '1 microsecond'"),
        ("timestamptz(3)", "'2026-01-01'::timestamptz + n * interval '1 millisecond'"),
        ("numeric", "n + 0.5"),
        ("numeric(10,2)", "n + 0.25"),
        ("double precision", "n / 3.0"),
        ("bytea", "decode(lpad(n::text, 4, '0'), 'hex')"),
    ] {
        shelf
            .sql(&format!(
                "drop table if exists public.things; create table public.things (id {kind} primary key,
                     state text default 'waiting', claimed_at timestamptz, claim bigint);
                 insert into public.things select {value} from generate_series(1, 25) n"
            ))
            .await;
        let failed = Arc::new(AtomicBool::new(false));
        let sweep = things().handle(move |batch| {
            if !failed.swap(true, Ordering::SeqCst) {
                batch.fail(&batch.keys()[3], "later");
            }
            async { Ok(()) }
        });
        let report = sweep.run_once(&shelf.engine).await.expect("a pass");
        assert_eq!((report.finished, report.failed, report.lost), (24, 1, 0), "{kind}");
        shelf.sql("update leasehold_internal.sweep_failure set retry_at = now()").await;
        assert_eq!(
            sweep.run_watchdog_once(&shelf.engine).await.expect("a turn").retried,
            1,
            "{kind}"
        );
        let report = sweep.run_once(&shelf.engine).await.expect("a pass");
        assert_eq!((report.finished, report.lost), (1, 0), "{kind}");
        let left = "select count(*) from leasehold_internal.sweep_failure";
        assert_eq!(count(&shelf.client, left).await, 0, "{kind}");
    }
}

#[tokio::test]
async fn d19_key_that_its_own_text_does_not_find_is_refused() {
    let shelf = Shelf::new().await;
    // A cast to text that gives something else than what is stored.
    shelf
        .sql(
            "create type public.mask as (n int);
             create function public.hidden(public.mask) returns text language sql immutable as $$ select '(0)' $$;
             create cast (public.mask as text) with function public.hidden(public.mask) as assignment;
             create table public.things (id public.mask primary key, state text default 'waiting',
                 claimed_at timestamptz, claim bigint);
             insert into public.things values ('(1)')",
        )
        .await;
    let error = things().run_once(&shelf.engine).await.expect_err("refused");
    assert!(matches!(&error, SweepError::Table(text) if text.contains("another type")), "{error}");
    // The same while the table is empty.
    shelf.sql("create table public.kept as table public.things; truncate public.things").await;
    let error = things().run_once(&shelf.engine).await.expect_err("refused");
    assert!(matches!(&error, SweepError::Table(text) if text.contains("another type")), "{error}");
    shelf.sql("insert into public.things table public.kept").await;
    let waits = "select count(*) from public.things where state = 'waiting'";
    assert_eq!(count(&shelf.client, waits).await, 1, "nothing was claimed");
}

#[tokio::test]
async fn d21_second_sweep_with_the_same_claimed_state_is_refused() {
    let shelf = Shelf::with(10).await;
    shelf.sql("alter table library.loans add column other text default 'out', add column since timestamptz").await;
    loans().run_once(&shelf.engine).await.expect("a pass");
    let second = |status: &str, claimed: &str| {
        Sweep::new("loans.archive", "library.loans")
            .due("true")
            .order_by("ends_at")
            .status(status, States::new("back", claimed, "away"))
            .claimed_at("taken_at")
            .claim("taken_by")
    };
    for sweep in [second("state", "coming"), second("other", "going")] {
        let error = sweep.run_watchdog_once(&shelf.engine).await.expect_err("refused").to_string();
        assert!(error.contains("loans.end") && error.contains("sweeps forget"), "{error}");
        let worker = shelf.engine.worker().sweep(sweep);
        let error = worker.run_until(std::future::ready(())).await.expect_err("no start");
        assert!(error.to_string().contains("loans.end"), "{error}");
    }
    // Another state of the same column means other rows: one sweep begins where the other ends.
    second("state", "going").run_watchdog_once(&shelf.engine).await.expect("declared");
    let error =
        second("state", "coming").run_watchdog_once(&shelf.engine).await.expect_err("refused");
    assert!(error.to_string().contains("loans.end"), "{error}");
    shelf.sql("select leasehold_internal.forget_sweep('loans.end', 'ann')").await;
    second("state", "coming").run_watchdog_once(&shelf.engine).await.expect("declared");
    let audit = "select count(*) from leasehold.audit where actor = 'ann' and action = 'forget'";
    assert_eq!(count(&shelf.client, audit).await, 1);
}

#[tokio::test]
async fn d22_sweep_and_watchdog_resolve_a_table_without_a_schema_alike() {
    let shelf = Shelf::with(5).await;
    // A table of the same name that another search_path finds.
    shelf.sql("create table public.loans (like library.loans including all)").await;
    let mut config = shelf.database.direct_config();
    config.options("-c search_path=library,public");
    let engine = Leasehold::from_database(Database::from_config(config).expect("a config"))
        .await
        .expect("an engine");
    let sweep = Sweep::new("loans.end", "loans")
        .due("ends_at < statement_timestamp()")
        .order_by("ends_at")
        .status("state", States::new("out", "coming", "back"))
        .claimed_at("taken_at")
        .claim("taken_by");
    sweep.run_watchdog_once(&engine).await.expect("declared");
    let stored = "select count(*) from leasehold_internal.sweep where table_name = 'library.loans'";
    assert_eq!(count(&shelf.client, stored).await, 1);
    shelf
        .sql("update library.loans set state = 'coming', taken_by = 7, taken_at = now() - interval '1 day'")
        .await;
    // A session with another search_path brings the same rows back.
    let watched = leasehold::sweep::run_watchdog(&shelf.engine, "loans.end", "ann").await;
    assert!(format!("{watched:?}").contains("reset: 5"), "{watched:?}");
    assert_eq!(sweep.run_once(&engine).await.expect("a pass").finished, 5);
    let bare = "select leasehold_internal.declare_sweep('x', 'loans', 'id', 'bigint', 'ends_at', 'state', 'a', 'b', \
                'c', 'taken_at', 'taken_by', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)";
    let error = shelf.client.batch_execute(bare).await.expect_err("refused");
    assert_eq!(error.code().map(|code| code.code()), Some("LH002"));
    drop(engine);
    sql(&shelf.client, "drop table public.loans").await;
}
