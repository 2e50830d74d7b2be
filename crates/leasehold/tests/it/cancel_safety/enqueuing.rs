//! Enqueues that are dropped half-way.

use leasehold::{Draft, Enqueue, Leasehold};
use leasehold_testing::cancel::for_each_poll;

use super::Setup;
use crate::fixture::{jobs, until};
use crate::support::Note;

#[tokio::test(flavor = "multi_thread")]
async fn b7_dropped_enqueue_stores_its_job_or_nothing() {
    let setup = Setup::new().await;
    let points = for_each_poll(
        async |n| {
            let engine = setup.engine.clone();
            async move { Note { n: n as i64 }.enqueue(&engine).await.map(|stored| stored.id()) }
        },
        async |work| work.await,
        async |n, ended| {
            setup.assert_no_open_transaction(&format!("after {n} waits")).await;
            let stored = setup
                .count(&format!("select count(*) from leasehold.job where kwargs->>'n' = '{n}'"))
                .await;
            match ended {
                Some(result) => assert!(result.is_ok() && stored == 1),
                None => assert!(stored <= 1),
            }
        },
    )
    .await;
    assert!(points > 0, "nothing was dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_dropped_enqueue_with_a_key_can_be_repeated() {
    let setup = Setup::new().await;
    let draft = |n: u64| Draft::of(&Note { n: n as i64 }).expect("a draft").key(format!("{n}"));
    for_each_poll(
        async |n| {
            let engine = setup.engine.clone();
            let draft = draft(n);
            async move { draft.enqueue(&engine).await }
        },
        async |work| work.await,
        async |n, _| {
            setup.assert_no_open_transaction(&format!("after {n} waits")).await;
            draft(n).enqueue(&setup.engine).await.expect("enqueued");
            let stored = setup
                .count(&format!("select count(*) from leasehold.job where kwargs->>'n' = '{n}'"))
                .await;
            assert_eq!(stored, 1);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_dropped_bulk_enqueue_stores_all_or_nothing() {
    let setup = Setup::new().await;
    for_each_poll(
        async |n| {
            let engine = setup.engine.clone();
            async move { engine.enqueue_many((0..500).map(|_| Note { n: n as i64 })).await }
        },
        async |work| work.await,
        async |n, ended| {
            setup.assert_no_open_transaction(&format!("after {n} waits")).await;
            // The client may still be aborting the COPY.
            let running = "select count(*) from pg_stat_activity where datname = current_database() \
                           and state <> 'idle' and pid <> pg_backend_pid()";
            until("the server is at rest", async || setup.count(running).await == 0).await;
            let stored = setup.count(&format!("select count(*) from leasehold.job where kwargs->>'n' = '{n}'")).await;
            match ended {
                Some(result) => assert_eq!((result.expect("stored"), stored), (500, 500)),
                None => assert!(stored == 0 || stored == 500, "{stored} of 500"),
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_enqueue_in_a_dropped_transaction_is_not_stored() {
    let setup = Setup::new().await;
    let work = async |engine: Leasehold, n: u64| -> Result<(), leasehold::JobError> {
        let mut client = engine.pool().get().await?;
        let transaction = client.transaction().await?;
        Note { n: n as i64 }.enqueue(&*transaction).await?;
        Note { n: n as i64 }.enqueue(&*transaction).await?;
        transaction.commit().await?;
        Ok(())
    };
    for_each_poll(
        async |n| work(setup.engine.clone(), n),
        async |work| work.await,
        async |n, ended| {
            setup.assert_no_open_transaction(&format!("after {n} waits")).await;
            let stored = setup
                .count(&format!("select count(*) from leasehold.job where kwargs->>'n' = '{n}'"))
                .await;
            match ended {
                Some(result) => assert!(result.is_ok() && stored == 2),
                None => assert!(stored == 0 || stored == 2, "{stored} of 2"),
            }
        },
    )
    .await;
    assert!(jobs(&setup.client).await >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_dropped_connects_leave_no_session_behind() {
    let setup = Setup::new().await;
    let url = setup.engine.database().config().clone();
    for_each_poll(
        async |_| {
            let database =
                leasehold::database::Database::from_config(url.clone()).expect("a database");
            async move { Leasehold::from_database(database).await.is_ok() }
        },
        async |work| work.await,
        async |_, ended| assert_ne!(ended, Some(false)),
    )
    .await;
    let open = "select count(*) from pg_stat_activity where datname = current_database() \
                and pid <> pg_backend_pid()";
    let mine = setup.engine.pool().status().size as i64;
    until("sessions of dropped connects are closed", async || setup.count(open).await <= mine)
        .await;
}
