//! `leasehold-bench lanes`, `leasehold-bench lost`, `leasehold-bench idle`: what claims cost
//! when the queue is not a simple one.
//!
//! Each figure is reported next to that of a plain queue in the same run. The jobs do nothing; they
//! differ in name, priority and losses.

pub mod idle;
pub mod lanes;
pub mod lost;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold::database::Session;
use leasehold::{Leasehold, Outcome};
use tokio::sync::oneshot;

use leasehold_server::bench::ours;

/// A backlog of jobs that do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub jobs: u64,
    pub names: u32,
    pub priorities: u32,
    pub lost: bool,
}

impl Backlog {
    /// Empties the tables and stores the backlog, all of it due, names and priorities mixed.
    pub async fn store(&self, session: &Session) -> Result<()> {
        let Self { jobs, names, priorities, lost } = *self;
        let losses = u8::from(lost);
        session
            .batch_execute(&format!(
                "truncate leasehold.job, leasehold_internal.lease, leasehold_internal.history; \
                 insert into leasehold.job (queue, name, priority, lost_count, attempts, scheduled_at) \
                 select 'bench', 'n' || i % {names}, (i * 7919 % {priorities})::int, {losses}, {losses}, \
                        now() - interval '1 hour' + i * interval '1 microsecond' \
                   from generate_series(1, {jobs}::bigint) i"
            ))
            .await?;
        session.batch_execute("vacuum analyze leasehold.job").await?;
        leasehold_server::bench::server::checkpoint(session).await
    }

    pub fn names(&self) -> Vec<String> {
        (0..self.names).map(|n| format!("n{n}")).collect()
    }
}

/// A worker whose handlers only count.
pub struct Counting {
    pub ran: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<Result<(), leasehold::WorkerError>>,
}

impl Counting {
    pub fn start(engine: &Leasehold, names: Vec<String>, slots: usize) -> Self {
        Self::start_polling(engine, names, slots, None)
    }

    /// `poll`: how often it looks for jobs; `None`: as a worker does by default.
    pub fn start_polling(
        engine: &Leasehold,
        names: Vec<String>,
        slots: usize,
        poll: Option<Duration>,
    ) -> Self {
        let ran = Arc::new(AtomicU64::new(0));
        let mut worker = engine.worker().name("bench").queue("bench", slots).without_housekeeping();
        if let Some(poll) = poll {
            worker = worker.poll_every(poll);
        }
        for name in names {
            let ran = Arc::clone(&ran);
            worker = worker.handle_untyped(name, move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
                async { Outcome::Complete }
            });
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
        Self { ran, stop, running }
    }

    pub fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    pub async fn until(&self, count: u64) -> Result<()> {
        while self.ran() < count {
            ensure!(!self.running.is_finished(), "the worker ended early");
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        Ok(())
    }

    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.running.await?.context("the worker failed")?;
        Ok(())
    }
}

/// Drains a backlog. Returns the jobs per second.
async fn drain(
    session: &Session,
    engine: &Leasehold,
    backlog: Backlog,
    slots: usize,
) -> Result<f64> {
    backlog.store(session).await?;
    let began = Instant::now();
    let worker = Counting::start(engine, backlog.names(), slots);
    worker.until(backlog.jobs).await?;
    ours::drained(session).await?;
    let rate = backlog.jobs as f64 / began.elapsed().as_secs_f64();
    ensure!(worker.ran() == backlog.jobs, "{} jobs ran of {}", worker.ran(), backlog.jobs);
    worker.stop().await?;
    Ok(rate)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
