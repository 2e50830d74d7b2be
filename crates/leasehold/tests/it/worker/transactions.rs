//! The job's completion inside the handler's own transaction.

use std::sync::Arc;

use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, FinishError, Finished, JobResult, Outcome, State};
use leasehold_testing::TestDatabase;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::expire_leases;
use crate::fixture::{Running, completed, count, jobs, queue_settings, run, soon, sql};
use crate::support::{Note, engine};

const INSERT: &str = "insert into ledger values ($1)";

async fn ledger(database: &TestDatabase) -> tokio_postgres::Client {
    let client = database.connect().await;
    sql(&client, "create table ledger (n bigint primary key)").await;
    queue_settings(&client, "backoff_base = '1 millisecond'").await;
    client
}

/// Waits until one attempt is lost and the next one completes the job. The events come in any order.
async fn lost_and_completed(worker: &mut Running) {
    let ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert!(ends.contains(&Finished::Lost) && ends.contains(&Finished::Completed), "{ends:?}");
}

async fn ledger_rows(client: &tokio_postgres::Client) -> i64 {
    count(client, "select count(*) from ledger").await
}

#[tokio::test(flavor = "multi_thread")]
async fn completing_in_a_transaction_that_rolls_back_completes_nothing() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let handler = async |job: Note, ctx: Ctx| -> JobResult {
        let mut connection = ctx.engine().pool().get().await?;
        let transaction = connection.transaction().await?;
        transaction.query_typed(INSERT, &[(&job.n, Type::INT8)]).await?;
        ctx.complete_in(&transaction).await?;
        if ctx.attempt() == 1 {
            transaction.rollback().await?;
        } else {
            transaction.commit().await?;
        }
        Ok(Outcome::Complete)
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Retried);
    assert_eq!(worker.next_end().await, Finished::Completed);
    assert_eq!(
        (ledger_rows(&client).await, completed(&client).await, jobs(&client).await),
        (1, 1, 0)
    );
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_handler_that_ignores_an_sql_error_cannot_complete_its_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let (done, mut results) = unbounded_channel();
    let handler = async |job: Note,
                         tx: JobTx,
                         ctx: Ctx,
                         State(done): State<UnboundedSender<bool>>|
           -> JobResult {
        tx.query_typed(INSERT, &[(&job.n, Type::INT8)]).await?;
        if ctx.attempt() == 1 {
            // The handler ignores a unique violation: the transaction is aborted.
            let swallowed = tx.query_typed(INSERT, &[(&job.n, Type::INT8)]).await;
            assert_eq!(swallowed.expect_err("twice").code(), Some(&SqlState::UNIQUE_VIOLATION));
        }
        let completed = tx.complete().await;
        let _ = done.send(completed.is_ok());
        Ok(completed?)
    };
    let mut worker = run(engine.worker_with(done).queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Retried);
    assert_eq!(soon(results.recv()).await, Some(false));
    assert_eq!(worker.next_end().await, Finished::Completed);
    assert_eq!((ledger_rows(&client).await, completed(&client).await), (1, 1));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c8_commit_that_the_server_turns_into_a_rollback_is_no_success() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let handler = async |job: Note, ctx: Ctx| -> JobResult {
        let mut connection = ctx.engine().pool().get().await?;
        let transaction = connection.transaction().await?;
        transaction.query_typed(INSERT, &[(&job.n, Type::INT8)]).await?;
        let aborting = transaction.query_typed("select 1 / 0", &[]);
        // The handler swallows the error before or after the completion, and COMMIT reports success
        // each time.
        match ctx.attempt() {
            1 => {
                let _ = aborting.await;
                let _ = ctx.complete_in(&transaction).await;
            }
            2 => {
                ctx.complete_in(&transaction).await?;
                let _ = aborting.await;
            }
            _ => {
                drop(aborting);
                ctx.complete_in(&transaction).await?;
            }
        }
        transaction.commit().await?;
        Ok(Outcome::Complete)
    };
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    let ends: Vec<_> = worker.finished(3).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Retried, Finished::Retried, Finished::Completed]);
    assert_eq!((ledger_rows(&client).await, completed(&client).await), (1, 1));
    worker.stop().await;
}

type Gates = (UnboundedSender<()>, Arc<Semaphore>);

/// Takes a snapshot, waits while the test changes the job's row, then completes.
async fn in_isolation(job: Note, ctx: Ctx, State((reached, gate)): State<Gates>) -> JobResult {
    let level = match job.n {
        1 => IsolationLevel::ReadCommitted,
        2 => IsolationLevel::RepeatableRead,
        _ => IsolationLevel::Serializable,
    };
    let mut connection = ctx.engine().pool().get().await?;
    let transaction = connection.build_transaction().isolation_level(level).start().await?;
    transaction.query_typed(INSERT, &[(&job.n, Type::INT8)]).await?;
    if ctx.attempt() == 1 {
        let _ = reached.send(());
        gate.acquire().await?.forget();
    }
    ctx.complete_in(&transaction).await?;
    transaction.commit().await?;
    Ok(Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_serialization_failure_fails_the_attempt_and_leaves_no_effect() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let (reached, mut waiting) = unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let state = (reached, Arc::clone(&gate));
    let mut worker = run(engine.worker_with(state).queue("default", 1).handle(in_isolation));
    for n in 1..=3 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
        soon(waiting.recv()).await.expect("a snapshot");
        sql(&client, "update leasehold.job set tag = 'changed'").await;
        assert_eq!(ledger_rows(&client).await, n - 1);
        gate.add_permits(1);
        if n > 1 {
            assert_eq!(worker.next_end().await, Finished::Retried);
        }
        assert_eq!(worker.next_end().await, Finished::Completed);
        assert_eq!((ledger_rows(&client).await, completed(&client).await), (n, n));
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_snapshot_from_before_the_expiry_cannot_complete_the_job() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let (reached, mut waiting) = unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let state = (reached, Arc::clone(&gate));
    let mut worker = run(engine
        .worker_with(state)
        .queue("default", 1)
        .without_housekeeping()
        .handle(in_isolation));
    for n in 1..=3 {
        Note { n }.enqueue(&engine).await.expect("enqueued");
        soon(waiting.recv()).await.expect("a snapshot");
        assert_eq!(expire_leases(&client).await, 1);
        gate.add_permits(1);
        lost_and_completed(&mut worker).await;
        assert_eq!((ledger_rows(&client).await, completed(&client).await), (n, n), "level {n}");
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_that_begins_with_a_lease_check_keeps_the_job_until_it_ends() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, ledger(&database).await);
    let (reached, mut waiting) = unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let handler = async |_: Note, ctx: Ctx, State((reached, gate)): State<Gates>| -> JobResult {
        let mut connection = ctx.engine().pool().get().await?;
        for _ in 0..2 {
            let transaction = connection.transaction().await?;
            let checked = ctx.check_lease_in(&transaction).await;
            if ctx.attempt() > 1 {
                return Ok(Outcome::Complete);
            }
            if matches!(checked, Err(FinishError::LeaseLost { .. })) {
                let _ = reached.send(());
                return Ok(Outcome::Complete);
            }
            let _ = reached.send(());
            gate.acquire().await?.forget();
            transaction.commit().await?;
            let _ = reached.send(());
            gate.acquire().await?.forget();
        }
        Ok(Outcome::Complete)
    };
    let state = (reached, Arc::clone(&gate));
    let mut worker =
        run(engine.worker_with(state).queue("default", 1).without_housekeeping().handle(handler));
    Note { n: 1 }.enqueue(&engine).await.expect("enqueued");
    soon(waiting.recv()).await.expect("inside the first transaction");
    assert_eq!(expire_leases(&client).await, 0, "the checked row is skipped");
    gate.add_permits(1);
    soon(waiting.recv()).await.expect("between the transactions");
    assert_eq!(expire_leases(&client).await, 1);
    gate.add_permits(1);
    soon(waiting.recv()).await.expect("the lease is lost");
    lost_and_completed(&mut worker).await;
    worker.stop().await;
}
