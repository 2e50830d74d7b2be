//! A worker whose role may not do everything.

use leasehold::Leasehold;
use leasehold::database::Database;
use leasehold::events::Event;
use leasehold_testing::TestDatabase;

use super::{eager, litter};
use crate::fixture::{count, run, sql, until};
use crate::support::{Note, wait_for};

#[tokio::test(flavor = "multi_thread")]
async fn d15_worker_without_housekeeper_rights_warns_once_and_does_the_other_duties() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let user = format!("plain_{:08x}", rand::random::<u32>());
    sql(&client, &format!("create role {user} login in role leasehold_worker, leasehold_producer"))
        .await;
    litter(&client).await;
    let mut config = database.direct_config();
    config.user(&user);
    let engine = Leasehold::from_database(Database::from_config(config).expect("a config"))
        .await
        .expect("an engine");
    assert!(!engine.may_run_housekeeping().await.expect("a reply"));
    let mut worker = run(engine.worker().housekeeping(eager()).handle(async |_: Note| {}));
    let (role, duties) = wait_for(&mut worker.events, |event| match event {
        Event::DutiesNotAllowed { role, duties, .. } => Some((role.clone(), duties.clone())),
        _ => None,
    })
    .await;
    assert_eq!(role, user);
    assert_eq!(duties, ["batches", "clamp", "measure", "prune", "schedules", "walk"]);
    // The worker does the duties that it may do.
    until("the lease is reclaimed", async || {
        count(&client, "select count(*) from leasehold.job where lost_count = 1 and not held").await
            == 1
    })
    .await;
    let seen = worker.seen();
    worker.stop().await;
    let failing =
        |event: &Event| matches!(event, Event::DutyFailing { .. } | Event::DutiesNotAllowed { .. });
    assert!(!seen.iter().any(failing), "it is logged once: {seen:?}");
    drop(engine);
    sql(&client, &format!("drop owned by {user}; drop role {user}")).await;
}
