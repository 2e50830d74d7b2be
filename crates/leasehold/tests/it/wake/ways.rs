//! Every way in which a job can be stored.

use bytes::Bytes;
use futures_util::SinkExt;
use leasehold::{Enqueue, Finished};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use super::{Place, next_end};
use crate::fixture::Running;
use crate::support::Note;

/// Stores a job whenever the worker sleeps, and waits for its end.
async fn wakes(place: &Place, worker: &mut Running, way: impl AsyncFn(i64)) {
    for n in 0..3 {
        place.asleep().await;
        way(n).await;
        assert_eq!(next_end(worker).await, Finished::Completed);
    }
}

async fn sql_wakes(place: &Place, worker: &mut Running, client: &Client, text: &str) {
    wakes(place, worker, async |_| crate::fixture::sql(client, text).await).await;
}

#[tokio::test]
async fn b17_enqueue_on_the_handle_wakes_an_idle_worker() {
    let place = Place::new().await;
    let (mut worker, engine) = (place.idle_worker().await, &place.engine);
    wakes(&place, &mut worker, async |n| {
        Note { n }.enqueue(engine).await.expect("enqueued");
    })
    .await;
    wakes(&place, &mut worker, async |n| {
        assert_eq!(engine.enqueue_many([Note { n }]).await.expect("enqueued"), 1);
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn b17_enqueue_in_a_transaction_of_the_caller_wakes_an_idle_worker() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    wakes(&place, &mut worker, async |n| {
        Note { n }.enqueue(&place.client).await.expect("enqueued");
    })
    .await;
    wakes(&place, &mut worker, async |n| {
        let mut client = place.database.connect_directly().await;
        let transaction = client.transaction().await.expect("a transaction");
        Note { n }.enqueue(&transaction).await.expect("enqueued");
        transaction.commit().await.expect("committed");
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn b17_enqueue_through_deadpool_wakes_an_idle_worker() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    wakes(&place, &mut worker, async |n| {
        let client = place.engine.pool().get().await.expect("a connection");
        Note { n }.enqueue(&client).await.expect("enqueued");
    })
    .await;
    wakes(&place, &mut worker, async |n| {
        let mut client = place.engine.pool().get().await.expect("a connection");
        let transaction = client.transaction().await.expect("a transaction");
        Note { n }.enqueue(&transaction).await.expect("enqueued");
        transaction.commit().await.expect("committed");
    })
    .await;
    worker.stop().await;
}

#[cfg(feature = "diesel-async")]
#[tokio::test]
async fn b17_enqueue_in_a_transaction_wakes_an_idle_worker_diesel_async() {
    use diesel_async::{AsyncConnection, AsyncPgConnection};
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    wakes(&place, &mut worker, async |n| {
        let url = place.database.direct_url();
        let mut connection = AsyncPgConnection::establish(&url).await.expect("a connection");
        let stored = connection.transaction(async |tx| -> anyhow::Result<()> {
            Note { n }.enqueue(&mut *tx).await?;
            Ok(())
        });
        stored.await.expect("committed");
    })
    .await;
    worker.stop().await;
}

#[cfg(feature = "sqlx-0_8")]
#[tokio::test]
async fn b17_enqueue_in_a_transaction_wakes_an_idle_worker_sqlx_0_8() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    let pool = sqlx08::PgPool::connect(&place.database.direct_url()).await.expect("a pool");
    wakes(&place, &mut worker, async |n| {
        let mut tx = pool.begin().await.expect("a transaction");
        Note { n }.enqueue(&mut *tx).await.expect("enqueued");
        tx.commit().await.expect("committed");
    })
    .await;
    worker.stop().await;
}

#[cfg(feature = "sqlx-0_9")]
#[tokio::test]
async fn b17_enqueue_in_a_transaction_wakes_an_idle_worker_sqlx_0_9() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    let pool = sqlx::PgPool::connect(&place.database.direct_url()).await.expect("a pool");
    wakes(&place, &mut worker, async |n| {
        let mut tx = pool.begin().await.expect("a transaction");
        Note { n }.enqueue(&mut *tx).await.expect("enqueued");
        tx.commit().await.expect("committed");
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn b17_sql_enqueue_wakes_an_idle_worker() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    for text in [
        r#"select leasehold.enqueue('note', '{"n": 1}')"#,
        r#"select leasehold.enqueue_many(array['note'], array['{"n": 1}']::jsonb[])"#,
        r#"insert into leasehold.job (name, kwargs) values ('note', '{"n": 1}')"#,
        r#"insert into leasehold.job (name, kwargs) select 'note', '{"n": 1}' from generate_series(1, 1)"#,
        r#"begin isolation level serializable;
           insert into leasehold.job (name, kwargs) values ('note', '{"n": 1}'); commit"#,
    ] {
        sql_wakes(&place, &mut worker, &place.client, text).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn b17_copy_wakes_an_idle_worker() {
    let place = Place::new().await;
    let mut worker = place.idle_worker().await;
    wakes(&place, &mut worker, async |n| {
        let copy = "copy leasehold.job (name, kwargs) from stdin";
        let sink = place.client.copy_in(copy).await.expect("a copy");
        let mut sink = std::pin::pin!(sink);
        sink.send(Bytes::from(format!("note\t{{\"n\":{n}}}\n"))).await.expect("sent");
        assert_eq!(sink.finish().await.expect("copied"), 1);
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn b17_enqueue_on_any_queue_of_a_worker_wakes_it() {
    let place = Place::new().await;
    let queues = ["default", "a", "b", "c"];
    let mut worker = place.engine.worker().handle(async |_: Note| {});
    for queue in queues {
        worker = worker.queue(queue, 2);
    }
    let mut worker =
        crate::fixture::run_as_is(worker.poll_every(super::POLL).without_housekeeping());
    place.is_idle(4).await;
    for n in 0..3 {
        for queue in queues {
            place.asleep().await;
            let draft = Note { n }.draft().expect("a draft").queue(queue);
            draft.enqueue(&place.engine).await.expect("enqueued");
            assert_eq!(next_end(&mut worker).await, Finished::Completed, "{queue}");
        }
    }
    worker.stop().await;
}

#[tokio::test]
async fn b17_producer_wakes_workers_without_rights_on_anything_else() {
    let place = Place::on(TestDatabase::new().await).await;
    let mut worker = place.idle_worker().await;
    // A hardened database: PUBLIC may not call what the trigger calls.
    place
        .sql(
            "revoke execute on function pg_notify(text, text), pg_try_advisory_lock(int, int), \
             pg_advisory_unlock(int, int), pg_notification_queue_usage() from public",
        )
        .await;
    let producer = place.database.connect_directly().await;
    crate::fixture::sql(&producer, "set role leasehold_producer").await;
    for text in [
        r#"insert into leasehold.job (name, kwargs) values ('note', '{"n": 1}')"#,
        r#"select leasehold.enqueue('note', '{"n": 1}')"#,
        // Functions and operators of the caller play no part.
        r#"create function pg_temp.hashtext(text) returns int language sql as 'select 1/0';
           create function pg_temp.wake(text) returns void language sql as 'select 1/0';
           set search_path = pg_temp, pg_catalog;
           insert into leasehold.job (name, kwargs) values ('note', '{"n": 1}')"#,
    ] {
        let first = text.split(';').count() == 1;
        if first {
            sql_wakes(&place, &mut worker, &producer, text).await;
        } else {
            crate::fixture::sql(&producer, text).await;
            assert_eq!(next_end(&mut worker).await, Finished::Completed);
        }
    }
    worker.stop().await;
}
