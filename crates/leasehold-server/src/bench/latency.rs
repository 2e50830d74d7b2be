//! `bench latency`: how soon an idle worker picks a job up.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use leasehold::{Enqueue, Leasehold, State};
use tokio::sync::mpsc;

use super::Common;
use super::ours::{self, Noop};
use super::report::Report;
use super::server::{BenchServer, WalMeter};
use crate::output::progress;

/// More than this takes minutes and tells nothing new.
const MOST: u64 = 2_000;
const GAP: Duration = Duration::from_millis(20);

pub async fn run(server: &BenchServer, common: &Common) -> Result<Report> {
    let jobs = common.jobs.min(MOST);
    let session = server.session().await?;
    ours::set_up(&session, common.history).await?;
    let engine = Leasehold::connect(&server.url).await?;

    let (started_tx, mut started) = mpsc::channel::<(u64, Instant)>(64);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = engine.worker_with(started_tx).queue("bench", 50).handle(
        async |job: Noop, State(started): State<mpsc::Sender<(u64, Instant)>>| {
            let _ = started.send((job.n, Instant::now())).await;
        },
    );
    let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    // One job to warm every connection up.
    Noop { n: u64::MAX }.enqueue(&engine).await?;
    started.recv().await.context("the worker is gone")?;

    let mut raw = RawPickup::start(server).await?;
    let (mut our_commit, mut our_call) = (histogram()?, histogram()?);
    let (mut raw_commit, mut raw_call) = (histogram()?, histogram()?);
    let bar = progress("picking up", jobs);
    let mut wal = 0.0;
    for n in 0..jobs {
        tokio::time::sleep(GAP).await;
        let meter = WalMeter::start(&session).await?;
        let called = Instant::now();
        Noop { n }.enqueue(&engine).await?;
        let committed = Instant::now();
        let (ran, at) = started.recv().await.context("the worker is gone")?;
        ensure!(ran == n, "job {ran} ran instead of {n}");
        ours::drained(&session).await?;
        wal += meter.bytes(&session).await?;
        record(&mut our_commit, at.saturating_duration_since(committed))?;
        record(&mut our_call, at.saturating_duration_since(called))?;

        tokio::time::sleep(GAP).await;
        let (called, committed, at) = raw.pick_up(n).await?;
        record(&mut raw_commit, at.saturating_duration_since(committed))?;
        record(&mut raw_call, at.saturating_duration_since(called))?;
        bar.set_position(n + 1);
    }
    bar.finish_and_clear();
    drop(stop);
    running.await?.context("the worker failed")?;

    let ms = |histogram: &Histogram<u64>, quantile: f64| {
        histogram.value_at_quantile(quantile) as f64 / 1e6
    };
    let (ours_p50, raw_p50) = (ms(&our_call, 0.5), ms(&raw_call, 0.5));
    let mut report =
        Report::new("latency", jobs, "ms (p50, enqueue call to handler)", ours_p50, raw_p50);
    report
        .number("p99", ms(&our_call, 0.99))
        .number("limit_p99", ms(&raw_call, 0.99))
        .number("commit_to_handler_p50", ms(&our_commit, 0.5))
        .number("commit_to_handler_p99", ms(&our_commit, 0.99))
        .number("limit_commit_to_handler_p50", ms(&raw_commit, 0.5))
        .number("limit_commit_to_handler_p99", ms(&raw_commit, 0.99))
        .number("wal_bytes_per_job", wal / jobs as f64)
        .line(format!(
            "  p99             {:.2} ms (raw {:.2} ms)",
            ms(&our_call, 0.99),
            ms(&raw_call, 0.99)
        ))
        .line(format!(
            "  commit→handler  p50 {:.2} ms, p99 {:.2} ms (raw p50 {:.2} ms, p99 {:.2} ms)",
            ms(&our_commit, 0.5),
            ms(&our_commit, 0.99),
            ms(&raw_commit, 0.5),
            ms(&raw_commit, 0.99)
        ))
        .line(format!("  every job ran exactly once: {jobs} of {jobs}"));
    Ok(report)
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?)
}

fn record(histogram: &mut Histogram<u64>, time: Duration) -> Result<()> {
    let nanos = u64::try_from(time.as_nanos())?.clamp(1_000, 60_000_000_000);
    Ok(histogram.record(nanos)?)
}

/// INSERT with NOTIFY in one transaction, LISTEN on a second connection, claim of one row.
struct RawPickup {
    producer: leasehold::database::Session,
    started: mpsc::Receiver<Instant>,
    _listener: tokio::task::JoinHandle<()>,
}

impl RawPickup {
    async fn start(server: &BenchServer) -> Result<Self> {
        let producer = server.session().await?;
        let consumer = server.session().await?;
        let (woken_tx, mut woken) = mpsc::channel::<()>(64);
        let config: tokio_postgres::Config = server.url.parse()?;
        let (listening, mut connection) = config.connect(tokio_postgres::NoTls).await?;
        let forward = tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if matches!(message, tokio_postgres::AsyncMessage::Notification(_)) {
                    let _ = woken_tx.send(()).await;
                }
            }
        });
        listening.batch_execute("listen raw_wake").await?;
        let (started_tx, started) = mpsc::channel(64);
        let failed = Arc::new(Mutex::new(None));
        let listener = tokio::spawn(async move {
            let (_listening, _forward) = (listening, forward);
            let mut worker = match super::raw::RawWorker::new(&consumer).await {
                Ok(worker) => worker,
                Err(error) => {
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(error);
                    }
                    return;
                }
            };
            while woken.recv().await.is_some() {
                if let Ok(Some(ids)) = worker.claim_one().await {
                    let _ = started_tx.send(Instant::now()).await;
                    drop(worker.complete(&ids).await);
                }
            }
        });
        Ok(Self { producer, started, _listener: listener })
    }

    async fn pick_up(&mut self, n: u64) -> Result<(Instant, Instant, Instant)> {
        let insert = self
            .producer
            .prepare(
                "with stored as (insert into raw.job (name, kwargs) values ('noop', $1) returning id) \
                 select pg_notify('raw_wake', '') from stored",
            )
            .await?;
        let called = Instant::now();
        self.producer.query(&insert, &[&serde_json::json!({ "n": n })]).await?;
        let committed = Instant::now();
        let at = tokio::time::timeout(Duration::from_secs(10), self.started.recv())
            .await?
            .context("the bare worker is gone")?;
        Ok((called, committed, at))
    }
}
