//! One worker process of `leasehold-bench batches`.

use std::io::Read;
use std::time::Duration;

use leasehold::{Ctx, Enqueue, Job, JobError, JobResult, Leasehold, Outcome};
use rand::RngExt;
use rand::rngs::SmallRng;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

/// Names the sessions of workers, so that the others are not ended.
pub const APPLICATION: &str = "batch-worker";

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Database of the run
    #[arg(long)]
    url: String,
    /// Number of slots
    #[arg(long)]
    slots: usize,
}

/// How the handler ends a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Complete,
    /// Fails once, then completes.
    Retry,
    /// Completes in a transaction of the handler, which stays open for a moment.
    InTransaction,
    /// Adds a job to its batch and completes in the same transaction.
    Add,
    Cancel,
    Bury,
}

impl End {
    /// `clean`: an end after which the batch still succeeds.
    pub fn random(random: &mut SmallRng, clean: bool) -> Self {
        match random.random_range(0..200) {
            0..20 => Self::Retry,
            20..24 => Self::InTransaction,
            24..28 => Self::Add,
            28 if !clean => Self::Cancel,
            29 if !clean => Self::Bury,
            _ => Self::Complete,
        }
    }
}

#[derive(Clone, Debug, Job, Serialize, Deserialize)]
#[job(name = "batch.step", queue = "steps")]
pub struct Step {
    pub n: i64,
    pub end: End,
}

/// Works until the process that started it ends, or this one is killed.
pub async fn work(args: &Args) -> anyhow::Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        #[expect(clippy::exit, reason = "the process that started this one is gone")]
        std::process::exit(9);
    });
    let engine = Leasehold::builder().application_name(APPLICATION).connect(&args.url).await?;
    engine.worker().queue("steps", args.slots).handle(step).run_until_signal().await?;
    Ok(())
}

async fn step(job: Step, ctx: Ctx) -> JobResult {
    match job.end {
        End::Complete => {}
        End::Retry if ctx.attempt() == 1 => {
            return Ok(Outcome::Retry { after: Duration::ZERO, why: "once".to_owned() });
        }
        End::Retry => {}
        End::InTransaction | End::Add => {
            let mut client = ctx.engine().pool().get().await?;
            let tx = client.transaction().await?;
            if job.end == End::Add {
                let batch = ctx.extend_batch(&tx).await?;
                let added = Step { n: job.n, end: End::Complete };
                batch.add(&tx, added.draft()?).await?;
                tx.query_typed("insert into bench_added (n) values ($1)", &[(&job.n, Type::INT8)])
                    .await?;
            }
            ctx.complete_in(&tx).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            tx.commit().await?;
        }
        End::Cancel => return Ok(Outcome::Cancel("not needed".to_owned())),
        End::Bury => return Err(JobError::permanent("refused")),
    }
    Ok(Outcome::Complete)
}
