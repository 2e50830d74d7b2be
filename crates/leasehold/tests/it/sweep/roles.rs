//! A sweep needs few rights: those of a worker, and those on its table that the owner gives.

use leasehold::Leasehold;
use leasehold::database::Database;
use leasehold::sweep::{WatchdogRun, run_watchdog};

use super::fixture::{Shelf, loans};
use crate::fixture::{count, sql};

#[tokio::test]
async fn worker_sweeps_with_the_rights_of_a_worker_only() {
    let shelf = Shelf::with(300).await;
    let user = format!("sweeper_{:08x}", rand::random::<u32>());
    shelf
        .sql(&format!(
            "create role {user} login in role leasehold_worker;
             grant usage on schema library to {user};
             grant select, update on library.loans, library.books to {user};
             grant insert on library.trail to {user}"
        ))
        .await;
    let mut config = shelf.database.direct_config();
    config.user(&user);
    let engine = Leasehold::from_database(Database::from_config(config.clone()).expect("a config"))
        .await
        .expect("an engine");
    let sweep = loans().handle(|batch| async move {
        batch.fail("7", "the shelf is locked");
        Ok(())
    });
    let report = sweep.run_once(&engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed), (299, 1));
    shelf.sql("update leasehold_internal.sweep_failure set retry_at = now()").await;
    assert_eq!(sweep.run_watchdog_once(&engine).await.expect("a look").retried, 1);
    let client = engine.pool().get().await.expect("a connection");
    for forbidden in [
        "update leasehold_internal.sweep set next_run_at = now()",
        "delete from leasehold_internal.sweep",
        "select leasehold_internal.next_generation()",
        "select leasehold.pause_sweep('loans.end', 'me')",
        "select leasehold_internal.redrive_sweep('loans.end', null, 'me')",
    ] {
        let refused = client.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(refused.code().map(|code| code.code()), Some("42501"), "{forbidden}");
    }
    drop((client, engine));
    sql(&shelf.client, &format!("drop owned by {user}; drop role {user}")).await;
}

#[tokio::test]
async fn h19_operator_asks_for_the_watchdog_of_a_sweep_that_another_role_declared() {
    let shelf = Shelf::with(3).await;
    let user = format!("sweeper_{:08x}", rand::random::<u32>());
    // The sweeper owns the table, so that its triggers run its code.
    shelf
        .sql(&format!(
            "create role {user} login in role leasehold_worker, leasehold_viewer;
             grant usage on schema library to {user};
             grant select, update on library.books to {user};
             grant insert on library.trail to {user};
             alter table library.loans owner to {user};
             create table library.ran_as (who text); grant insert on library.ran_as to {user};
             create function library.spy() returns trigger language plpgsql as $$
             begin insert into library.ran_as values (current_user); return new; end $$;
             create trigger spy before update on library.loans
                 for each row execute function library.spy()"
        ))
        .await;
    let mut config = shelf.database.direct_config();
    config.user(&user);
    let database = Database::from_config(config).expect("a config");
    let engine = Leasehold::from_database(database).await.expect("an engine");
    loans().run_watchdog_once(&engine).await.expect("declared");
    shelf
        .sql(
            "update leasehold_internal.sweep set watchdog_ran_at = now();
             alter table library.loans disable trigger all;
             update library.loans set state = 'coming', taken_by = 7,
                    taken_at = now() - interval '3 hours';
             alter table library.loans enable trigger all",
        )
        .await;
    let asked = run_watchdog(&shelf.engine, "loans.end", "ann").await.expect("asked");
    assert_eq!(asked, Some(WatchdogRun::Asked));
    let (asked, ran) = (
        "select count(*) from leasehold_internal.sweep where watchdog_ran_at is null",
        "select count(*) from library.ran_as where who <> (select declared_by from leasehold_internal.sweep)",
    );
    assert_eq!(count(&shelf.client, asked).await, 1, "the next worker has the turn");
    assert_eq!(shelf.count("state = 'coming'").await, 3, "nothing ran here");
    let audit =
        "select count(*) from leasehold.audit where actor = 'ann' and action = 'run watchdog'";
    assert_eq!(count(&shelf.client, audit).await, 1);
    let own = run_watchdog(&engine, "loans.end", user.as_str()).await.expect("a turn");
    assert!(matches!(own, Some(WatchdogRun::Ran(report)) if report.reset == 3), "{own:?}");
    assert_eq!(count(&shelf.client, ran).await, 0, "code of the table ran as another role");
    assert_eq!(run_watchdog(&shelf.engine, "nothing", "ann").await.expect("asked"), None);
    drop(engine);
    sql(&shelf.client, &format!("drop owned by {user} cascade; drop role {user}")).await;
}
