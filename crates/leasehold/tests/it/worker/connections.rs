//! Connections and limits of the transactions that handlers get.

use std::sync::Arc;
use std::time::Duration;

use leasehold::worker::{JobTx, Transactions};
use leasehold::{Enqueue, Finished, Job, JobResult, State, WorkerError};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::fixture::{completed, count, run, until};
use crate::support::{Note, engine};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "ledger", max_attempts = 1, run_limit = "2h")]
struct Ledger {}

#[tokio::test(flavor = "multi_thread")]
async fn a27_job_without_a_connection_is_snoozed_and_its_attempt_is_not_counted() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let gate = Arc::new(Semaphore::new(0));
    let handler = async |_: Ledger, tx: JobTx, State(gate): State<Arc<Semaphore>>| -> JobResult {
        drop(gate.acquire().await);
        Ok(tx.complete().await?)
    };
    let transactions = Transactions::default().connections(1).wait(Duration::from_millis(50));
    let worker = engine.worker_with(gate.clone()).queue("default", 3).transactions(transactions);
    for _ in 0..3 {
        Ledger {}.enqueue(&engine).await.expect("enqueued");
    }
    let mut worker = run(worker.handle(handler));
    let ends: Vec<_> = worker.finished(2).await.into_iter().map(|end| end.1).collect();
    assert_eq!(ends, [Finished::Snoozed; 2]);
    gate.add_permits(3);
    // A counted attempt would have buried them: each has only one.
    until("all of them", async || completed(&client).await == 3).await;
    worker.stop().await;
    let once = "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(count(&client, once).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a27_transaction_of_a_handler_may_be_idle_for_its_run_limit() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let handler = async |_: Ledger, tx: JobTx| -> JobResult {
        let rows = tx
            .query(
                "select setting::bigint from pg_settings where name in \
                 ('idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout') \
                 order by name",
                &[],
            )
            .await?;
        let limits: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let wanted = [7_230_000, 10_000, 7_230_000];
        if limits != wanted {
            return Err(leasehold::JobError::permanent(format!("{limits:?}")));
        }
        Ok(tx.complete().await?)
    };
    Ledger {}.enqueue(&engine).await.expect("enqueued");
    let mut worker = run(engine.worker().queue("default", 1).handle(handler));
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
    assert_eq!(completed(&client).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a27_worker_has_a_connection_per_slot() {
    const SLOTS: usize = 20;
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let full = Arc::new(tokio::sync::Barrier::new(SLOTS));
    // No handler passes before all of them have a transaction.
    let handler =
        async |_: Ledger, tx: JobTx, State(full): State<Arc<tokio::sync::Barrier>>| -> JobResult {
            full.wait().await;
            Ok(tx.complete().await?)
        };
    for _ in 0..SLOTS {
        Ledger {}.enqueue(&engine).await.expect("enqueued");
    }
    let mut worker = run(engine.worker_with(full).queue("default", SLOTS).handle(handler));
    worker.finished(SLOTS).await;
    worker.stop().await;
    assert_eq!(completed(&client).await, 20);
}

#[tokio::test]
async fn settings_of_transactions_that_cannot_work_stop_the_start() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let none = Transactions::default().connections(0);
    let worker = engine.worker().queue("default", 1).transactions(none).handle(async |_: Note| {});
    let refused = worker.run_until(std::future::ready(())).await;
    assert!(matches!(refused, Err(WorkerError::Config(_))), "{refused:?}");
}
