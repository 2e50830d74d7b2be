use std::time::Duration;

use leasehold::Leasehold;
use leasehold::sweep::{States, Sweep, When};

use super::fixture::Fixture;

/// A table with rows, and a sweep over it whose handler fails the row that is called `bad`.
async fn swept(rows: i32) -> (Fixture, Leasehold, Sweep) {
    let fixture = Fixture::new().await;
    fixture
        .client
        .batch_execute(&format!(
            "create table public.\"Odd names\" (code text primary key, at timestamptz, state text default 'waiting',
                 claimed_at timestamptz, claim bigint);
             insert into public.\"Odd names\" select 'row ' || n, now() - interval '1 day' from generate_series(1, {rows}) n;
             insert into public.\"Odd names\" values ('bad', now() - interval '1 day')"
        ))
        .await
        .unwrap();
    let sweep = Sweep::new("odd.names", "public.Odd names")
        .key("code")
        .due("at < statement_timestamp()")
        .order_by("at")
        .status("state", States::new("waiting", "claimed", "done"))
        .max_attempts(1)
        .when(When::nightly("03:30", "Europe/Berlin").unwrap())
        .handle(|batch| async move {
            for key in batch.keys().iter().filter(|key| *key == "bad") {
                batch.fail(key, "it hurts \u{1b}[31m");
            }
            Ok(())
        });
    let engine = Leasehold::connect(&fixture.database.url()).await.unwrap();
    (fixture, engine, sweep)
}

#[tokio::test]
async fn sweeps_are_listed_and_shown() {
    let fixture = Fixture::new().await;
    fixture.run(&["sweeps", "list"]).await.expect(0).says("no sweeps");
    fixture.run(&["sweeps", "show", "odd.names"]).await.expect(3).says("leasehold sweeps list");
    let (fixture, engine, sweep) = swept(9).await;
    sweep.run_once(&engine).await.unwrap();
    // At any time of day, the next run is not due yet.
    let later = "update leasehold_internal.sweep set next_run_at = now() + interval '1 hour'";
    fixture.sql(later).await;
    fixture
        .run(&["sweeps", "list"])
        .await
        .expect(0)
        .prints("odd.names")
        .prints("30 3 * * * (Europe/Berlin)")
        .prints("idle");
    let listed = fixture.run(&["sweeps", "list", "--json"]).await.expect(0).json();
    let entry = &listed["sweeps"][0];
    assert_eq!(
        (&entry["rows_finished"], &entry["dead"], &entry["rows_failed"]),
        (&9.into(), &1.into(), &1.into())
    );
    fixture.run(&["sweeps", "show", "odd.names"]).await.expect(0).prints("not counted yet");
    while fixture
        .count("select count(*) from leasehold_internal.sweep where claimed_now is not null")
        .await
        == 0
    {
        sweep.run_watchdog_once(&engine).await.unwrap();
    }
    let shown = fixture.run(&["sweeps", "show", "odd.names", "--json"]).await.expect(0).json();
    assert_eq!(shown["sweep"]["claimed_now"], 1, "the dead one");
    fixture.run(&["sweeps", "show", "odd.names"]).await.expect(0).prints("claimed now");
    fixture
        .run(&["sweeps", "show", "odd.name"])
        .await
        .expect(3)
        .says("did you mean \"odd.names\"?");
}

#[tokio::test]
async fn sweep_commands_pause_resume_and_run() {
    let (fixture, engine, sweep) = swept(1).await;
    sweep.run_watchdog_once(&engine).await.unwrap();
    fixture.run(&["sweeps", "pause", "odd.names"]).await.expect(2).says("--why");
    let pause = ["sweeps", "pause", "odd.names", "--why", "stocktaking"];
    fixture.run(&pause).await.expect(0).prints("paused");
    fixture.run(&pause).await.expect(5).says("already paused");
    fixture.run(&["sweeps", "list"]).await.expect(0).prints("by ann@").prints("stocktaking");
    fixture.run(&["sweeps", "run", "odd.names"]).await.expect(0).says("it is paused");
    assert!(sweep.run_once(&engine).await.unwrap().paused);
    fixture.run(&["sweeps", "resume", "odd.names"]).await.expect(0);
    fixture.run(&["sweeps", "resume", "odd.names"]).await.expect(5).says("not paused");
    fixture.run(&["sweeps", "pause", "absent", "--why", "x"]).await.expect(3);
    fixture.run(&["sweeps", "run", "absent"]).await.expect(3);
    let due = "select count(*) from leasehold_internal.sweep where next_run_at <= now()";
    assert_eq!(fixture.count(due).await, 1);
    let signed = "select count(*) from leasehold.audit where subject = 'sweep odd.names' and actor like 'ann@%'";
    assert_eq!(fixture.count(signed).await, 3);
}

#[tokio::test]
async fn sweep_forget_removes_the_record_and_leaves_the_table() {
    let (fixture, engine, sweep) = swept(1).await;
    sweep.run_once(&engine).await.unwrap();
    fixture.run(&["sweeps", "forget", "odd.names"]).await.expect(4).says("stays as it is");
    fixture.run(&["sweeps", "forget", "odd.name", "--yes"]).await.expect(3).says("did you mean");
    let forget = ["sweeps", "forget", "odd.names", "--why", "moved", "--yes"];
    fixture.run(&forget).await.expect(0).prints("is forgotten");
    fixture.run(&forget).await.expect(3);
    let left = "select (select count(*) from leasehold.sweeps) + (select count(*) from leasehold_internal.sweep_failure)";
    assert_eq!(fixture.count(left).await, 0);
    assert_eq!(fixture.count("select count(*) from public.\"Odd names\"").await, 2);
    let signed = "select count(*) from leasehold.audit where action = 'forget' and detail = 'moved' and actor like 'ann@%'";
    assert_eq!(fixture.count(signed).await, 1);
}

#[tokio::test]
async fn sweeps_watchdog_resets_rows_of_dead_workers() {
    let (fixture, engine, sweep) = swept(4).await;
    sweep.watchdog_after(Duration::from_secs(600)).run_watchdog_once(&engine).await.unwrap();
    fixture.sql("update public.\"Odd names\" set state = 'claimed', claim = 7, claimed_at = now() - interval '5 minutes';
                        update public.\"Odd names\" set claimed_at = now() - interval '11 minutes' where code <> 'bad'").await;
    let ran = fixture.run(&["sweeps", "watchdog", "odd.names", "--json"]).await.expect(0).json();
    assert_eq!((&ran["watchdog"]["reset"], &ran["watchdog"]["more"]), (&4.into(), &false.into()));
    assert_eq!(
        fixture.count("select count(*) from public.\"Odd names\" where state = 'waiting'").await,
        4
    );
    let clock = "select count(*) from leasehold_internal.sweep where cron = '30 3 * * *' and watchdog_after = '10 min'";
    assert_eq!(fixture.count(clock).await, 1, "what was declared stays");
    fixture.run(&["sweeps", "watchdog", "odd.name"]).await.expect(3).says("did you mean");
    fixture.sql("alter table public.\"Odd names\" rename column claim to fence").await;
    fixture
        .run(&["sweeps", "watchdog", "odd.names"])
        .await
        .expect(5)
        .says("has no column \"claim\"");
    // A sweep that another role declared is left to its workers.
    fixture
        .sql("update leasehold_internal.sweep set declared_by = 'leasehold_worker', watchdog_ran_at = now()")
        .await;
    fixture.run(&["sweeps", "watchdog", "odd.names"]).await.expect(0).prints("within a second");
    let asked = "select count(*) from leasehold_internal.sweep where watchdog_ran_at is null";
    assert_eq!(fixture.count(asked).await, 1);
}

#[tokio::test]
async fn sweep_commands_list_and_redrive_dead_rows() {
    let (fixture, engine, sweep) = swept(2).await;
    sweep.run_once(&engine).await.unwrap();
    let listed = fixture.run(&["sweeps", "dead", "odd.names", "--json"]).await.expect(0).json();
    assert_eq!(
        (&listed["rows"][0]["key"], &listed["rows"][0]["attempts"]),
        (&"bad".into(), &1.into())
    );
    let text = fixture.run(&["sweeps", "dead", "odd.names"]).await.expect(0);
    assert!(
        text.prints("it hurts").stdout.find('\u{1b}').is_none(),
        "texts cannot steer a terminal"
    );
    fixture
        .run(&["sweeps", "dead", "odd.names", "--after", "bad"])
        .await
        .expect(0)
        .says("no dead rows");
    fixture.run(&["sweeps", "redrive", "odd.names"]).await.expect(4).says("--all");
    fixture.run(&["sweeps", "redrive", "odd.names", "row 1"]).await.expect(3).says("none of these");
    fixture
        .run(&["sweeps", "redrive", "odd.names", "--all", "--dry-run"])
        .await
        .expect(0)
        .says("would redrive 1 row");
    fixture
        .run(&["sweeps", "redrive", "odd.names", "bad"])
        .await
        .expect(0)
        .prints("1 row redriven");
    assert_eq!(sweep.run_watchdog_once(&engine).await.unwrap().retried, 1);
    fixture.run(&["sweeps", "redrive", "odd.names", "--all"]).await.expect(0).prints("0 rows");
    fixture.sql("insert into leasehold_internal.sweep_failure (sweep, key, claim, attempts, last_error, dead_at)
                        select 'odd.names', n::text, 1, 1, 'x', now() from generate_series(1, 2500) n").await;
    fixture
        .run(&["sweeps", "redrive", "odd.names", "--all"])
        .await
        .expect(4)
        .says("redrive 2500 rows?");
    fixture
        .run(&["sweeps", "redrive", "odd.names", "--all", "--yes"])
        .await
        .expect(0)
        .prints("2500 rows");
}
