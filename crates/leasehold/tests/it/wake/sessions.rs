//! Announcements whose session or worker ends.

use leasehold::{Enqueue, Finished};
use leasehold_testing::TestDatabase;
use leasehold_testing::proxy::{FaultProxy, Rule};
use rustix::process::Signal;

use super::{IDLE, Place, next_end};
use crate::fixture::{number, until};
use crate::processes::{Process, tables};
use crate::support::Note;

#[tokio::test(flavor = "multi_thread")]
async fn b17_killed_worker_does_not_count_as_idle() {
    let place = Place::new().await;
    tables(&place.client).await;
    let mut victim = Process::start("quick", &place.database, "");
    place.is_idle(1).await;
    victim.signal(Signal::KILL);
    victim.ended().await;
    place.is_idle(0).await;
    let mut listener = place.listener().await;
    Note { n: 1 }.enqueue(&place.engine).await.expect("enqueued");
    assert!(listener.heard().await.is_empty());
}

#[tokio::test]
async fn b17_stopped_worker_does_not_count_as_idle() {
    let place = Place::new().await;
    place.idle_worker().await.stop().await;
    place.is_idle(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_worker_that_lost_its_listening_session_announces_itself_again() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    let holder = IDLE.replace("count(*)", "max(pid)");
    for n in 0..3 {
        let old = number(&place.client, &holder).await;
        place.sql(&format!("select pg_terminate_backend({old})")).await;
        let another = format!("{IDLE} and pid <> {old}");
        until("another session", async || number(&place.client, &another).await == 1).await;
        for _ in 0..2 {
            Note { n }.enqueue(&place.engine).await.expect("enqueued");
            assert_eq!(next_end(&mut worker).await, Finished::Completed);
        }
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b17_worker_whose_announcement_fails_polls() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let proxy = FaultProxy::before(&database.direct_config()).expect("a proxy");
    let cut = proxy.add(Rule::cut_before("begin_idle").times(u64::MAX));
    let engine = leasehold::Leasehold::connect(&proxy.url()).await.expect("an engine");
    let mut worker =
        crate::fixture::run(engine.worker().queue("default", 2).handle(async |_: Note| {}));
    proxy.wait_fired_times(cut, 2).await.expect("it tried");
    for n in 0..3 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
        assert_eq!(worker.next_end().await, Finished::Completed);
    }
    assert_eq!(number(&client, IDLE).await, 0);
    worker.stop().await;
}
