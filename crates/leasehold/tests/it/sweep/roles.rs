//! A sweep needs few rights: those of a worker, and those on its table that the owner gives.

use leasehold::Leasehold;
use leasehold::database::Database;

use super::shelf::{Shelf, loans};
use crate::rig::sql;

#[tokio::test]
async fn a_worker_sweeps_with_the_rights_of_a_worker_and_touches_our_tables_only_by_functions() {
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
    let engine = Leasehold::on(Database::from_config(config.clone()).expect("a config"))
        .await
        .expect("an engine");
    let sweep = loans().handle(|batch| async move {
        batch.fail("7", "the shelf is locked");
        Ok(())
    });
    let report = sweep.run_once(&engine).await.expect("a pass");
    assert_eq!((report.finished, report.failed), (299, 1));
    shelf.sql("update leasehold.sweep_failure set retry_at = now()").await;
    assert_eq!(sweep.watch_once(&engine).await.expect("a look").retried, 1);
    let client = engine.pool().get().await.expect("a connection");
    for forbidden in [
        "update leasehold.sweep set next_run_at = now()",
        "delete from leasehold.sweep",
        "select leasehold.next_generation()",
        "select leasehold.pause_sweep('loans.end', 'me')",
        "select leasehold.redrive_sweep('loans.end', null, 'me')",
    ] {
        let refused = client.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(refused.code().map(|code| code.code()), Some("42501"), "{forbidden}");
    }
    drop((client, engine));
    sql(&shelf.client, &format!("drop owned by {user}; drop role {user}")).await;
}
