//! All metrics in one text: those of the last sample, which are the same in every process, and those of
//! this process.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::names;
use super::text::{Block, Text};
use crate::engine::Leasehold;
use crate::error::CallError;
use crate::fleet::Fleet;

/// How long the database may take before a scrape does without it.
const LIMIT: Duration = Duration::from_secs(2);

struct Sample {
    now: Timestamp,
    values: Vec<Value>,
    schema: i32,
    /// (rule, subject, state)
    alarms: Vec<(String, String, String)>,
    missed: Vec<(String, i64)>,
    /// (queue, display name, owner)
    queues: Vec<(String, String, String)>,
}

struct Value {
    at: Timestamp,
    kind: String,
    subject: String,
    metric: String,
    flow: bool,
    value: f64,
}

impl Fleet {
    /// Returns the metrics of all databases in the Prometheus text format, each line with the name of its database
    /// (`database="eu"`). A database that does not reply delays the text by two seconds at most.
    pub async fn metrics(&self) -> String {
        let each = self.handles().map(async |engine| {
            engine.metrics_in(Text::of_database(engine.name().unwrap_or_default())).await
        });
        let mut text = Text::default();
        join_all(each).await.into_iter().for_each(|one| text.append(one));
        text.finish()
    }
}

impl Leasehold {
    /// Returns all metrics in the Prometheus text format. Without a database the text is shorter, not
    /// absent.
    pub async fn metrics(&self) -> String {
        self.metrics_in(Text::default()).await.finish()
    }

    async fn metrics_in(&self, mut text: Text) -> Text {
        let read = async {
            let client = self.client().await.ok()?;
            read(&client).await.ok()
        };
        let sample = tokio::time::timeout(LIMIT, read).await.ok().flatten();
        let schema = sample.as_ref().map_or(String::new(), |sample| sample.schema.to_string());
        let version = env!("CARGO_PKG_VERSION");
        text.block(names::BUILD_INFO, |block| {
            block.line(&[("version", version), ("schema_version", &schema)], 1.0);
        });
        text.block(names::DATABASE_UP, |block| {
            block.line(&[], f64::from(u8::from(sample.is_some())));
        });
        self.of_process(&mut text, sample.as_ref());
        if let Some(sample) = &sample {
            of_sample(&mut text, sample);
        }
        text
    }

    fn of_process(&self, text: &mut Text, sample: Option<&Sample>) {
        let process = self.process();
        let inside = process.inside();
        text.block(names::LISTEN_CONNECTED, |block| {
            block.line(&[], f64::from(u8::from(process.is_listening())));
        });
        text.block(names::JOBS_ENQUEUED, |block| {
            for ((queue, name), count) in sorted(&inside.enqueued) {
                block.line(&[("queue", queue), ("name", name)], *count as f64);
            }
        });
        let ends = sorted(&inside.finished);
        text.block(names::JOBS_FINISHED, |block| {
            for (end, histogram) in &ends {
                let labels =
                    [("queue", &*end.queue), ("name", &*end.name), ("outcome", end.outcome)];
                block.line(&labels, histogram.count as f64);
            }
        });
        text.block(names::LEADER, |block| {
            // The database decides: two processes may believe that they took the last sample.
            let last = sample.and_then(|sample| sample.values.first()).map(|value| value.at);
            let leads = inside.sampled.is_some() && inside.sampled == last;
            block.line(&[], f64::from(u8::from(leads)));
        });
        text.block(names::JOBS_RECLAIMED, |block| {
            for ((queue, result), count) in sorted(&inside.reclaimed) {
                block.line(&[("queue", queue), ("result", result)], *count as f64);
            }
        });
        text.block(names::CLAIMS, |block| {
            for ((queue, result), count) in sorted(&inside.claims) {
                block.line(&[("queue", queue), ("result", result)], *count as f64);
            }
        });
        text.block(names::SCHEDULE_SLOTS, |block| {
            for (schedule, count) in sorted(&inside.fired) {
                block.line(&[("schedule", schedule), ("result", "fired")], *count as f64);
            }
            for (schedule, count) in sample.iter().flat_map(|sample| &sample.missed) {
                block.line(&[("schedule", schedule), ("result", "missed")], *count as f64);
            }
        });
        text.block(names::DB_ERRORS, |block| {
            for ((operation, class), count) in sorted(&inside.errors) {
                block.line(&[("op", operation), ("class", class)], *count as f64);
            }
        });
        text.block(names::JOB_WAIT, |block| {
            for (queue, histogram) in sorted(&inside.waits) {
                block.histogram(&[("queue", queue)], histogram);
            }
        });
        text.block(names::JOB_DURATION, |block| {
            for (end, histogram) in &ends {
                let labels =
                    [("queue", &*end.queue), ("name", &*end.name), ("outcome", end.outcome)];
                block.histogram(&labels, histogram);
            }
        });
        text.block(names::JOB_LATENCY, |block| {
            for (queue, histogram) in sorted(&inside.latencies) {
                block.histogram(&[("queue", queue)], histogram);
            }
        });
        text.block(names::CLAIM_DURATION, |block| block.histogram(&[], &inside.claiming));
        text.block(names::COMPLETE_DURATION, |block| block.histogram(&[], &inside.completing));
        text.block(names::COMPLETE_BATCH, |block| block.histogram(&[], &inside.batches));
        let mut slots: HashMap<Arc<str>, [usize; 3]> = HashMap::new();
        for worked in inside.slots.iter().filter_map(Weak::upgrade) {
            let sums = slots.entry(Arc::clone(&worked.queue)).or_default();
            let values = [worked.total(), worked.running(), worked.waiting()];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        let metrics =
            [names::WORKER_SLOTS, names::WORKER_SLOTS_BUSY, names::WORKER_JOBS_CLAIMED_AHEAD];
        for (at, metric) in metrics.into_iter().enumerate() {
            text.block(metric, |block| {
                for (queue, values) in sorted(&slots) {
                    let value = values.get(at).copied().unwrap_or_default();
                    block.line(&[("queue", queue)], value as f64);
                }
            });
        }
    }
}

fn of_sample(text: &mut Text, sample: &Sample) {
    let Sample { now, values, alarms, .. } = sample;
    text.block(names::SAMPLE_AGE, |block| {
        if let Some(first) = values.first() {
            block.line(&[], now.duration_since(first.at).as_secs_f64());
        }
    });
    let of = |kind: &'static str, flow: bool| {
        values.iter().filter(move |value| value.kind == kind && value.flow == flow)
    };
    text.block(names::QUEUE_INFO, |block| {
        for (queue, display_name, owner) in &sample.queues {
            let labels = [("queue", &**queue), ("display_name", display_name), ("owner", owner)];
            block.line(&labels, 1.0);
        }
    });
    text.block(names::QUEUE_JOBS, |block| {
        for value in of("queue", false) {
            let state = match value.metric.as_str() {
                state @ ("ready" | "running" | "scheduled" | "retrying" | "dead") => state,
                _ => continue,
            };
            block.line(&[("queue", &value.subject), ("state", state)], value.value);
        }
    });
    let one = |text: &mut Text, metric, kind: &'static str, label: &str, wanted: &str| {
        text.block(metric, |block: &mut Block<'_>| {
            for value in of(kind, false).filter(|value| value.metric == wanted) {
                block.line(&[(label, &value.subject)], value.value);
            }
        });
    };
    one(text, names::QUEUE_DEAD_EXPIRED, "queue", "queue", "dead_expired");
    one(text, names::QUEUE_LENGTH, "queue", "queue", "watched_length");
    one(text, names::QUEUE_OLDEST, "queue", "queue", "oldest_ready_age");
    one(text, names::QUEUE_PAUSED, "queue", "queue", "paused");
    one(text, names::QUEUE_WORKERS, "queue", "queue", "workers");
    let flows = |text: &mut Text, metric, kind: &'static str, label: &str| {
        text.block(metric, |block: &mut Block<'_>| {
            for value in of(kind, true) {
                block.line(&[(label, &value.subject), ("event", &value.metric)], value.value);
            }
        });
    };
    flows(text, names::QUEUE_EVENTS, "queue", "queue");
    let tags = |text: &mut Text, metric, kind: &'static str, label: &str| {
        text.block(metric, |block: &mut Block<'_>| {
            for value in of(kind, true) {
                let (whose, tag) = apart(&value.subject);
                let labels = [(label, &*whose), ("tag", tag), ("event", &value.metric)];
                block.line(&labels, value.value);
            }
        });
    };
    tags(text, names::TAG_EVENTS, "tag", "queue");
    tags(text, names::MIRROR_TAG_EVENTS, "mirror_tag", "mirror");
    one(text, names::DEAD_TUPLES, "database", "table", "dead_tuples");
    one(text, names::TABLE_BYTES, "database", "table", "bytes");
    text.block(names::OLDEST_XACT, |block| {
        for value in of("database", false).filter(|value| value.metric == "oldest_xact_age") {
            block.line(&[], value.value);
        }
    });
    text.block(names::SWEEP_ROWS, |block| {
        for value in of("sweep", false) {
            if let Some(result) = value.metric.strip_suffix("_total") {
                block.line(&[("sweep", &value.subject), ("result", result)], value.value);
            }
        }
    });
    text.block(names::SWEEP_NOW, |block| {
        for value in of("sweep", false).filter(|value| !value.metric.ends_with("_total")) {
            block.line(&[("sweep", &value.subject), ("state", &value.metric)], value.value);
        }
    });
    one(text, names::MIRROR_COMPARED, "mirror", "mirror", "rows_compared");
    one(text, names::MIRROR_REPAIRED, "mirror", "mirror", "repaired");
    one(text, names::MIRROR_DIFFERENCES, "mirror", "mirror", "differences");
    one(text, names::MIRROR_OLDEST, "mirror", "mirror", "oldest_difference_age");
    one(text, names::MIRROR_EQUAL_AGE, "mirror", "mirror", "equal_age");
    flows(text, names::MIRROR_EVENTS, "mirror", "mirror");
    text.block(names::ALARM, |block| {
        for (rule, subject, state) in alarms {
            block.line(&[("rule", rule), ("subject", subject), ("state", state)], 1.0);
        }
    });
}

async fn read(client: &Client) -> Result<Sample, CallError> {
    let facts = "select statement_timestamp(), \
                 coalesce((select max(version) from leasehold.schema_version), 0)";
    let facts = client.query_typed(facts, &[]).await?;
    let latest = "select at, kind, subject, metric, flow, value from leasehold_internal.latest() \
                  order by kind, subject, metric limit 50000";
    let latest = client.query_typed(latest, &[]).await?;
    let alarms = "select rule, subject, state from leasehold.alarms \
                  where cleared_at is null order by rule, subject limit 1000";
    let alarms = client.query_typed(alarms, &[]).await?;
    let missed = "select name, missed_slots from leasehold_internal.schedule \
                  where missed_slots > 0 order by name limit 1000";
    let missed = client.query_typed(missed, &[]).await?;
    let queues = "select name, coalesce(display_name, ''), coalesce(owner, '') \
                  from leasehold_internal.queue order by name limit 1000";
    let queues = client.query_typed(queues, &[]).await?;
    Ok(Sample {
        queues: queues.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
        now: facts.first().map_or_else(Timestamp::now, |row| row.get(0)),
        schema: facts.first().map_or(0, |row| row.get(1)),
        values: latest
            .iter()
            .map(|row| Value {
                at: row.get(0),
                kind: row.get(1),
                subject: row.get(2),
                metric: row.get(3),
                flow: row.get(4),
                value: row.get(5),
            })
            .collect(),
        alarms: alarms.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect(),
        missed: missed.iter().map(|row| (row.get(0), row.get(1))).collect(),
    })
}

/// Splits a subject into owner and tag, as `leasehold_internal.tag_subject` joined them.
fn apart(subject: &str) -> (String, &str) {
    let (whose, tag) = subject.split_once('/').unwrap_or((subject, ""));
    (whose.replace("%2F", "/").replace("%25", "%"), tag)
}

/// Sorts the entries, so that every scrape has the same order.
fn sorted<K: Ord, V>(map: &HashMap<K, V>) -> Vec<(&K, &V)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries
}
