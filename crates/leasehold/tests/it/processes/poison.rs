//! Jobs that kill the process that runs them.

use leasehold::{Enqueue, Leasehold};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use super::{Process, assert_no_orphans, noted, tables};
use crate::fixture::{back_date_leases, completed, count, jobs, until};
use crate::support::Note;

/// Starts workers, one after the other, until no job is left. Returns how many died.
async fn work_until_done(database: &TestDatabase, client: &Client) -> i64 {
    let mut deaths = 0;
    loop {
        let mut process = Process::start("poison", database, "");
        until("the process dies, or nothing is left", async || {
            // Skip the backoff.
            let due = "update leasehold.job set scheduled_at = now() where not held and scheduled_at > now()";
            client.batch_execute(due).await.expect("moved");
            !process.is_alive() || jobs(client).await == 0
        })
        .await;
        if process.is_alive() {
            return deaths;
        }
        back_date_leases(client).await;
        deaths += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_poison_job_kills_three_processes_and_is_buried_alone() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    engine.enqueue_many((0..30).map(|n| Note { n })).await.expect("enqueued");
    let poison = Note { n: -1 }.enqueue(&engine).await.expect("enqueued").id();
    engine.enqueue_many((30..60).map(|n| Note { n })).await.expect("enqueued");
    let deaths = work_until_done(&database, &client).await;
    assert_eq!((deaths, noted(&client, "dying").await), (3, 3));
    assert_eq!(completed(&client).await, 60);
    let buried = format!(
        "select count(*) from leasehold_internal.dead_job where id = {poison} and cause = 'lost' and lost_count = 3"
    );
    assert_eq!(count(&client, &buried).await, 1);
    assert_eq!(count(&client, "select count(*) from leasehold_internal.dead_job").await, 1);
    assert_no_orphans(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_several_poison_jobs_bury_no_other_job() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    tables(&client).await;
    // Every tenth job kills its process.
    engine
        .enqueue_many((0..40).map(|n| Note { n: if n % 10 == 5 { -n } else { n } }))
        .await
        .expect("enqueued");
    let deaths = work_until_done(&database, &client).await;
    println!("4 poison jobs among 40: {deaths} processes died");
    assert!(deaths <= 12, "{deaths} deaths for 4 poison jobs");
    assert_eq!(
        count(
            &client,
            "select count(*) from leasehold_internal.dead_job where (kwargs->>'n')::int >= 0"
        )
        .await,
        0
    );
    assert_eq!(
        count(&client, "select count(*) from leasehold_internal.dead_job where cause = 'lost'")
            .await,
        4
    );
    assert_eq!(completed(&client).await, 36);
}
