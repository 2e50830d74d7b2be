//! Enqueues a job for every row and drains them until nothing differs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold::WorkerError;
use leasehold::database::Session;
use leasehold::mirror::CheckReport;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Bench;
use leasehold_server::progress;

const LOOK: Duration = Duration::from_millis(50);
/// A slower replay is a fault, not a figure.
const SLOWEST_PER_SECOND: u64 = 50;
const STOP: Duration = Duration::from_secs(60);
/// Keys per statement that makes jobs.
const CHUNK: i64 = 10_000;

/// A running worker.
pub struct Working {
    stop: CancellationToken,
    worker: JoinHandle<Result<(), WorkerError>>,
}

impl Working {
    pub fn start(bench: &Bench) -> Result<Self> {
        let builder = bench.engine.worker().name("mirror");
        let worker = annotations::worker(&bench.service, builder)?;
        let stop = CancellationToken::new();
        let worker = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        Ok(Self { stop, worker })
    }

    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        let ended = tokio::time::timeout(STOP, self.worker).await;
        ended.context("the worker does not stop")??.context("the worker failed")?;
        Ok(())
    }
}

/// Returns how long it took to make the jobs and to become equal, and the last check.
pub async fn run(bench: &Bench, docs: u64) -> Result<(Duration, Duration, CheckReport)> {
    let started = Instant::now();
    bench
        .session
        .batch_execute(&format!(
            "do $$ declare after text := ''; keys text[]; begin loop \
               select array_agg(k.id order by k.id) into keys from \
                 (select id from annotations.annotation where id > after order by id limit {CHUNK}) k; \
               exit when keys is null; \
               perform leasehold_internal.reindex_mirror('{}', keys, 'bench', 100); \
               after := keys[cardinality(keys)]; \
             end loop; end $$",
            annotations::MIRROR
        ))
        .await
        .context("making jobs")?;
    let enqueue = started.elapsed();
    bench.session.batch_execute("analyze leasehold.job").await?;

    let bar = progress("replaying", docs);
    let started = Instant::now();
    let deadline = started + Duration::from_secs(120 + docs / SLOWEST_PER_SECOND);
    let working = Working::start(bench)?;
    loop {
        // Counting a million jobs in every poll would cost more than the replay itself.
        let stored = bench.store.stored().min(docs);
        bar.set_position(stored);
        if stored == docs && waiting(&bench.session).await? == 0 {
            break;
        }
        if Instant::now() > deadline || working.worker.is_finished() {
            bail!("{stored} of {docs} documents were stored after {:?}", started.elapsed());
        }
        tokio::time::sleep(LOOK).await;
    }
    bar.finish_and_clear();
    let check = until_equal(bench).await?;
    let time = started.elapsed();
    working.stop().await?;
    Ok((enqueue, time, check))
}

/// Checks every row repeatedly until nothing differs.
pub async fn until_equal(bench: &Bench) -> Result<CheckReport> {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        // A check may fail while the store is coming back: retry it.
        match bench.mirror.check_once(&bench.engine).await {
            Ok(check) if check.is_equal() && check.unequal == 0 => return Ok(check),
            Ok(check) if Instant::now() > deadline => bail!("still different: {check:?}"),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Returns the number of unfinished jobs of the index.
pub async fn waiting(session: &Session) -> Result<u64> {
    let sql = "select count(*) from leasehold.job where queue = 'annotations'";
    let rows = session.query_typed(sql, &[]).await?;
    let count: i64 = rows.first().context("no count")?.get(0);
    Ok(u64::try_from(count).unwrap_or_default())
}
