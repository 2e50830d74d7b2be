//! When no wake-up is sent.

use std::sync::Arc;

use leasehold::{Enqueue, Finished, State};
use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::sync::Semaphore;

use super::{Place, next_end};
use crate::fixture::jobs;
use crate::support::Note;

#[tokio::test]
async fn b17_producers_send_no_wake_up_while_every_worker_is_busy() {
    let place = Place::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waits = async |_: Note, State(gate): State<Arc<Semaphore>>| {
        gate.acquire().await.expect("open").forget();
    };
    let worker = place.engine.worker_with(Arc::clone(&gate)).queue("default", 1).handle(waits);
    let mut worker = place.idle(worker).await;
    Note { n: 0 }.enqueue(&place.engine).await.expect("enqueued");
    place.is_idle(0).await;

    let mut listener = place.listener().await;
    Note { n: 1 }.enqueue(&place.engine).await.expect("enqueued");
    place.sql(r#"insert into leasehold.job (name, kwargs) values ('note', '{"n": 2}')"#).await;
    place.engine.enqueue_many((3..100).map(|n| Note { n })).await.expect("enqueued");
    assert!(listener.heard().await.is_empty(), "no worker was idle");

    gate.add_permits(100);
    for _ in 0..100 {
        assert_eq!(next_end(&mut worker).await, Finished::Completed);
    }
    place.is_idle(1).await;
    place.sql(r#"insert into leasehold.job (name, kwargs) values ('note', '{"n": 0}')"#).await;
    assert_eq!(listener.heard().await, ["default"]);
    worker.stop().await;
}

#[tokio::test]
async fn b17_transaction_sends_one_wake_up_per_queue() {
    let place = Place::new().await;
    let mut listener = place.listener().await;
    listener.begin_idle("default").await;
    listener.begin_idle("other").await;
    let many = "insert into leasehold.job (name, queue) select 'note', q.name
                  from (values ('default'), ('other')) as q (name), generate_series(1, 5000)";
    place.sql(many).await;
    assert_eq!(listener.heard().await, ["default", "other"]);
    place.sql("begin; select leasehold.enqueue('a'), leasehold.enqueue('b'); commit").await;
    assert_eq!(listener.heard().await, ["default"]);
    place.sql("select leasehold.enqueue('a', queue => 'unwatched')").await;
    assert!(listener.heard().await.is_empty(), "that queue has no worker");
}

#[tokio::test]
async fn b17_rolled_back_enqueue_sends_no_wake_up_and_hides_none() {
    let place = Place::new().await;
    let mut listener = place.listener().await;
    listener.begin_idle("default").await;
    place.sql("begin; select leasehold.enqueue('a'); rollback").await;
    assert!(listener.heard().await.is_empty());
    let savepoint = "begin; savepoint a; select leasehold.enqueue('a'); rollback to a";
    place.sql(&format!("{savepoint}; commit")).await;
    assert!(listener.heard().await.is_empty());
    place.sql(&format!("{savepoint}; select leasehold.enqueue('a'); commit")).await;
    assert_eq!(listener.heard().await, ["default"]);
    let block = "do $$ begin
        begin perform leasehold.enqueue('a'); raise exception 'no'; exception when others then null; end;
        perform leasehold.enqueue('a');
    end $$";
    place.sql(block).await;
    assert_eq!(listener.heard().await, ["default"]);
}

#[tokio::test]
async fn b17_scheduled_jobs_send_no_wake_up_when_enqueued() {
    let place = Place::new().await;
    let mut listener = place.listener().await;
    listener.begin_idle("default").await;
    let later = "insert into leasehold.job (name, scheduled_at)
                 select 'note', now() + interval '1 minute' from generate_series(1, 10)";
    place.sql(later).await;
    assert!(listener.heard().await.is_empty(), "the next poll learns of them");
}

#[tokio::test]
async fn b17_paused_queue_gets_no_wake_ups_until_it_is_resumed() {
    let place = Place::new().await;
    place.sql("select leasehold_internal.queue_settings('default')").await;
    place.sql("select leasehold.pause('default', 'me')").await;
    let worker = place.engine.worker().queue("default", 4).queue("other", 4);
    let worker = place.idle(worker.handle(async |_: Note| {})).await;
    let (mut worker, mut listener) = (worker, place.listener().await);
    Note { n: 0 }.enqueue(&place.engine).await.expect("enqueued");
    assert!(listener.heard().await.is_empty(), "only the other queue is idle");
    place.sql("select leasehold.resume('default', 'me')").await;
    assert_eq!(next_end(&mut worker).await, Finished::Completed);
    worker.stop().await;
}

#[tokio::test]
async fn b19_transaction_with_jobs_can_be_prepared_while_a_worker_sleeps() {
    let postgres = PrivatePostgres::throwaway().set("max_prepared_transactions", "2");
    let postgres = postgres.start().expect("a server");
    let place = Place::on(TestDatabase::on(&postgres).await.expect("a database")).await;
    let mut listener = place.listener().await;
    listener.begin_idle("default").await;
    place.sql("begin; select leasehold.enqueue('a'); prepare transaction 'two phases'").await;
    assert_eq!(jobs(&place.client).await, 0);
    place.sql("commit prepared 'two phases'").await;
    assert_eq!(jobs(&place.client).await, 1);
    // The extended protocol, which most drivers use.
    place.sql("begin; select leasehold.enqueue('a')").await;
    place.client.execute("prepare transaction 'two phases'", &[]).await.expect("prepared");
    place.client.execute("commit prepared 'two phases'", &[]).await.expect("committed");
    assert_eq!(jobs(&place.client).await, 2);
    assert!(
        listener.heard().await.is_empty(),
        "a prepared transaction cannot notify: workers poll"
    );
}

#[tokio::test]
async fn b19_producer_keeps_no_lock_after_its_check() {
    let place = Place::new().await;
    let producer = place.database.connect_directly().await;
    crate::fixture::sql(
        &producer,
        "begin; select leasehold.enqueue('a'); set constraints all immediate",
    )
    .await;
    let locks = "select count(*) from pg_locks where locktype = 'advisory' and database = \
                 (select oid from pg_database where datname = current_database())";
    assert_eq!(
        crate::fixture::number(&place.client, locks).await,
        0,
        "its transaction is still open"
    );
    crate::fixture::sql(&producer, "commit").await;
}
