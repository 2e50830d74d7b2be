//! Leasehold.

mod limited;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result};
use compare_driver::{Ledger, Options, Peer, Stop, run};
use leasehold::admin::{By, QueueChange};
use leasehold::worker::{JobTx, Transactions};
use leasehold::{Ctx, Draft, Enqueue, Job, JobResult, Leasehold, State};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

const QUEUE: &str = "bench";
/// The default of `leasehold bench`.
const SLOTS: usize = 1000;
const EFFECT: &str = "insert into public.effect (n) values ($1)";

/// What a job carries.
#[derive(Debug, Job, Serialize, Deserialize)]
#[job(name = "job_0", queue = "bench")]
struct Work {
    n: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    filler: String,
}

struct Engine {
    engine: Leasehold,
    producer: Mutex<Option<leasehold::deadpool_postgres::Client>>,
    options: Arc<Options>,
    ledger: Arc<Ledger>,
}

fn main() -> std::process::ExitCode {
    run::<Engine>()
}

impl Peer for Engine {
    async fn setup(options: &Options) -> Result<()> {
        let engine = Leasehold::connect_and_migrate(&options.database).await?;
        let change = QueueChange::new().keep_history(options.history);
        engine.queues().set(QUEUE, &change, &By::new("bench/compare")).await?;
        if options.keys > 0 {
            limited::declare(&engine).await?;
        }
        Ok(())
    }

    async fn open(options: Arc<Options>, ledger: Arc<Ledger>) -> Result<Self> {
        let engine = Leasehold::builder()
            .max_connections(options.connections)
            .connect(&options.database)
            .await?;
        Ok(Self { engine, producer: Mutex::default(), options, ledger })
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        if self.options.keys > 0 {
            return limited::enqueue(&self.engine, &self.options, jobs).await;
        }
        if self.options.names > 1 || self.options.priorities > 1 {
            return self.bulk_of_many_names(jobs).await;
        }
        let filler = &self.options.filler;
        self.engine.enqueue_many(jobs.map(|n| Work { n, filler: filler.clone() })).await?;
        Ok(())
    }

    async fn plain(&self, n: u64) -> Result<()> {
        Work { n, filler: String::new() }.enqueue(&self.engine).await?;
        Ok(())
    }

    async fn keyed(&self, n: u64) -> Result<()> {
        Draft::of(&Work { n, filler: String::new() })?
            .key(format!("once_{n}"))
            .enqueue(&self.engine)
            .await?;
        Ok(())
    }

    async fn transaction(&self, n: u64, before: impl FnOnce() + Send) -> Result<()> {
        let mut producer = self.producer.lock().await;
        if producer.is_none() {
            *producer = Some(self.engine.pool().get().await?);
        }
        let client = producer.as_mut().context("no connection")?;
        let transaction = client.transaction().await?;
        let insert = transaction.prepare_cached(EFFECT).await?;
        transaction.execute(&insert, &[&(n as i64)]).await?;
        Work { n, filler: String::new() }.enqueue(&transaction).await?;
        before();
        transaction.commit().await?;
        Ok(())
    }

    async fn work(&self, stop: Stop) -> Result<()> {
        let worker =
            self.engine.worker_with(Arc::clone(&self.ledger)).name("compare").queue(QUEUE, SLOTS);
        let worker = if self.options.row {
            worker
                .transactions(Transactions::default().connections(self.options.connections))
                .handle(insert_row)
        } else if self.options.names > 1 || self.options.keys > 0 {
            (0..self.options.names).fold(worker, |worker, name| {
                let ledger = Arc::clone(&self.ledger);
                worker.handle_untyped(format!("job_{name}"), move |ctx: Ctx| {
                    let ledger = Arc::clone(&ledger);
                    async move { untyped(&ctx, &ledger).await }
                })
            })
        } else {
            worker.handle(async |job: Work, State(ledger): State<Arc<Ledger>>| {
                ledger.started(job.n);
                ledger.ended(job.n);
            })
        };
        worker.run_until(stop.requested()).await?;
        Ok(())
    }
}

impl Engine {
    /// `enqueue_many` in SQL takes a name for each job and one priority per call.
    async fn bulk_of_many_names(&self, jobs: Range<u64>) -> Result<()> {
        let mut by_priority: BTreeMap<i32, (Vec<String>, Vec<serde_json::Value>)> = BTreeMap::new();
        for n in jobs {
            let (names, kwargs) = by_priority.entry(self.options.priority(n) as i32).or_default();
            names.push(self.options.name(n));
            kwargs.push(self.options.data(n));
        }
        let client = self.engine.pool().get().await?;
        let sql = "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, queue => $3, priority => $4)";
        let enqueue = client.prepare_cached(sql).await?;
        for (priority, (names, kwargs)) in by_priority {
            client.query_one(&enqueue, &[&names, &kwargs, &QUEUE, &priority]).await?;
        }
        Ok(())
    }
}

async fn insert_row(job: Work, State(ledger): State<Arc<Ledger>>, tx: JobTx) -> JobResult {
    ledger.started(job.n);
    tx.execute(EFFECT, &[&(job.n as i64)]).await?;
    let outcome = tx.complete().await?;
    ledger.ended(job.n);
    Ok(outcome)
}

async fn untyped(ctx: &Ctx, ledger: &Ledger) -> JobResult {
    let job: Work = serde_json::from_slice(ctx.kwargs())?;
    ledger.started(job.n);
    tokio::task::yield_now().await;
    ledger.ended(job.n);
    Ok(leasehold::Outcome::Complete)
}
