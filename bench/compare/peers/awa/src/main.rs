//! awa.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use awa::model::InsertParams;
use awa::{
    Client, InsertOpts, JobArgs, JobContext, JobError, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, UniqueOpts, Worker, insert_with, migrations,
};
use compare_driver::{Ledger, Options, Peer, Stop, run};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};

const QUEUE: &str = "bench";
const SLOTS: u32 = 1024;
const EFFECT: &str = "insert into public.effect (n) values ($1)";

#[derive(Debug, Serialize, Deserialize)]
struct Work {
    n: u64,
}

// Not derived: the name would be that of the type.
impl JobArgs for Work {
    fn kind() -> &'static str {
        "job_0"
    }
}

struct Handler {
    kind: &'static str,
    row: bool,
    pool: PgPool,
    ledger: Arc<Ledger>,
}

#[async_trait::async_trait]
impl Worker for Handler {
    fn kind(&self) -> &'static str {
        self.kind
    }

    async fn perform(&self, context: &JobContext) -> Result<JobResult, JobError> {
        let n = context.job.args.get("n").and_then(serde_json::Value::as_u64).unwrap_or(u64::MAX);
        self.ledger.started(n);
        if self.row {
            let inserted = sqlx::query(EFFECT).bind(n as i64).execute(&self.pool).await;
            inserted.map_err(JobError::retryable)?;
        }
        self.ledger.ended(n);
        Ok(JobResult::Completed)
    }
}

struct Awa {
    pool: PgPool,
    storage: QueueStorage,
    options: Arc<Options>,
    ledger: Arc<Ledger>,
}

fn main() -> std::process::ExitCode {
    run::<Awa>()
}

fn queue() -> QueueConfig {
    QueueConfig {
        max_workers: SLOTS,
        claim_batch_size: 512,
        poll_interval: Duration::from_millis(50),
        // Jobs without a deadline take the shorter path of its storage.
        deadline_duration: Duration::ZERO,
        ..QueueConfig::default()
    }
}

fn opts(priority: u64) -> InsertOpts {
    // It has four priorities.
    InsertOpts {
        queue: QUEUE.to_owned(),
        priority: (priority % 4 + 1) as i16,
        ..InsertOpts::default()
    }
}

async fn pool(options: &Options) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(options.connections as u32)
        .connect(&options.database)
        .await?)
}

impl Peer for Awa {
    async fn setup(options: &Options) -> Result<()> {
        let pool = pool(options).await?;
        migrations::run(&pool).await?;
        // The first client of an empty database switches it to the storage that clients use by default.
        let ledger = Arc::new(Ledger::of(1));
        let handler = Handler { kind: "job_0", row: false, pool: pool.clone(), ledger };
        let client =
            Client::builder(pool).queue(QUEUE, queue()).register_worker(handler).build()?;
        client.start().await?;
        client.shutdown(Duration::from_secs(5)).await;
        Ok(())
    }

    async fn open(options: Arc<Options>, ledger: Arc<Ledger>) -> Result<Self> {
        let pool = pool(&options).await?;
        let storage = QueueStorage::new(QueueStorageConfig::default()).context("the storage")?;
        Ok(Self { pool, storage, options, ledger })
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let params: Vec<InsertParams> = jobs
            .map(|n| InsertParams {
                kind: self.options.name(n),
                args: self.options.data(n),
                opts: opts(if self.options.priorities > 1 { self.options.priority(n) } else { 1 }),
            })
            .collect();
        self.storage.enqueue_params_copy(&self.pool, &params).await?;
        Ok(())
    }

    async fn plain(&self, n: u64) -> Result<()> {
        insert_with(&self.pool, &Work { n }, opts(1)).await?;
        Ok(())
    }

    async fn keyed(&self, n: u64) -> Result<()> {
        let opts = InsertOpts { unique: Some(UniqueOpts::default()), ..opts(1) };
        insert_with(&self.pool, &Work { n }, opts).await?;
        Ok(())
    }

    async fn transaction(&self, n: u64, before: impl FnOnce() + Send) -> Result<()> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query(EFFECT).bind(n as i64).execute(&mut *transaction).await?;
        insert_with(&mut *transaction, &Work { n }, opts(1)).await?;
        before();
        transaction.commit().await?;
        Ok(())
    }

    async fn work(&self, stop: Stop) -> Result<()> {
        let mut builder = Client::builder(self.pool.clone()).queue(QUEUE, queue());
        let names: BTreeMap<u64, String> =
            (0..self.options.names).map(|n| (n, self.options.name(n))).collect();
        for name in names.into_values() {
            builder = builder.register_worker(Handler {
                // As long as the process: a name is a static text here.
                kind: Box::leak(name.into_boxed_str()),
                row: self.options.row,
                pool: self.pool.clone(),
                ledger: Arc::clone(&self.ledger),
            });
        }
        let client = builder.build()?;
        client.start().await?;
        stop.requested().await;
        client.shutdown(Duration::from_secs(5)).await;
        Ok(())
    }
}
