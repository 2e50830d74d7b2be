//! Handlers that are dropped half-way, as the run limit and a shutdown drop them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, JobError, JobResult, Outcome, State};
use leasehold_testing::cancel::drop_after;
use tokio_postgres::types::Type;

use super::Setup;
use crate::fixture::{completed, jobs, queue_settings, run, until};
use crate::support::Note;

/// What the handler does, and after how many waits it is dropped.
#[derive(Clone)]
struct Drill {
    part: Part,
    waits: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    left_open: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    CompleteIn,
    JobTxComplete,
    OnceDo,
    MarkIn,
    CheckLease,
}

async fn effect(ctx: &Ctx, n: i64, part: Part, tx: Option<JobTx>) -> JobResult {
    const INSERT: &str = "insert into ledger values ($1)";
    if let Some(tx) = tx {
        tx.query_typed(INSERT, &[(&n, Type::INT8)]).await?;
        return Ok(tx.complete().await?);
    }
    let mut client = ctx.engine().pool().get().await?;
    if let Part::OnceDo = part {
        drop(client);
        ctx.once_do("step", async || Ok(())).await?;
        return Ok(Outcome::Complete);
    }
    let transaction = client.transaction().await?;
    match part {
        Part::MarkIn => {
            if ctx.mark_in(&transaction, "effect").await? {
                transaction.query_typed(INSERT, &[(&n, Type::INT8)]).await?;
            }
        }
        Part::CheckLease => {
            ctx.check_lease_in(&transaction).await?;
            transaction.query_typed(INSERT, &[(&n, Type::INT8)]).await?;
            ctx.complete_in(&transaction).await?;
        }
        _ => {
            transaction.query_typed(INSERT, &[(&n, Type::INT8)]).await?;
            ctx.complete_in(&transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(Outcome::Complete)
}

async fn drilled(job: Note, ctx: Ctx, State(drill): State<Drill>) -> JobResult {
    let waits = drill.waits.load(Ordering::SeqCst);
    let begin = async {
        let tx = match drill.part {
            Part::JobTxComplete => {
                use leasehold::worker::FromAttempt;
                Some(<JobTx as FromAttempt<()>>::from_attempt(&ctx, &()).await?)
            }
            _ => None,
        };
        effect(&ctx, job.n, drill.part, tx).await
    };
    // Only the first attempt is dropped; later attempts run to their end.
    if ctx.attempt() > 1 {
        return begin.await;
    }
    match drop_after(waits, begin).await {
        Some(ended) => {
            drill.ended.store(true, Ordering::SeqCst);
            ended
        }
        None => {
            // Count immediately: the server's own timeouts would close open transactions later.
            drill
                .left_open
                .fetch_add(super::open_transactions(ctx.engine()).await, Ordering::SeqCst);
            Err(JobError::retry("dropped"))
        }
    }
}

async fn drill(part: Part) {
    let setup = Setup::new().await;
    queue_settings(&setup.client, "backoff_base = '1 millisecond'").await;
    let ended = Arc::new(AtomicBool::new(false));
    let waits = Arc::new(AtomicU64::new(0));
    let left_open = Arc::new(AtomicUsize::new(0));
    let state = Drill {
        part,
        waits: Arc::clone(&waits),
        ended: Arc::clone(&ended),
        left_open: Arc::clone(&left_open),
    };
    let worker = setup.engine.worker_with(state).queue("default", 1).grace(Duration::ZERO);
    let worker = run(worker.handle(drilled));
    let mut n = 0;
    while !ended.load(Ordering::SeqCst) {
        assert!(n < 200, "{part:?} never ends");
        waits.store(n, Ordering::SeqCst);
        Note { n: n as i64 }.enqueue(&setup.engine).await.expect("enqueued");
        n += 1;
        until("the job is done", async || jobs(&setup.client).await == 0).await;
        let open = left_open.load(Ordering::SeqCst);
        assert_eq!(open, 0, "{part:?} dropped after {} waits left a transaction open", n - 1);
        // No loss, no phantom, one effect.
        assert_eq!(completed(&setup.client).await, n as i64, "{part:?}");
        if !matches!(part, Part::OnceDo) {
            assert_eq!(setup.count("select count(*) from ledger").await, n as i64, "{part:?}");
            assert_eq!(
                setup.count("select count(distinct n) from ledger").await,
                n as i64,
                "{part:?}"
            );
        }
    }
    assert!(n > 2, "{part:?}: nothing was dropped in the middle");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_handler_dropped_while_it_completes_in_its_transaction_leaves_nothing() {
    drill(Part::CompleteIn).await;
    drill(Part::CheckLease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_handler_dropped_in_a_job_transaction_leaves_nothing() {
    drill(Part::JobTxComplete).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_handler_dropped_at_a_once_marker_leaves_nothing() {
    drill(Part::OnceDo).await;
    drill(Part::MarkIn).await;
}
