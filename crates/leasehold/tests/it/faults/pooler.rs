//! A pooler in transaction mode between engine and server.

use std::sync::Arc;

use leasehold::events::Event;
use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, JobResult, Leasehold, State};
use leasehold_testing::{PgBouncer, PrivatePostgres, TestDatabase};
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use crate::fixture::{completed, count, queue_settings, run, sql, until};
use crate::support::Note;

async fn into_ledger(job: Note, tx: JobTx, ctx: Ctx) -> JobResult {
    tx.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
    if job.n == 0 {
        // Needs a second session beside that of the transaction.
        ctx.once_do("wait", async || Ok(())).await?;
    }
    Ok(tx.complete().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_through_a_transaction_pooler_everything_works_by_polling() {
    let postgres = PrivatePostgres::throwaway().start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    let pgbouncer = PgBouncer::start(&postgres, 6).expect("a pooler");
    let client = database.connect_directly().await;
    sql(&client, "create table ledger (n bigint)").await;
    // Long enough that a slow machine does not lose the lease.
    queue_settings(&client, "lease = '24 seconds'").await;
    let direct = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    assert!(!direct.database().is_pooled());
    let engine = Leasehold::connect(&pgbouncer.url(database.name())).await.expect("an engine");
    assert!(engine.database().is_pooled(), "the probe finds the pooler");

    let go = Arc::new(Notify::new());
    let worker = engine.worker_with(Arc::clone(&go)).queue("default", 4);
    let slow = async |_: Slow, State(go): State<Arc<Notify>>| go.notified().await;
    let mut worker = run(worker.handle(into_ledger).handle(slow));
    engine.enqueue_many((0..100).map(|n| Note { n })).await.expect("enqueued");
    for n in 100..120_i64 {
        let draft = Note { n }.draft().expect("a draft").key(format!("{n}"));
        draft.clone().enqueue(&engine).await.expect("enqueued");
        assert!(!draft.enqueue(&engine).await.expect("enqueued").is_new());
    }
    let slow = Slow {}.enqueue(&engine).await.expect("enqueued").id();
    worker.started(slow).await;
    worker.renewed(1).await;
    go.notify_one();
    until("all done", async || completed(&client).await == 121).await;
    assert_eq!(count(&client, "select count(*) from ledger").await, 120);
    assert!(!worker.seen().iter().any(|event| matches!(event, Event::LeaseLost { .. })));
    worker.stop().await;
    // The engine leaves no LISTEN on a session that other clients share.
    let listening = "select count(*) from pg_stat_activity where query ilike 'listen%'";
    assert_eq!(count(&client, listening).await, 0);
}

/// Runs until its lease was renewed.
#[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
#[job(name = "slow")]
struct Slow {}
