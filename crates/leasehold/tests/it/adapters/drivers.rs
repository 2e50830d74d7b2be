//! What every driver with transactions of its own must do. The drivers' modules run these checks.

use std::sync::Arc;

use jiff::Timestamp;
use leasehold::worker::WorkerBuilder;
use leasehold::{Draft, Enqueue, EnqueueError, EnqueueOn, Enqueued, Leasehold};
use leasehold_testing::TestDatabase;
use serde_json::json;

use super::{assert_stored_in_full, full_draft, jobs};
use crate::fixture::queue_settings;
use crate::support::{Note, engine};

pub trait Driver: Sized {
    type Connection;

    async fn open(url: &str) -> Self;

    /// Runs work in a transaction that is then committed, or rolled back.
    async fn transaction<R>(
        &mut self,
        commit: bool,
        work: impl AsyncFnOnce(&mut Self::Connection) -> R,
    ) -> R;

    async fn execute(connection: &mut Self::Connection, sql: &str) -> bool;
}

pub async fn transaction_carries_the_job<D: Driver>()
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let mut driver = D::open(&database.url()).await;
    let work = async |tx: &mut D::Connection| {
        Note { n: 1 }.enqueue(&mut *tx).await.expect("enqueued");
        assert_eq!(jobs(&looking).await, 0, "no other session sees it before the commit");
    };
    driver.transaction(false, work).await;
    assert_eq!(jobs(&looking).await, 0);

    let work = async |tx: &mut D::Connection| full_draft().enqueue(&mut *tx).await;
    let id = driver.transaction(true, work).await.expect("enqueued").id();
    assert_eq!(jobs(&looking).await, 1);
    assert_stored_in_full(&looking, id).await;
    let work = async |tx: &mut D::Connection| full_draft().enqueue(&mut *tx).await;
    let again = driver.transaction(true, work).await.expect("known");
    assert_eq!(again, Enqueued::Duplicate(id));
}

pub async fn connections_that_share_a_session_do_not_collide<D: Driver>()
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    for n in 0..20 {
        // Each has connections of its own; a pooler maps them to the same few sessions.
        let mut driver = D::open(&database.url()).await;
        let work = async |tx: &mut D::Connection| Note { n }.enqueue(&mut *tx).await;
        driver.transaction(true, work).await.expect("enqueued");
    }
    assert_eq!(jobs(&looking).await, 20);
}

/// Moments are rounded to microseconds as tokio-postgres rounds them.
pub async fn moment_is_stored_as_it_was_given<D: Driver>()
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let mut driver = D::open(&database.url()).await;
    let sql = "select scheduled_at from leasehold.job where id = $1";
    for at in ["2031-02-03T04:05:06.789012Z", "9998-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"]
    {
        let at: Timestamp = at.parse().expect("a moment");
        let draft = Note { n: 1 }.draft().expect("a draft").run_at(at);
        let work = async |tx: &mut D::Connection| draft.enqueue(&mut *tx).await;
        let id = driver.transaction(true, work).await.expect("enqueued").id();
        let row = client.query_one(sql, &[&id.0]).await.expect("the job");
        assert_eq!(row.get::<_, Timestamp>(0), at);
    }
}

fn keyed(n: i64) -> Draft {
    Note { n }.draft().expect("a draft").key("order:7")
}

/// Enqueues the same through the driver and through tokio-postgres, and compares the errors.
async fn same_error<D: Driver>(
    database: &TestDatabase,
    driver: &mut D,
    before: &str,
    draft: Draft,
) -> EnqueueError
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    let other = draft.clone();
    let work = async |tx: &mut D::Connection| {
        assert!(D::execute(tx, before).await, "{before}");
        draft.enqueue(&mut *tx).await
    };
    let error = driver.transaction(false, work).await.expect_err("refused");
    let mut client = database.connect_directly().await;
    let tx = client.transaction().await.expect("a transaction");
    tx.batch_execute(before).await.expect(before);
    let expected = other.enqueue(&tx).await.expect_err("refused");
    assert_eq!(error.to_string(), expected.to_string());
    error
}

pub async fn errors_are_those_of_every_driver<D: Driver>()
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    const FUNCTION: &str = "leasehold.enqueue(text, jsonb, text, int, timestamptz, timestamptz, text, int, text, interval, text, text, bigint, jsonb, jsonb, jsonb)";
    let database = TestDatabase::new().await;
    let mut driver = D::open(&database.url()).await;
    let work = async |tx: &mut D::Connection| keyed(1).enqueue(&mut *tx).await;
    driver.transaction(true, work).await.expect("enqueued");

    let error = same_error(&database, &mut driver, "select 1", keyed(2)).await;
    assert!(matches!(error, EnqueueError::KeyConflict(_)), "{error:?}");
    assert!(error.to_string().contains("Use a new key"), "{error}");

    let large = Draft::untyped("note", &json!({ "a": "x".repeat(70_000) })).expect("JSON");
    let error = same_error(&database, &mut driver, "select 1", large).await;
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("64 KiB") && text.contains("reference"), "{text}");

    // A constraint of the table that no function checks first.
    let check =
        "alter table leasehold.job add constraint no_notes check (name <> 'note') not valid";
    let error = same_error(&database, &mut driver, check, keyed(1).key("other")).await;
    assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");

    let role = "set local role leasehold_viewer";
    let error = same_error(&database, &mut driver, role, keyed(1)).await;
    assert!(error.to_string().starts_with("the job was not stored: permission denied"), "{error}");

    for missing in [
        "drop schema leasehold, leasehold_internal cascade".to_owned(),
        format!("drop function {FUNCTION}"),
        "drop function leasehold_internal.check_options(text, int, timestamptz, text)".to_owned(),
    ] {
        let error = same_error(&database, &mut driver, &missing, keyed(3)).await;
        assert!(matches!(error, EnqueueError::NoSchema(_)), "{missing}: {error:?}");
    }
}

pub async fn lost_reply_leaves_the_outcome_unknown<D: Driver>()
where
    for<'a> &'a mut D::Connection: EnqueueOn + Send,
{
    let database = TestDatabase::new().await;
    let mut driver = D::open(&database.direct_url()).await;
    let work = async |tx: &mut D::Connection| {
        D::execute(tx, "select pg_terminate_backend(pg_backend_pid())").await;
        Note { n: 1 }.enqueue(&mut *tx).await.expect_err("the session is gone")
    };
    let text = driver.transaction(false, work).await.to_string();
    assert!(text.contains("may not have been stored"), "{text}");
    assert!(text.contains("idempotency key"), "{text}");
}

/// Expects a handler that writes a row into `effects` and completes the job in the same transaction,
/// and returns an error before that in the first attempt.
pub async fn completed_job_ends_with_its_effect<D: Driver + Send + Sync + 'static>(
    worker: impl Fn(&Leasehold, Arc<D>) -> WorkerBuilder<Arc<D>>,
) {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client.batch_execute("create table effects (n bigint)").await.expect("a table");
    queue_settings(&client, "backoff_base = '1 hour'").await;
    let engine = engine(&database).await;
    let driver = Arc::new(D::open(&database.url()).await);
    Note { n: 7 }.enqueue(&engine).await.expect("enqueued");
    let worker = || worker(&engine, Arc::clone(&driver));
    assert_eq!(worker().run_until_idle().await.expect("it ends").retried, 1);
    client.batch_execute("update leasehold.job set scheduled_at = now()").await.expect("due again");
    assert_eq!(worker().run_until_idle().await.expect("it ends").completed, 1);
    let effects = client.query("select n from effects", &[]).await.expect("effects");
    assert_eq!(effects.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [7]);
}
