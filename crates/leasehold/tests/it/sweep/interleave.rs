//! A claim, a finish, a failure and the watchdog on the same row, in every order that PostgreSQL
//! allows.

use leasehold::testing::{SweepSql, sweep_sql};
use leasehold_testing::stepper::{Exploration, Run, Script, Stepper};
use tokio_postgres::Client;

use super::fixture::{Shelf, loans};
use crate::fixture::count;

/// Two loans that claim 7 has held for three hours, and one that waits.
const WORLD: &str = "
    truncate library.loans, library.books, library.trail, leasehold_internal.sweep_failure;
    insert into library.books values (1, 3);
    insert into library.loans (id, book, ends_at) select n, 1, now() - interval '1 day' from generate_series(1, 3) n;
    update library.loans set state = 'coming', taken_by = 7, taken_at = now() - interval '3 hours' where id <= 2;
    delete from library.trail";

/// Writes the parameters into a statement.
fn fill(sql: &str, values: &[&str]) -> String {
    let mut text = sql.to_owned();
    for (n, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!("${}", n + 1), value);
    }
    text
}

/// One statement as a transaction, in two steps: an open transaction that has done nothing yet sees
/// and holds nothing, so it does not matter when it begins.
fn script(name: &str, sql: String) -> Script {
    Script::new(name).sql(format!("begin; {sql}")).sql("commit")
}

fn finish(sql: &SweepSql, name: &str, keys: &str) -> Script {
    script(name, fill(&sql.finish, &[keys, "7::bigint", "'loans.end'"]))
}

fn watchdog(sql: &SweepSql, name: &str) -> Script {
    script(name, fill(&sql.reset_stuck, &["'loans.end'", "7200::float8", "10"]))
}

fn claim(sql: &SweepSql) -> Script {
    script("claim", fill(&sql.claim, &["10"]))
}

fn fail(sql: &SweepSql) -> Script {
    let values = [
        "'{1,2}'::text[]",
        "7::bigint",
        "'{no,no}'::text[]",
        "'{f,f}'::boolean[]",
        "'loans.end'",
        "3",
        "0::float8",
        "0::float8",
    ];
    script("fail", fill(&sql.fail, &values))
}

/// What must hold after every order.
async fn judge(client: &Client, run: &Run) -> Result<(), String> {
    let wrong = [
        (
            "a loan ended twice",
            "select count(*) from (select loan from library.trail where to_state = 'back' group by loan having count(*) > 1) t",
        ),
        (
            "a copy too many or too few",
            "select abs((select sum(out_on_loan) from library.books) - (select count(*) from library.loans where state <> 'back'))",
        ),
        (
            "a finished row was sent out again",
            "select count(*) from library.trail where from_state = 'back'",
        ),
        (
            "a claimed row without a claim, or the reverse",
            "select count(*) from library.loans where (state = 'coming') <> (taken_by is not null) and state <> 'back'",
        ),
    ];
    for (what, sql) in wrong {
        if count(client, sql).await != 0 {
            return Err(what.to_owned());
        }
    }
    if run.count_errors("23514") > 0 {
        return Err("the table refused: given back twice".to_owned());
    }
    if run.count_errors("40P01") > 0 {
        return Err("a deadlock".to_owned());
    }
    Ok(())
}

async fn explore(shelf: &Shelf, scripts: impl Fn() -> Vec<Script>) -> Exploration {
    Stepper::new(shelf.database.direct_config())
        .explore(
            scripts,
            async |client: &Client| client.batch_execute(WORLD).await.expect("a world"),
            judge,
        )
        .await
        .expect("an exploration")
}

#[tokio::test]
async fn d12_one_of_watchdog_and_claim_wins_in_every_order() {
    let shelf = Shelf::new().await;
    let sql = sweep_sql(&loans(), &shelf.engine).await.expect("a sweep");
    let both = "'{1,2}'::text[]";
    let seen =
        explore(&shelf, || vec![finish(&sql, "finish", both), watchdog(&sql, "watchdog")]).await;
    seen.assert_all_held();
    assert!(seen.waited > 0, "they never met");
    explore(&shelf, || {
        vec![finish(&sql, "finish", both), watchdog(&sql, "one"), watchdog(&sql, "two")]
    })
    .await
    .assert_all_held();
    explore(&shelf, || vec![finish(&sql, "finish", both), watchdog(&sql, "watchdog"), claim(&sql)])
        .await
        .assert_all_held();
    explore(&shelf, || {
        vec![
            finish(&sql, "one", both),
            finish(&sql, "two", "'{2,1}'::text[]"),
            watchdog(&sql, "watchdog"),
        ]
    })
    .await
    .assert_all_held();
    explore(&shelf, || vec![fail(&sql), watchdog(&sql, "watchdog"), finish(&sql, "finish", both)])
        .await
        .assert_all_held();
}

#[tokio::test]
async fn sabotage_finish_without_a_fence_is_found() {
    let shelf = Shelf::new().await;
    let sql = sweep_sql(&loans(), &shelf.engine).await.expect("a sweep");
    let both = "'{1,2}'::text[]";
    // Matches the key alone: the row may wait again, belong to the next claim, or be finished.
    let fence =
        " and \"taken_by\" = $2 and case when \"state\" = 'coming' then true else false end";
    assert!(sql.finish.contains(fence), "the finish has changed: {}", sql.finish);
    let mut broken = sql.clone();
    broken.finish = sql.finish.replace(fence, " and $2 is not null");
    let seen = explore(&shelf, || {
        vec![finish(&broken, "finish", both), watchdog(&sql, "watchdog"), next_owner(&sql)]
    })
    .await;
    let why = |word: &str| seen.failures.iter().any(|failure| failure.why.contains(word));
    assert!(why("given back twice"), "{} orders: {:?}", seen.orders, seen.failures.len());
    explore(&shelf, || {
        vec![finish(&sql, "finish", both), watchdog(&sql, "watchdog"), next_owner(&sql)]
    })
    .await
    .assert_all_held();
}

/// Claims what waits and finishes it, with its effect.
fn next_owner(sql: &SweepSql) -> Script {
    Script::new("next").sql(fill(&sql.claim, &["10"])).sql(
        "with finished as (
             update library.loans set state = 'back' where state = 'coming' and taken_by > 7 returning *)
         update library.books b set out_on_loan = b.out_on_loan - f.n
           from (select book, count(*) as n from finished group by book) f where b.id = f.book",
    )
}
