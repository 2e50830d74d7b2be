//! apalis with apalis-postgres. A name of a job is a queue here.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use apalis::prelude::*;
use apalis_postgres::{Config, PgTask, PostgresStorage, queries::push_tasks};
use compare_driver::{Ledger, Options, Peer, Stop, run};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::task::JoinSet;

const EFFECT: &str = "insert into public.effect (n) values ($1)";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Work {
    n: u64,
    #[serde(default)]
    filler: String,
}

/// What handlers share.
#[derive(Clone)]
struct Shared {
    ledger: Arc<Ledger>,
    options: Arc<Options>,
    pool: PgPool,
}

struct Apalis(Shared);

fn main() -> std::process::ExitCode {
    run::<Apalis>()
}

async fn handle(job: Work, shared: Data<Shared>) -> Result<(), BoxDynError> {
    shared.ledger.started(job.n);
    if shared.options.row {
        sqlx::query(EFFECT).bind(job.n as i64).execute(&shared.pool).await?;
    }
    shared.ledger.ended(job.n);
    Ok(())
}

async fn pool(options: &Options) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(options.connections as u32)
        .connect(&options.database)
        .await?)
}

impl Apalis {
    fn task(&self, n: u64, key: bool) -> Result<PgTask> {
        let options = &self.0.options;
        let task = TaskBuilder::new(serde_json::to_vec(&options.data(n))?)
            .priority(options.priority(n) as usize);
        Ok(if key { task.idempotency_key(format!("once_{n}")).build() } else { task.build() })
    }
}

impl Peer for Apalis {
    async fn setup(options: &Options) -> Result<()> {
        PostgresStorage::setup(&pool(options).await?).await?;
        Ok(())
    }

    async fn open(options: Arc<Options>, ledger: Arc<Ledger>) -> Result<Self> {
        let pool = pool(&options).await?;
        Ok(Self(Shared { ledger, options, pool }))
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let names = self.0.options.names;
        let mut tasks: Vec<Vec<PgTask>> = (0..names).map(|_| Vec::new()).collect();
        for n in jobs {
            tasks[(n % names) as usize].push(self.task(n, false)?);
        }
        let mut connection = self.0.pool.acquire().await?;
        for (name, tasks) in tasks.into_iter().enumerate() {
            push_tasks(&mut *connection, &format!("job_{name}"), tasks).await?;
        }
        Ok(())
    }

    async fn plain(&self, n: u64) -> Result<()> {
        let mut connection = self.0.pool.acquire().await?;
        push_tasks(&mut *connection, "job_0", vec![self.task(n, false)?]).await?;
        Ok(())
    }

    async fn keyed(&self, n: u64) -> Result<()> {
        let mut connection = self.0.pool.acquire().await?;
        push_tasks(&mut *connection, "job_0", vec![self.task(n, true)?]).await?;
        Ok(())
    }

    async fn transaction(&self, n: u64, before: impl FnOnce() + Send) -> Result<()> {
        let mut transaction = self.0.pool.begin().await?;
        sqlx::query(EFFECT).bind(n as i64).execute(&mut *transaction).await?;
        push_tasks(&mut *transaction, "job_0", vec![self.task(n, false)?]).await?;
        before();
        transaction.commit().await?;
        Ok(())
    }

    async fn work(&self, stop: Stop) -> Result<()> {
        let options = &self.0.options;
        let mut workers = JoinSet::new();
        for name in 0..options.names {
            let config = Config::default()
                .queue(format!("job_{name}"))
                .batch_size(if options.names > 1 { 500 } else { 5000 })
                .lock_tasks(false);
            let storage = PostgresStorage::<Work>::new(&self.0.pool).with_config(config);
            let worker = WorkerBuilder::new(format!("compare-{name}-{}", std::process::id()));
            let poll = Duration::from_millis(100);
            // A listener keeps a connection, and there are fewer connections than queues.
            if options.names > 1 {
                let worker = worker.backend(storage.poll_with_interval(poll));
                workers.spawn(worker.data(self.0.clone()).build(handle).run());
            } else {
                let worker = worker.backend(storage.with_pubsub().poll_with_interval(poll));
                workers.spawn(worker.data(self.0.clone()).build(handle).run());
            }
        }
        tokio::select! {
            () = stop.requested() => {}
            ended = workers.join_next() => ended.context("no worker")???,
        }
        workers.abort_all();
        Ok(())
    }
}
