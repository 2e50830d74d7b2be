//! Reads everything on the page: the last sample, and the rows of alarms, workers, sweeps and mirrors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use leasehold::admin::{
    AlarmInfo, AlarmState, MirrorSummary, SeriesQuery, SweepSummary, WorkerInfo,
};
use leasehold::{AdminError, Leasehold};
use tokio_postgres::{Client, Transaction};

use super::model::{Alarm, Mirror, Overview, Queue, Range, Series, Sweep, Worker};
use super::panels::health;
use crate::housekeeping::Kept;

/// Timeout of the whole read.
const LIMIT: Duration = Duration::from_secs(5);

/// Reads everything, or returns why that failed.
pub async fn overview(engine: &Leasehold, range: Range, kept: Kept) -> Result<Overview, String> {
    let reading = async {
        let mut client = engine.pool().get().await.map_err(|error| error.to_string())?;
        let read = in_time(engine, &mut client, range, kept).await;
        read.map_err(|error| error.to_string())
    };
    let limit = LIMIT.as_secs();
    tokio::time::timeout(LIMIT, reading)
        .await
        .map_err(|_| format!("the database did not respond within {limit} s"))?
}

/// Reads in one read-only transaction: the whole page shows one moment, and the server cancels a
/// statement that takes too long, even if the client is gone.
async fn in_time(
    engine: &Leasehold,
    client: &mut Client,
    range: Range,
    kept: Kept,
) -> Result<Overview, AdminError> {
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let reading = client.build_transaction().read_only(true).isolation_level(level).start().await?;
    reading
        .batch_execute("set local statement_timeout = '4s'; set local lock_timeout = '1s'")
        .await?;
    let overview = read(engine, &reading, range, kept).await?;
    reading.commit().await?;
    Ok(overview)
}

async fn read(
    engine: &Leasehold,
    client: &Transaction<'_>,
    range: Range,
    kept: Kept,
) -> Result<Overview, AdminError> {
    let sampled = engine.measurements().within(client).sampled().await?;
    let latest = Latest::read(engine, client).await?;
    let mirrors = engine.mirrors().within(client).summaries().await?;
    let mut charts = charts(engine, client, range, sampled.fresh.then_some(&latest)).await?;
    if mirrors.is_empty()
        && let Some(last) = charts.last_mut()
    {
        last.values.clear();
        last.times.clear();
        last.now = None;
    }
    let mut overview = Overview {
        v: 1,
        now: sampled.now,
        sampled_at: latest.at,
        measured_at: sampled.at,
        fresh: sampled.fresh,
        housekeeping: kept,
        health: health::unknown(),
        range,
        charts,
        alarms: alarms(engine, client).await?,
        queues: queues(engine, client, &latest).await?,
        workers: workers(engine, client).await?,
        sweeps: sweeps(engine, client, &latest).await?,
        mirrors: mirrors.into_iter().map(mirror).collect(),
    };
    overview.health = health::of(&overview);
    Ok(overview)
}

/// The last sample: metrics by kind and subject.
struct Latest {
    at: Option<Timestamp>,
    values: BTreeMap<(String, String), BTreeMap<String, f64>>,
}

impl Latest {
    async fn read(engine: &Leasehold, client: &Transaction<'_>) -> Result<Self, AdminError> {
        let kinds = ["queue", "sweep", "mirror", "database"];
        let found = engine.measurements().within(client).latest(&kinds).await?;
        let at = found.first().map(|one| one.at);
        let mut values: BTreeMap<(String, String), BTreeMap<String, f64>> = BTreeMap::new();
        for one in found {
            values.entry((one.kind, one.subject)).or_default().insert(one.metric, one.value);
        }
        Ok(Self { at, values })
    }

    fn find(&self, kind: &str, subject: &str, metric: &str) -> Option<f64> {
        let known = self.values.get(&(kind.to_owned(), subject.to_owned()));
        known.and_then(|metrics| metrics.get(metric)).copied()
    }

    fn of(&self, kind: &str, subject: &str, metric: &str) -> f64 {
        self.find(kind, subject, metric).unwrap_or(0.0)
    }

    /// Sums metrics over all subjects.
    fn sum(&self, kind: &str, metrics: &[&str]) -> f64 {
        let of_kind = self.values.iter().filter(|((known, _), _)| known == kind);
        let one = |found: &BTreeMap<String, f64>| -> f64 {
            metrics.iter().filter_map(|metric| found.get(*metric)).sum()
        };
        // Fold from 0.0: `sum` of an empty iterator is -0.0.
        of_kind.fold(0.0, |sum, (_, found)| sum + one(found))
    }
}

/// A chart: its name, title, unit, kind, metrics, and the text when there is nothing to draw.
type Wanted<'a> =
    (&'static str, &'static str, &'static str, &'static str, &'a [&'a str], &'static str);

/// The unit of counts; other charts show levels.
const PER_MINUTE: &str = "per minute";

/// `latest`: the last sample, if it is recent.
async fn charts(
    engine: &Leasehold,
    client: &Transaction<'_>,
    range: Range,
    latest: Option<&Latest>,
) -> Result<Vec<Series>, AdminError> {
    let synced = ["synced_missing", "synced_different", "synced_deleted", "forced"];
    let wanted: [Wanted<'_>; 3] = [
        ("queue_length", "Queue length", "jobs", "queue", &["length"], "No samples yet."),
        (
            "jobs_completed",
            "Jobs completed",
            PER_MINUTE,
            "queue",
            &["completed"],
            "No samples yet.",
        ),
        ("rows_reindexed", "Rows re-indexed", PER_MINUTE, "mirror", &synced, "No mirrors."),
    ];
    let mut charts = Vec::new();
    for (name, title, unit, kind, metrics, empty) in wanted {
        let minutes = |minutes: u32| Duration::from_secs(60 * u64::from(minutes));
        let query = SeriesQuery::new(kind, metrics.iter().copied())
            .back(minutes(range.minutes()))
            .step(minutes(range.step()));
        let points = engine.measurements().within(client).series(&query).await?;
        // Counts are shown per minute, so that the ranges can be compared.
        let flow = unit == PER_MINUTE;
        let values = points.iter().map(|point| {
            let minutes = if flow { point.minutes.max(1) as f64 } else { 1.0 };
            point.value.map(|value| value / minutes)
        });
        let values = values.collect();
        let times = points.iter().map(|point| point.at).collect();
        let now = latest.map(|latest| latest.sum(kind, metrics));
        charts.push(Series { name, title, unit, values, times, now, empty });
    }
    Ok(charts)
}

async fn alarms(engine: &Leasehold, client: &Transaction<'_>) -> Result<Vec<Alarm>, AdminError> {
    let mut alarms = engine.alarms().within(client).list(false, 1000).await?;
    // Silenced ones last, and first to be left out.
    alarms.sort_by_key(|alarm| alarm.state == AlarmState::Silenced);
    let shown = |alarm: AlarmInfo| Alarm {
        id: alarm.id.to_string(),
        rule: alarm.rule,
        subject: alarm.subject,
        state: alarm.state,
        summary: alarm.summary,
        raised_at: alarm.raised_at,
        acknowledged_by: alarm.acknowledged_by,
        acknowledged_why: alarm.acknowledged_why,
        silenced_until: alarm.silenced_until,
        silenced_by: alarm.silenced_by,
        silenced_why: alarm.silenced_why,
    };
    Ok(alarms.into_iter().take(100).map(shown).collect())
}

async fn queues(
    engine: &Leasehold,
    client: &Transaction<'_>,
    latest: &Latest,
) -> Result<Vec<Queue>, AdminError> {
    let watches = engine.alarms().within(client).watches().await?;
    let watched: BTreeSet<String> =
        watches.into_iter().filter(|watch| !watch.off).map(|watch| watch.queue).collect();
    let names = latest.values.keys().filter(|(kind, _)| kind == "queue").map(|(_, name)| name);
    let mut queues: Vec<Queue> = names
        .map(|name| {
            let of = |metric| latest.of("queue", name, metric);
            Queue {
                name: name.clone(),
                ready: of("ready"),
                running: of("running"),
                scheduled: of("scheduled"),
                retrying: of("retrying"),
                dead: of("dead"),
                dead_expired: of("dead_expired"),
                oldest_ready_age_seconds: of("oldest_ready_age"),
                workers: of("workers"),
                paused: of("paused") > 0.0,
                completed_last_minute: of("completed"),
                watched: watched.contains(name),
            }
        })
        .collect();
    // Show the engine's own queue only if it has ready or dead jobs.
    queues.retain(|queue| queue.name != leasehold::alarm::QUEUE || queue.ready + queue.dead > 0.0);
    queues.truncate(200);
    Ok(queues)
}

async fn workers(engine: &Leasehold, client: &Transaction<'_>) -> Result<Vec<Worker>, AdminError> {
    let workers = engine.workers().within(client).list(false).await?;
    let shown = |worker: WorkerInfo| Worker {
        name: worker.name,
        host: worker.host,
        pid: worker.pid,
        version: worker.version,
        state: worker.state,
        queues: worker.queues,
        slots: worker.slots,
        busy: worker.busy,
        claimed_ahead: worker.claimed_ahead,
        started_at: worker.started_at,
        last_seen_at: worker.last_seen_at,
    };
    Ok(workers.into_iter().take(200).map(shown).collect())
}

async fn sweeps(
    engine: &Leasehold,
    client: &Transaction<'_>,
    latest: &Latest,
) -> Result<Vec<Sweep>, AdminError> {
    // Failures are counted with the sample; `list` would count them again for every page.
    let sweeps = engine.sweeps().within(client).summaries().await?;
    let shown = |sweep: SweepSummary| {
        let counted = |metric| latest.find("sweep", &sweep.name, metric);
        Sweep {
            due: counted("due"),
            failing: counted("failing"),
            dead: counted("dead"),
            stuck: counted("stuck"),
            name: sweep.name,
            table: sweep.table_name,
            state: sweep.state,
            next_run_at: sweep.next_run_at,
            finished: sweep.rows_finished,
            reset: sweep.rows_reset,
        }
    };
    Ok(sweeps.into_iter().take(200).map(shown).collect())
}

fn mirror(mirror: MirrorSummary) -> Mirror {
    Mirror {
        name: mirror.name,
        phase: mirror.phase,
        rows_compared: mirror.rows_compared,
        repaired: mirror.repaired_total,
        differences: mirror.differences,
        oldest_difference_age_seconds: mirror.oldest_difference_age_seconds,
        equal_as_of: mirror.equal_as_of,
    }
}
