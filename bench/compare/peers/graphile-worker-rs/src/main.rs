//! `graphile_worker`, the port of graphile-worker to Rust.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use compare_driver::{Ledger, Options, Peer, Stop, run};
use graphile_worker::{
    IntoTaskHandlerResult, JobDefinition, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::postgres::{PgPool, PgPoolOptions};

const EFFECT: &str = "insert into public.effect (n) values ($1)";

/// What handlers share.
#[derive(Clone, Debug)]
struct Shared {
    ledger: Arc<Ledger>,
    options: Arc<Options>,
    pool: PgPool,
}

/// A job; its number is part of its name.
#[derive(Clone, Deserialize, Serialize)]
struct Numbered<const NAME: usize> {
    n: u64,
    #[serde(default)]
    filler: String,
}

macro_rules! names {
    ($($number:literal)*) => {
        const NAMES: [&str; 100] = [$(concat!("job_", $number)),*];

        fn definitions() -> Vec<JobDefinition> {
            vec![$(Numbered::<$number>::definition()),*]
        }
    };
}
names!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
    40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76
    77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99
);

impl<const NAME: usize> TaskHandler for Numbered<NAME> {
    const IDENTIFIER: &'static str = NAMES[NAME];

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let shared = context.get_ext::<Shared>().ok_or_else(|| "no shared state".to_owned())?;
        shared.ledger.started(self.n);
        if shared.options.row {
            sqlx::query(EFFECT)
                .bind(self.n as i64)
                .execute(&shared.pool)
                .await
                .map_err(|error| error.to_string())?;
        }
        if shared.options.keys > 0 {
            tokio::task::yield_now().await;
        }
        shared.ledger.ended(self.n);
        Ok::<(), String>(())
    }
}

struct Graphile {
    shared: Shared,
    utils: WorkerUtils,
}

fn main() -> std::process::ExitCode {
    run::<Graphile>()
}

async fn pool(options: &Options) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .max_connections(options.connections as u32)
        .connect(&options.database)
        .await?)
}

fn settings(shared: &Shared) -> WorkerOptions {
    let names = usize::try_from(shared.options.names).unwrap_or(usize::MAX);
    WorkerOptions::default()
        .concurrency(100)
        .local_queue(LocalQueueConfig::default().with_size(2000))
        .complete_job_batch_delay(Duration::ZERO)
        .listen_os_shutdown_signals(false)
        .add_extension(shared.clone())
        .define_jobs(definitions().into_iter().take(names))
        .pg_pool(shared.pool.clone())
}

impl Peer for Graphile {
    async fn setup(options: &Options) -> Result<()> {
        // `init` runs the migrations.
        WorkerOptions::default().pg_pool(pool(options).await?).init().await?;
        Ok(())
    }

    async fn open(options: Arc<Options>, ledger: Arc<Ledger>) -> Result<Self> {
        let pool = pool(&options).await?;
        let utils = WorkerUtils::new(pool.clone(), "graphile_worker");
        Ok(Self { shared: Shared { ledger, options, pool }, utils })
    }

    async fn bulk(&self, jobs: Range<u64>) -> Result<()> {
        let options = &self.shared.options;
        let specs: Vec<RawJobSpec> = jobs
            .map(|n| RawJobSpec {
                identifier: options.name(n),
                payload: options.data(n),
                spec: JobSpec {
                    priority: Some(options.priority(n) as i16),
                    queue_name: (options.keys > 0).then(|| options.key(n)),
                    ..JobSpec::default()
                },
            })
            .collect();
        self.utils.add_raw_jobs(&specs).await?;
        Ok(())
    }

    async fn plain(&self, n: u64) -> Result<()> {
        self.utils.add_raw_job("job_0", self.shared.options.data(n), JobSpec::default()).await?;
        Ok(())
    }

    async fn keyed(&self, n: u64) -> Result<()> {
        let spec = JobSpec { job_key: Some(format!("once_{n}")), ..JobSpec::default() };
        self.utils.add_raw_job("job_0", self.shared.options.data(n), spec).await?;
        Ok(())
    }

    async fn transaction(&self, n: u64, before: impl FnOnce() + Send) -> Result<()> {
        let mut transaction = self.shared.pool.begin().await?;
        sqlx::query(EFFECT).bind(n as i64).execute(&mut *transaction).await?;
        let data: Value = self.shared.options.data(n);
        sqlx::query("select graphile_worker.add_job('job_0', payload => $1::json)")
            .bind(sqlx::types::Json(data))
            .execute(&mut *transaction)
            .await?;
        before();
        transaction.commit().await?;
        Ok(())
    }

    async fn work(&self, stop: Stop) -> Result<()> {
        let worker = settings(&self.shared).shutdown_signal(stop.requested()).init().await?;
        worker.run().await.context("the worker failed")?;
        Ok(())
    }
}
