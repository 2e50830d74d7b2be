//! Reads everything on the page: the last sample, and the rows of alarms, workers, sweeps and mirrors.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use leasehold::admin::WorkerInfo;
use leasehold::{AdminError, Leasehold};
use tokio_postgres::types::Type;
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
        .map_err(|_| format!("the database did not answer within {limit} s"))?
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
    let sql = "select statement_timestamp(), at, fresh from leasehold_internal.measured()";
    let facts = client.query_typed(sql, &[]).await?;
    let (now, measured_at, fresh) = match facts.first() {
        Some(row) => (row.get(0), row.get(1), row.get(2)),
        None => (Timestamp::now(), None, false),
    };
    let latest = Latest::read(client).await?;
    let mut overview = Overview {
        v: 1,
        now,
        sampled_at: latest.at,
        measured_at,
        fresh,
        housekeeping: kept,
        health: health::unknown(),
        range,
        charts: charts(client, range, fresh.then_some(&latest)).await?,
        alarms: alarms(client).await?,
        queues: queues(client, &latest).await?,
        workers: workers(engine, client).await?,
        sweeps: sweeps(client, &latest).await?,
        mirrors: mirrors(client).await?,
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
    async fn read(client: &Transaction<'_>) -> Result<Self, AdminError> {
        let sql = "select at, kind, subject, metric, value from leasehold_internal.latest() \
                   where kind in ('queue', 'sweep', 'mirror', 'database') limit 20000";
        let rows = client.query_typed(sql, &[]).await?;
        let mut values: BTreeMap<(String, String), BTreeMap<String, f64>> = BTreeMap::new();
        for row in &rows {
            let subject = values.entry((row.get(1), row.get(2))).or_default();
            subject.insert(row.get(3), row.get(4));
        }
        Ok(Self { at: rows.first().map(|row| row.get(0)), values })
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
        let sql = "select value, minutes, at from leasehold_internal.series($1, $2, null, make_interval(mins => $3), \
                   make_interval(mins => $4))";
        let (back, step) = (range.minutes().cast_signed(), range.step().cast_signed());
        let params = [
            (&kind as _, Type::TEXT),
            (&metrics as _, Type::TEXT_ARRAY),
            (&back as _, Type::INT4),
            (&step as _, Type::INT4),
        ];
        let rows = client.query_typed(sql, &params).await?;
        // Counts are shown per minute, so that the ranges can be compared.
        let flow = unit == PER_MINUTE;
        let values = rows.iter().map(|row| {
            let minutes = if flow { row.get::<_, i64>(1).max(1) as f64 } else { 1.0 };
            row.get::<_, Option<f64>>(0).map(|value| value / minutes)
        });
        let values = values.collect();
        let times = rows.iter().map(|row| row.get(2)).collect();
        let now = latest.map(|latest| latest.sum(kind, metrics));
        charts.push(Series { name, title, unit, values, times, now, empty });
    }
    let mirrors = "select exists (select from leasehold_internal.mirror)";
    let mirrored = client.query_typed(mirrors, &[]).await?.first().is_some_and(|row| row.get(0));
    if !mirrored && let Some(last) = charts.last_mut() {
        last.values.clear();
        last.times.clear();
        last.now = None;
    }
    Ok(charts)
}

async fn alarms(client: &Transaction<'_>) -> Result<Vec<Alarm>, AdminError> {
    let sql = "select * from leasehold.alarms where cleared_at is null \
               order by state = 'silenced', raised_at desc limit 100";
    let rows = client.query_typed(sql, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Alarm {
            id: row.get::<_, i64>("id").to_string(),
            rule: row.get("rule"),
            subject: row.get("subject"),
            state: row.get("state"),
            summary: row.get("summary"),
            raised_at: row.get("raised_at"),
            acknowledged_by: row.get("acknowledged_by"),
            acknowledged_why: row.get("acknowledged_why"),
            silenced_until: row.get("silenced_until"),
            silenced_by: row.get("silenced_by"),
            silenced_why: row.get("silenced_why"),
        })
        .collect())
}

async fn queues(client: &Transaction<'_>, latest: &Latest) -> Result<Vec<Queue>, AdminError> {
    let sql = "select queue from leasehold_internal.watch where not off limit 10000";
    let rows = client.query_typed(sql, &[]).await?;
    let watched: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
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
        started_at: worker.started_at,
        last_seen_at: worker.last_seen_at,
    };
    Ok(workers.into_iter().take(200).map(shown).collect())
}

async fn sweeps(client: &Transaction<'_>, latest: &Latest) -> Result<Vec<Sweep>, AdminError> {
    // Failures are counted with the sample; the view would count them again for every page.
    let sql = "select name, table_name, state, next_run_at, rows_finished, rows_reset \
               from leasehold.sweeps order by name limit 200";
    let rows = client.query_typed(sql, &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Sweep {
            name: row.get("name"),
            table: row.get("table_name"),
            state: row.get("state"),
            next_run_at: row.get("next_run_at"),
            due: latest.find("sweep", row.get("name"), "due"),
            finished: row.get("rows_finished"),
            failing: latest.find("sweep", row.get("name"), "failing"),
            dead: latest.find("sweep", row.get("name"), "dead"),
            reset: row.get("rows_reset"),
            stuck: latest.find("sweep", row.get("name"), "stuck"),
        })
        .collect())
}

async fn mirrors(client: &Transaction<'_>) -> Result<Vec<Mirror>, AdminError> {
    let rows = client.query_typed("select * from leasehold_internal.mirror_numbers()", &[]).await?;
    Ok(rows
        .iter()
        .map(|row| Mirror {
            name: row.get("name"),
            phase: row.get("phase"),
            rows_compared: row.get("rows_compared"),
            repaired: row.get("repaired"),
            differences: row.get("differences"),
            oldest_difference_age_seconds: row.get("oldest_difference_age"),
            equal_as_of: row.get("equal_as_of"),
        })
        .collect())
}
