//! `/metrics`, parsed as strictly as a scraper does, and the alert rules that name its metrics.

use leasehold::measure::names::{self, MetricType};
use leasehold::{Job, JobError};
use serde::{Deserialize, Serialize};

use crate::console_fixture::{ConsoleFixture, metrics_in_time};
use crate::prometheus::parse;
use leasehold_testing::until;

#[derive(Job, Serialize, Deserialize)]
#[job(name = "note", queue = "mail")]
struct Note {
    fails: bool,
}

async fn handle(note: Note) -> Result<(), JobError> {
    if note.fails { Err(JobError::permanent("it cannot")) } else { Ok(()) }
}

/// Returns a database in which every metric has a value, and the metrics of a process that ran jobs.
pub async fn full() -> (ConsoleFixture, String) {
    use leasehold::Enqueue;
    let console = ConsoleFixture::start().await;
    let worker = console.engine.worker().handle(handle).without_housekeeping();
    let mut events = worker.events().subscribe();
    for fails in [false, false, true] {
        Note { fails }.enqueue(&console.engine).await.unwrap();
    }
    let three = async move {
        let mut ends = 0;
        while ends < 3 {
            let event = events.recv().await.unwrap();
            ends += usize::from(matches!(event, leasehold::events::Event::Finished { .. }));
        }
    };
    worker.run_until(three).await.unwrap();
    console.sql("select leasehold_internal.declare_mirror('notes.index', 'public.notes', 'id', 'text', 'version', 'notes', 'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500); insert into leasehold_internal.tally (queue, tag, what, n, subject) values ('notes', 't', 'synced_missing', 3, 'notes.index')").await;
    console.sql("create table public.shelf (id bigint primary key, due timestamptz, status text, taken_at timestamptz, claim bigint); select leasehold_internal.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', 'NEW', 'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null); select leasehold_internal.note_claimed('shelf', 0, 0, 0, null)").await;
    console.sql("insert into leasehold.job (name, scheduled_at, expires_at, queue, tag) values ('late', now() - interval '1 minute', now(), 'odd \"\\ queue', E'two\\nlines'); select leasehold_internal.expire_jobs()").await;
    console.sql("insert into leasehold_internal.tally (queue, tag, what, n) select 'mail', 't', what, 1 from unnest(array['lost', 'retried', 'buried']) what; update leasehold_internal.mirror set equal_as_of = now()").await;
    console.sql("insert into leasehold_internal.schedule (name, job_name, cron, zone, queue, kwargs, next_slot, missed_slots) values ('nightly', 'note', '0 3 * * *', 'UTC', 'mail', '{}', now() + interval '1 day', 1)").await;
    console.a_minute_passes().await;
    let text = metrics_in_time(async || console.engine.metrics().await).await;
    (console, text)
}

#[tokio::test]
async fn metrics_pass_a_strict_parser() {
    let (console, own) = full().await;
    let families = parse(&own).unwrap_or_else(|error| panic!("{error}\n{own}"));
    let value = |name: &str, labels: &[(&str, &str)]| {
        let samples = families.iter().flat_map(|family| &family.samples);
        let found = samples.filter(|sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(name, value)| sample.labels.get(*name).is_some_and(|have| have == value))
        });
        found.map(|sample| sample.value).sum::<f64>()
    };
    for (name, labels, expected) in [
        ("leasehold_jobs_enqueued_total", &[("queue", "mail"), ("name", "note")][..], 3.0),
        ("leasehold_jobs_finished_total", &[("queue", "mail"), ("outcome", "completed")], 2.0),
        ("leasehold_jobs_finished_total", &[("name", "note"), ("outcome", "dead")], 1.0),
        ("leasehold_job_duration_seconds_count", &[("outcome", "completed")], 2.0),
        ("leasehold_job_wait_seconds_count", &[("queue", "mail")], 3.0),
        ("leasehold_job_latency_seconds_count", &[("queue", "mail")], 2.0),
        ("leasehold_queue_jobs", &[("queue", "mail"), ("state", "dead")], 1.0),
        ("leasehold_queue_dead_expired_jobs", &[("queue", "odd \"\\ queue")], 1.0),
        ("leasehold_tag_last_minute_jobs", &[("tag", "two\nlines"), ("event", "expired")], 1.0),
        ("leasehold_queue_last_minute_jobs", &[("queue", "mail"), ("event", "completed")], 2.0),
        ("leasehold_queue_last_minute_jobs", &[("queue", "mail"), ("event", "dead")], 2.0),
        (
            "leasehold_mirror_last_minute_rows",
            &[("mirror", "notes.index"), ("event", "synced_missing")],
            3.0,
        ),
        ("leasehold_alarm", &[("rule", "expired_jobs"), ("state", "open")], 1.0),
        ("leasehold_database_up", &[], 1.0),
        ("leasehold_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0),
    ] {
        assert_eq!(value(name, labels), expected, "{name} {labels:?}\n{own}");
    }
    let age = value("leasehold_sample_age_seconds", &[]);
    assert!((60.0..240.0).contains(&age), "{age}");
    // A process that runs no jobs exports the same numbers of the sample.
    let shown = console.metrics().await;
    let other = parse(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    let queues = |families: &[crate::prometheus::Family]| {
        families.iter().find(|family| family.name == "leasehold_queue_jobs").unwrap().samples.len()
    };
    assert_eq!(queues(&families), queues(&other));
}

#[tokio::test]
async fn exposed_metrics_are_listed_with_type_and_help() {
    let (_tower, text) = full().await;
    for family in parse(&text).unwrap() {
        let known = names::ALL.iter().find(|metric| metric.name == family.name);
        let known = known.unwrap_or_else(|| panic!("{} is not in the list", family.name));
        let kind = match known.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        assert_eq!((family.kind.as_str(), family.help.as_str()), (kind, known.help));
    }
}

#[tokio::test]
async fn labels_keep_slashes_and_mirrors_are_not_queues() {
    let console = ConsoleFixture::start().await;
    console.sql("insert into leasehold_internal.tally (queue, tag, what, n, subject) values ('a/b', 'c/d', 'retried', 2, ''), ('100%', 't', 'retried', 3, ''), ('notes', 't', 'synced_missing', 5, 'notes.index')").await;
    console.a_minute_passes().await;
    let text = console.metrics().await;
    for line in [
        "leasehold_tag_last_minute_jobs{queue=\"a/b\",tag=\"c/d\",event=\"retried\"} 2\n",
        "leasehold_tag_last_minute_jobs{queue=\"100%\",tag=\"t\",event=\"retried\"} 3\n",
        "leasehold_mirror_tag_last_minute_rows{mirror=\"notes.index\",tag=\"t\",event=\"synced_missing\"} 5\n",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("queue=\"notes.index\""), "{text}");
}

#[tokio::test]
async fn bulk_enqueued_jobs_are_counted() {
    let console = ConsoleFixture::start().await;
    let notes = (0..7).map(|_| Note { fails: false });
    assert_eq!(console.engine.enqueue_many(notes).await.unwrap(), 7);
    let text = console.engine.metrics().await;
    let line = "leasehold_jobs_enqueued_total{queue=\"mail\",name=\"note\"} 7\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn queue_info_has_display_name_and_owner() {
    let console = ConsoleFixture::start().await;
    let set =
        ["queues", "set", "mail", "--new-queue", "--display-name", "Mail & more", "--owner", "ann"];
    console.fixture.run(&set).await.expect(0).prints("Mail & more");
    let line =
        "leasehold_queue_info{queue=\"mail\",display_name=\"Mail & more\",owner=\"ann\"} 1\n";
    assert!(console.metrics().await.contains(line));
    let list = console.fixture.run(&["queues", "list", "--json"]).await.json();
    let mail = list["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "mail");
    assert_eq!(mail.unwrap()["owner"], "ann");
    console.fixture.run(&["queues", "set", "mail", "--owner", ""]).await.expect(0);
    let line = "leasehold_queue_info{queue=\"mail\",display_name=\"Mail & more\",owner=\"\"} 1\n";
    assert!(console.metrics().await.contains(line));
}

#[tokio::test]
async fn process_of_the_last_sample_is_the_leader() {
    let keeper = ConsoleFixture::with_housekeeping().await;
    let leads = "leasehold_leader 1\n";
    until("it leads", async || keeper.metrics().await.contains(leads)).await;
    assert!(!keeper.engine.metrics().await.contains(leads), "another process took none");
}

#[tokio::test]
async fn process_metrics_are_served_without_the_database() {
    let console = ConsoleFixture::start().await;
    console.sql("alter schema leasehold rename to elsewhere").await;
    let text = console.get_once("/metrics").await.text().await.unwrap();
    let families = parse(&text).unwrap();
    let up = families.iter().find(|family| family.name == "leasehold_database_up").unwrap();
    assert_eq!(up.samples[0].value, 0.0);
    assert!(families.iter().any(|family| family.name == "leasehold_claim_duration_seconds"));
    let page = console.get_once("/console").await;
    assert_eq!(page.status(), 503);
    assert!(page.text().await.unwrap().contains("The database does not respond."));
}
