//! Sweeps in the sample: other people's tables, with whatever happens to them.

use leasehold::measure;

use super::{a_minute_passes, age, up, value};
use crate::sql::{Sql, run};

/// A sweep over a table of five rows, two of them in hand for three hours.
async fn shelf(sql: &Sql, name: &str, status: &str) {
    let text = format!(
        "create table public.{name} (id bigint primary key, due timestamptz not null default now(), \
             status {status} not null default 'NEW', taken_at timestamptz, claim bigint); \
         insert into public.{name} (id) select generate_series(1, 5); \
         update public.{name} set status = 'BUSY', claim = 7, taken_at = now() - interval '3 hours' \
          where id < 3; \
         select leasehold.declare_sweep('{name}', 'public.{name}', 'id', 'bigint', 'due', 'status', 'NEW', \
             'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)"
    );
    run(&sql.client, &text).await;
}

/// Minutes pass until one has read the tables of these sweeps. On a slow machine the two seconds of a
/// table may be over first.
async fn a_minute_reads(sql: &Sql, sweeps: &[&str]) {
    let mut last = None;
    for _ in 0..10 {
        age(&sql.client, "1 minute").await;
        let sampled = measure::sample(&sql.client).await;
        let mut read = sampled.is_ok();
        for sweep in sweeps {
            read &= !value(&sql.client, "sweep", sweep, "stuck").await.is_nan();
        }
        if read {
            return;
        }
        last = Some(sampled);
    }
    panic!("ten minutes, and none has read {sweeps:?}: {last:?}");
}

#[tokio::test]
async fn a_locked_table_costs_its_own_figures_and_nothing_else() {
    let sql = Sql::new().await;
    shelf(&sql, "one", "text").await;
    shelf(&sql, "two", "text").await;
    a_minute_reads(&sql, &["one", "two"]).await;
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows one", "sweep_stuck_rows two"]);
    let other = sql.actor().await;
    run(&other, "begin; lock table public.one in access exclusive mode").await;
    // The other one is mended meanwhile.
    run(&sql.client, "update public.two set status = 'DONE'").await;
    a_minute_reads(&sql, &["two"]).await;
    assert!(value(&sql.client, "sweep", "one", "stuck").await.is_nan(), "nobody could look");
    assert_eq!(value(&sql.client, "sweep", "one", "finished_total").await, 0.0);
    assert_eq!(value(&sql.client, "sweep", "two", "stuck").await, 0.0);
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows one"], "as it was");
    run(&other, "update public.one set status = 'DONE'; commit").await;
    a_minute_reads(&sql, &["one", "two"]).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_word_that_the_table_no_longer_knows_does_not_end_the_measuring() {
    let sql = Sql::new().await;
    run(&sql.client, "create type public.mood as enum ('NEW', 'BUSY', 'DONE')").await;
    shelf(&sql, "one", "public.mood").await;
    shelf(&sql, "two", "text").await;
    run(&sql.client, "alter type public.mood rename value 'BUSY' to 'BUSIER'").await;
    a_minute_reads(&sql, &["two"]).await;
    assert!(value(&sql.client, "sweep", "one", "stuck").await.is_nan());
    assert_eq!(value(&sql.client, "sweep", "two", "stuck").await, 2.0);
    assert_eq!(value(&sql.client, "database", "", "sampled").await, 1.0);
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows two"]);
}

#[tokio::test]
async fn a_table_that_takes_too_long_is_left_out_of_the_minute() {
    let sql = Sql::new().await;
    shelf(&sql, "one", "text").await;
    shelf(&sql, "two", "text").await;
    run(
        &sql.client,
        "alter table public.one rename to hidden; \
         create view public.one as select h.* from public.hidden h, pg_sleep(600)",
    )
    .await;
    a_minute_reads(&sql, &["two"]).await;
    assert!(value(&sql.client, "sweep", "one", "stuck").await.is_nan());
    assert_eq!(value(&sql.client, "sweep", "one", "finished_total").await, 0.0);
    assert_eq!(value(&sql.client, "sweep", "two", "stuck").await, 2.0);
}

#[tokio::test]
async fn rows_of_a_sweep_that_nobody_brings_back_are_said() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "create table public.shelf (id bigint primary key, due timestamptz not null default now(), \
             status text not null default 'NEW', taken_at timestamptz, claim bigint); \
         insert into public.shelf (id) select generate_series(1, 5)",
    )
    .await;
    run(
        &sql.client,
        "select leasehold.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', 'NEW', \
             'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)",
    )
    .await;
    run(&sql.client, "update public.shelf set status = 'BUSY', claim = 7, taken_at = now() - interval '1 hour' where id < 3").await;
    a_minute_reads(&sql, &["shelf"]).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "claimed").await, 2.0);
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    run(&sql.client, "update public.shelf set taken_at = now() - interval '3 hours' where id = 1")
        .await;
    a_minute_reads(&sql, &["shelf"]).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "stuck").await, 1.0);
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
    // The watchdog brings it back.
    run(
        &sql.client,
        "update public.shelf set status = 'NEW', claim = null, taken_at = null where id = 1",
    )
    .await;
    a_minute_reads(&sql, &["shelf"]).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    // One that was set aside is said too.
    run(&sql.client, "insert into leasehold.sweep_failure (sweep, key, claim, attempts, last_error, dead_at) values ('shelf', '2', 7, 5, 'no', now())").await;
    run(&sql.client, "update public.shelf set taken_at = now() - interval '3 hours' where id = 2")
        .await;
    a_minute_reads(&sql, &["shelf"]).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "stuck").await, 0.0, "it has its reason");
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
    // A table that is gone does not end the measuring.
    run(&sql.client, "drop table public.shelf; delete from leasehold.sweep_failure").await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn sweeps_count_their_rows_by_the_minute() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold.declare_sweep('gone', 'public.nothing', 'id', 'bigint', 'due', 'status', 'NEW', \
             'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)",
    )
    .await;
    a_minute_passes(&sql).await;
    run(&sql.client, "select leasehold.count_sweep('gone', 400, 390, 10, 0)").await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "gone", "finished").await, 390.0);
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "gone", "finished").await, 0.0);
}

#[tokio::test]
async fn rows_that_the_watchdog_brought_back_count_by_the_minute() {
    let sql = Sql::new().await;
    shelf(&sql, "one", "text").await;
    a_minute_passes(&sql).await;
    run(&sql.client, "select leasehold.note_watch('one', 40)").await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "one", "reset").await, 40.0);
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "one", "reset").await, 0.0);
    assert_eq!(value(&sql.client, "sweep", "one", "reset_total").await, 40.0);
}
