//! Runs the engine on jobs that do nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::admin::{By, JobFilter, Jobs, QueueChange, Queues, diagnosis};
use leasehold::{Job, JobState, Leasehold, State};
use serde::{Deserialize, Serialize};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ledger::Ledger;

#[derive(Clone, Debug, Job, Serialize, Deserialize)]
#[job(name = "noop", queue = "bench")]
pub struct Noop {
    pub n: u64,
}

/// A worker that runs in the background until it is stopped.
pub struct OurWorker {
    stop: DropGuard,
    running: tokio::task::JoinHandle<Result<(), leasehold::WorkerError>>,
}

impl OurWorker {
    pub fn start(engine: &Leasehold, slots: usize, ledger: Arc<Ledger>) -> Self {
        let stop = CancellationToken::new();
        let worker = engine
            .worker_with(ledger)
            .name("bench")
            .queue("bench", slots)
            .handle(async |job: Noop, State(ledger): State<Arc<Ledger>>| ledger.ran(job.n));
        let running = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        Self { stop: stop.drop_guard(), running }
    }

    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.running.await?.context("the worker failed")?;
        Ok(())
    }
}

/// Waits until the database shows no unfinished job.
pub async fn drained(session: &leasehold::database::Session) -> Result<()> {
    loop {
        let rows = session.query_typed(diagnosis::BENCH_UNFINISHED, &[]).await?;
        if !rows.first().context("the statement returned no row")?.get::<_, bool>(0) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Checks at the end of a benchmark that every job ran exactly once and no row is left.
pub async fn verify(session: &leasehold::database::Session, ledger: &Ledger) -> Result<()> {
    let (never, again) = ledger.wrong();
    ensure!(never == 0 && again == 0, "{never} jobs never ran, {again} ran more than once");
    let unfinished = JobFilter::any().waiting().states([JobState::Running, JobState::Dead]);
    let left = Jobs::on(session).count(&unfinished, 1000).await?;
    ensure!(left == 0, "{left} jobs are left in the tables");
    Ok(())
}

pub async fn set_up(session: &leasehold::database::Session, history: bool) -> Result<()> {
    let change = QueueChange::new().keep_history(history);
    Queues::on(session).set("bench", &change, &By::new("bench")).await?;
    Ok(())
}
