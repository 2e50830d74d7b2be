//! The canary: sent by producers, completed by every worker.

use leasehold::{Finished, JobError};

use super::{a_minute_passes, happened};
use crate::fixture;
use crate::sql::{Sql, one, run};
use crate::support::{Note, engine};

async fn nothing(_: Note) -> Result<(), JobError> {
    Ok(())
}

#[tokio::test]
async fn every_worker_completes_the_canary_of_its_queues() {
    let sql = Sql::new().await;
    let engine = engine(&sql.database).await;
    let mut worker = fixture::run(engine.worker().handle(nothing).without_housekeeping());
    assert_eq!(engine.canary(["default"]).send_once().await.unwrap(), 1);
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
    a_minute_passes(&sql).await;
    assert_eq!(happened(&sql.client, "queue", "default", "completed").await, 1.0);
    assert_eq!(happened(&sql.client, "tag", "default/leasehold.canary", "completed").await, 1.0);
}

#[tokio::test]
async fn one_canary_waits_per_queue_however_many_producers_send_one() {
    let sql = Sql::new().await;
    let (one_producer, other) = (engine(&sql.database).await, engine(&sql.database).await);
    let mut sent = 0;
    for _ in 0..3 {
        sent += one_producer.canary(["default"]).send_once().await.unwrap();
        sent += other.canary(["default"]).send_once().await.unwrap();
        run(
            &sql.client,
            "update leasehold_internal.idempotency_key set holds_until = now() - interval '1 minute'",
        )
        .await;
    }
    assert_eq!(sent, 1);
    assert_eq!(sql.count("job").await, 1);
    // Once it has completed and its minute is over, the next one is sent.
    run(&sql.client, "delete from leasehold.job").await;
    assert_eq!(other.canary(["default"]).send_once().await.unwrap(), 1);
    let tag: String = one(&sql.client, "select tag from leasehold.job", &[]).await;
    assert_eq!(tag, "leasehold.canary");
}
