//! Alert rules, dashboard and docs query what `/metrics` really exposes: names, labels and the values
//! of labels. A dashboard that queries a metric that does not exist shows an empty panel and no
//! error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::measure::names::{self, MetricType};
use leasehold::{JobError, JobResult, Leasehold};
use serde_json::Value;

use crate::console_fixture::ConsoleFixture;
use crate::fixture::LIMIT;
use crate::metrics::full;
use crate::prometheus::parse;

const RULES: &str = "deploy/prometheus/leasehold.rules.yml";
const DASHBOARD: &str = "deploy/grafana/leasehold.json";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).expect(file)
}

/// Returns names of metrics in a text, each with the text that follows.
fn mentioned(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, at)) = rest.find("leasehold_").and_then(|at| rest.split_at_checked(at))
    {
        let end = at.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(at.len());
        let (word, after) = at.split_at_checked(end).unwrap();
        if before.chars().next_back().is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_') {
            found.push((word, after));
        }
        rest = after;
    }
    found
}

/// Returns the metric that a name in an expression belongs to.
fn metric(word: &str) -> Option<names::Metric> {
    let is = |metric: &&names::Metric| {
        metric.name == word
            || (metric.kind == MetricType::Histogram
                && ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| word.strip_suffix(end) == Some(metric.name)))
    };
    names::ALL.iter().find(is).copied()
}

/// What `/metrics` really exposes: the labels of each metric, and their values.
type Shown = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

async fn shown() -> Shown {
    let (console, text) = full().await;
    let mut shown = Shown::new();
    add(&mut shown, &text);
    add(&mut shown, &at_work(&console).await);
    shown
}

fn add(shown: &mut Shown, text: &str) {
    for family in parse(text).unwrap_or_else(|error| panic!("{error}\n{text}")) {
        let labels = shown.entry(family.name).or_default();
        for sample in family.samples {
            for (label, value) in sample.labels {
                labels.entry(label).or_default().insert(value);
            }
        }
    }
}

/// Returns the metrics of a worker that is running a job, after a retry, a job reclaimed from a dead
/// worker, a schedule that fired, and a call that failed.
async fn at_work(console: &ConsoleFixture) -> String {
    let engine = Leasehold::connect(&console.fixture.database.url()).await.unwrap();
    let shows = async |wanted: &str| {
        let looking = async {
            loop {
                let text = engine.metrics().await;
                if text.contains(wanted) {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = tokio::time::timeout(LIMIT, looking).await;
        found.unwrap_or_else(|_| panic!("never shown: {wanted}"))
    };
    let worker = engine
        .worker()
        .queue("work", 3)
        .poll_every(Duration::from_millis(20))
        .handle_untyped("again", |_| async { JobResult::Err(JobError::retry("not yet")) })
        .handle_untyped("long", |_| std::future::pending::<()>());
    console
        .sql(
            "select leasehold.enqueue('again', '{}', 'work'), leasehold.enqueue('long', '{}', 'work'); \
             insert into leasehold_internal.schedule (name, job_name, cron, queue, next_slot) \
             values ('often', 'unused', '* * * * *', 'work', now() - interval '1 second')",
        )
        .await;
    console.fixture.running("mail", "orphan").await;
    console
        .sql("update leasehold_internal.lease set lease_expires_at = now() - interval '1 minute'")
        .await;
    let (looked, stop) = tokio::sync::oneshot::channel::<()>();
    let looking = async {
        shows("leasehold_jobs_reclaimed_total{queue=\"mail\",result=\"returned\"} 1").await;
        shows("outcome=\"retried\"").await;
        shows("leasehold_worker_slots_busy{queue=\"work\"} 1").await;
        shows("leasehold_schedule_slots_total{schedule=\"often\",result=\"fired\"}").await;
        console.sql("alter table leasehold.job rename to elsewhere").await;
        let text = shows("leasehold_db_errors_total").await;
        console.sql("alter table leasehold.elsewhere rename to job").await;
        let _ = looked.send(());
        text
    };
    let stop = async {
        let _ = stop.await;
    };
    let (ended, text) = tokio::join!(worker.run_with_shutdown(stop, async {}), looking);
    ended.unwrap();
    text
}

/// Returns what is wrong with an expression.
fn faults(expression: &str, shown: &Shown) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (word, after) in mentioned(expression) {
        let Some(labels) = metric(word).and_then(|metric| shown.get(metric.name)) else {
            faults.push(format!("{word} is not shown"));
            continue;
        };
        known.extend(labels.keys().map(String::as_str));
        let Some((matchers, _)) = after.strip_prefix('{').and_then(|rest| rest.split_once('}'))
        else {
            continue;
        };
        for matcher in matchers.split(',') {
            let (label, rest) = matcher.split_once(['=', '!']).expect(expression);
            let value = rest.trim_start_matches(['~', '=']).trim().trim_matches('"');
            let Some(values) = labels.get(label.trim()) else {
                faults.push(format!("{word} has no label {label}"));
                continue;
            };
            let plain = !value.contains(['$', '.', '*']);
            for value in value.split('|').filter(|_| plain) {
                if !values.contains(value) {
                    faults.push(format!("{word} is never shown with {label}={value:?}"));
                }
            }
        }
    }
    // Names in `by (...)` and `on (...)` are labels, too.
    for word in ["by (", "on (", "by(", "on("] {
        for list in expression.split(word).skip(1) {
            for label in list.split(')').next().unwrap_or_default().split(',') {
                if !known.contains(label.trim()) {
                    faults.push(format!("nothing here has a label {label}"));
                }
            }
        }
    }
    faults
}

#[tokio::test]
async fn alert_rules_use_existing_metrics() {
    let shown = shown().await;
    let rules = read(RULES);
    // Each rule from its name on.
    let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
    assert!(rules.len() > 10, "{} rules", rules.len());
    for rule in rules {
        let (expression, rest) = rule
            .split_once("expr:")
            .and_then(|(_, rest)| rest.split_once("labels:"))
            .expect("an expression and labels");
        assert!(!mentioned(expression).is_empty(), "{rule}");
        assert_eq!(faults(expression, &shown), Vec::<String>::new(), "{rule}");
        assert!(rest.contains("summary:"), "{rule}");
    }
}

#[tokio::test]
async fn dashboard_uses_existing_metrics() {
    let shown = shown().await;
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut asked: BTreeSet<String> = BTreeSet::new();
    let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its number is taken");
        let of = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in of("x")..of("x") + of("w") {
            for y in of("y")..of("y") + of("h") {
                assert!(x < 24 && taken.insert((x, y)), "{title} lies over another one");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            assert_eq!(faults(expression, &shown), Vec::<String>::new(), "{title}: {expression}");
            asked.extend(mentioned(expression).iter().map(|(word, _)| (*word).to_owned()));
            // A label that the expression aggregates away is not available to the legend.
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            for label in legend.split("{{").skip(1) {
                let label = label.split("}}").next().unwrap();
                assert!(expression.contains(label), "{title}: {legend} of {expression}");
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(definition) = variable["definition"].as_str() {
            assert_eq!(faults(definition, &shown), Vec::<String>::new(), "{definition}");
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        let expression = annotation["expr"].as_str().unwrap();
        assert_eq!(faults(expression, &shown), Vec::<String>::new(), "{expression}");
    }
    // What an operator on call looks for first.
    for wanted in [
        "leasehold_queue_length",
        "leasehold_queue_last_minute_jobs",
        "leasehold_mirror_last_minute_rows",
        "leasehold_queue_oldest_ready_age_seconds",
        "leasehold_mirror_oldest_difference_age_seconds",
        "leasehold_sweep_rows",
        "leasehold_alarm",
        "leasehold_sample_age_seconds",
    ] {
        assert!(asked.contains(wanted), "the dashboard does not show {wanted}");
    }
    // Every process exports the same sample, so its numbers must not be summed.
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let sampled = ["leasehold_queue_", "leasehold_mirror_", "leasehold_sweep_"];
            if sampled.iter().any(|name| expression.contains(name)) {
                assert!(expression.contains("max by ("), "added up over processes: {expression}");
            }
        }
    }
}

#[tokio::test]
async fn every_listed_metric_is_exposed_and_documented() {
    let shown = shown().await;
    let docs = read("docs/metrics.md");
    let words: BTreeSet<&str> = mentioned(&docs).iter().map(|(word, _)| *word).collect();
    // A schema is no metric.
    for word in words.iter().filter(|word| **word != "leasehold_internal") {
        assert!(metric(word).is_some(), "docs/metrics.md names {word}, which does not exist");
    }
    for metric in names::ALL {
        assert!(words.contains(metric.name), "docs/metrics.md does not name {}", metric.name);
        assert!(shown.contains_key(metric.name), "{} is never shown", metric.name);
    }
}

#[tokio::test]
async fn expression_check_finds_wrong_names_labels_and_values() {
    let shown = shown().await;
    for (expression, count) in [
        ("max by (queue) (leasehold_queue_jobs{state=\"ready\"})", 0),
        ("leasehold_queue_job", 1),
        ("leasehold_queue_jobs{status=\"ready\"}", 1),
        ("leasehold_queue_jobs{state=\"waiting\"}", 1),
        ("max by (quene) (leasehold_queue_jobs)", 1),
        ("leasehold_jobs_finished_total{outcome=~\"completed|deed\"}", 1),
        ("rate(leasehold_job_wait_seconds_bucket{queue=~\"$queue\"}[5m])", 0),
        ("leasehold_queue_jobs_bucket", 1),
    ] {
        assert_eq!(faults(expression, &shown).len(), count, "{expression}");
    }
}
