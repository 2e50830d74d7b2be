//! sqlx 0.9: enqueue and complete in its transactions.

use std::sync::Arc;

use leasehold::{Ctx, Draft, Enqueue, EnqueueError, Enqueued, JobError, State};
use leasehold_testing::TestDatabase;
use serde_json::json;
use sqlx::PgPool;

use super::{assert_stored_in_full, full_draft, jobs};
use crate::rig::queue_settings;
use crate::support::{Note, engine};

async fn pool(database: &TestDatabase) -> PgPool {
    PgPool::connect(&database.url()).await.expect("a pool")
}

#[tokio::test]
async fn a_transaction_of_sqlx_carries_the_job() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let pool = pool(&database).await;
    let mut tx = pool.begin().await.expect("a transaction");
    Note { n: 1 }.enqueue(&mut *tx).await.expect("enqueued");
    assert_eq!(jobs(&looking).await, 0, "nobody sees it before the commit");
    tx.rollback().await.expect("rolled back");
    assert_eq!(jobs(&looking).await, 0);

    let mut tx = pool.begin().await.expect("a transaction");
    let id = full_draft().enqueue(&mut *tx).await.expect("enqueued").id();
    tx.commit().await.expect("committed");
    assert_eq!(jobs(&looking).await, 1);
    assert_stored_in_full(&looking, id).await;
    let mut tx = pool.begin().await.expect("a transaction");
    let again = full_draft().enqueue(&mut *tx).await.expect("known");
    assert_eq!(again, Enqueued::Duplicate(id));
}

#[tokio::test]
async fn b11_connections_of_sqlx_that_share_a_session_do_not_collide() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    for n in 0..20 {
        // Each with a connection of its own; a pooler gives them the same few sessions.
        let pool = pool(&database).await;
        let mut tx = pool.begin().await.expect("a transaction");
        Note { n }.enqueue(&mut *tx).await.expect("enqueued");
        tx.commit().await.expect("committed");
        pool.close().await;
    }
    assert_eq!(jobs(&looking).await, 20);
}

#[tokio::test]
async fn sqlx_stores_a_moment_as_it_was_given() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let pool = pool(&database).await;
    let at: jiff::Timestamp = "2031-02-03T04:05:06.789012Z".parse().expect("a moment");
    let mut tx = pool.begin().await.expect("a transaction");
    let draft = Note { n: 1 }.with().expect("a draft").at(at);
    let id = draft.enqueue(&mut *tx).await.expect("enqueued").id();
    tx.commit().await.expect("committed");
    let row =
        client.query_one("select scheduled_at from leasehold.job where id = $1", &[&id.0]).await;
    assert_eq!(row.expect("the job").get::<_, jiff::Timestamp>(0), at);
}

#[tokio::test]
async fn errors_through_sqlx_are_those_of_every_driver() {
    let database = TestDatabase::new().await;
    let pool = pool(&database).await;
    let keyed = |n| Note { n }.with().expect("a draft").key("order:7");
    let mut tx = pool.begin().await.expect("a transaction");
    keyed(1).enqueue(&mut *tx).await.expect("enqueued");
    let error = keyed(2).enqueue(&mut *tx).await.expect_err("another payload");
    assert!(matches!(error, EnqueueError::KeyConflict(_)), "{error:?}");
    assert!(error.to_string().contains("Use a new key"), "{error}");
    drop(tx);

    let mut tx = pool.begin().await.expect("a transaction");
    let large = Draft::untyped("note", &json!({ "a": "x".repeat(70_000) })).expect("JSON");
    let error = large.enqueue(&mut *tx).await.expect_err("too large");
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("64 KiB") && text.contains("reference"), "{text}");
    drop(tx);

    let client = database.connect_directly().await;
    client.batch_execute("drop schema leasehold cascade").await.expect("dropped");
    let mut tx = pool.begin().await.expect("a transaction");
    let error = keyed(3).enqueue(&mut *tx).await.expect_err("no schema");
    assert!(matches!(error, EnqueueError::NoSchema(_)), "{error:?}");
}

#[tokio::test]
async fn a_job_completed_in_a_transaction_of_sqlx_ends_with_its_effect() {
    async fn note(job: Note, ctx: Ctx, State(pool): State<Arc<PgPool>>) -> Result<(), JobError> {
        let mut tx = pool.begin().await?;
        let effect = sqlx::query("insert into effects values ($1)").bind(job.n);
        effect.persistent(false).execute(&mut *tx).await?;
        if ctx.attempt() == 1 {
            return Err(JobError::retry("rolled back")); // with the transaction
        }
        ctx.complete_in_sqlx(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client.batch_execute("create table effects (n bigint)").await.expect("a table");
    queue_settings(&client, "backoff_base = '1 hour'").await;
    let engine = engine(&database).await;
    let pool = Arc::new(pool(&database).await);
    Note { n: 7 }.enqueue(&engine).await.expect("enqueued");
    let worker = || engine.worker_with(Arc::clone(&pool)).handle(note);
    assert_eq!(worker().run_until_idle().await.expect("it ends").retried, 1);
    client.batch_execute("update leasehold.job set scheduled_at = now()").await.expect("due again");
    assert_eq!(worker().run_until_idle().await.expect("it ends").done, 1);
    let effects = client.query("select n from effects", &[]).await.expect("effects");
    assert_eq!(effects.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [7]);
}
