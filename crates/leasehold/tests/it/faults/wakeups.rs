//! Wake-ups are lost; polling finds the work.

use leasehold::{Enqueue, Finished, Leasehold};
use leasehold_testing::TestDatabase;
use leasehold_testing::proxy::Rule;

use super::Setup;
use crate::fixture::{jobs, number, run, sql, until};
use crate::support::Note;

const LISTENERS: &str = "select count(*) from pg_stat_activity where datname = current_database() \
                         and pid <> pg_backend_pid() \
                         and query ~ 'listen leasehold_wake|(begin|end)_idle'";

#[tokio::test(flavor = "multi_thread")]
async fn c15_worker_polls_when_its_listening_session_is_killed_and_listens_again() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let mut worker = run(engine.worker().queue("default", 2).handle(async |_: Note| {}));
    for n in 0..3 {
        until("it listens", async || number(&client, LISTENERS).await == 1).await;
        let listener = number(&client, &LISTENERS.replace("count(*)", "max(pid)")).await;
        sql(&client, &format!("select pg_terminate_backend({listener})")).await;
        Note { n }.enqueue(&engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, Finished::Completed);
        // Otherwise the next round could take the old session for the new one.
        let left = format!("{LISTENERS} and pid = {listener}");
        until("the old session is over", async || number(&client, &left).await == 0).await;
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_worker_that_can_never_listen_polls() {
    let setup = Setup::new().await;
    let deaf = setup.proxy.add(Rule::cut_before("listen leasehold_wake").times(u64::MAX));
    let mut worker = run(setup.engine.worker().queue("default", 2).handle(async |_: Note| {}));
    setup.proxy.wait_fired_times(deaf, 2).await.expect("it tried");
    for n in 0..3 {
        Note { n }.enqueue(&setup.engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, Finished::Completed);
    }
    assert_eq!(number(&setup.client, LISTENERS).await, 0);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_listener_that_is_idle_in_a_transaction_blocks_no_enqueue() {
    let database = TestDatabase::new().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let (sleeper, client) = (database.connect_directly().await, database.connect_directly().await);
    sql(&sleeper, "listen leasehold_wake").await;
    sql(&sleeper, "begin; select 1").await;
    for n in 0..300 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
        sql(&client, "select leasehold_internal.wake()").await;
    }
    assert_eq!(jobs(&client).await, 300);
}
