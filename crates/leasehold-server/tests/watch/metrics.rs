//! `/metrics`, parsed as strictly as a scraper does, and the alert rules that name its metrics.

use leasehold::measure::names::{self, Kind};
use leasehold::{Job, JobError};
use serde::{Deserialize, Serialize};

use crate::prometheus::parse;
use crate::tower::{Tower, metrics_in_time, until};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "note", queue = "mail")]
struct Note {
    fails: bool,
}

async fn handle(note: Note) -> Result<(), JobError> {
    if note.fails { Err(JobError::permanent("it cannot")) } else { Ok(()) }
}

/// Returns a database in which every metric has a value, and the metrics of a process that ran jobs.
pub async fn full() -> (Tower, String) {
    use leasehold::Enqueue;
    let tower = Tower::start().await;
    let worker = tower.engine.worker().handle(handle).without_housekeeping();
    let mut events = worker.events().subscribe();
    for fails in [false, false, true] {
        Note { fails }.enqueue(&tower.engine).await.unwrap();
    }
    let three = async move {
        let mut ends = 0;
        while ends < 3 {
            let event = events.recv().await.unwrap();
            ends += usize::from(matches!(event, leasehold::events::Event::Finished { .. }));
        }
    };
    worker.run_until(three).await.unwrap();
    tower.sql("select leasehold.declare_mirror('notes.index', 'public.notes', 'id', 'text', 'version', 'notes', 'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500); insert into leasehold.tally (queue, tag, what, n, subject) values ('notes', 't', 'synced_missing', 3, 'notes.index')").await;
    tower.sql("create table public.shelf (id bigint primary key, due timestamptz, status text, taken_at timestamptz, claim bigint); select leasehold.declare_sweep('shelf', 'public.shelf', 'id', 'bigint', 'due', 'status', 'NEW', 'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null); select leasehold.note_claimed('shelf', 0, 0, 0, null)").await;
    tower.sql("insert into leasehold.job (name, scheduled_at, expires_at, queue, tag) values ('late', now() - interval '1 minute', now(), 'odd \"\\ queue', E'two\\nlines'); select leasehold.expire_jobs()").await;
    tower.sql("insert into leasehold.tally (queue, tag, what, n) select 'mail', 't', what, 1 from unnest(array['lost', 'retried', 'buried']) what; update leasehold.mirror set equal_as_of = now()").await;
    tower.sql("insert into leasehold.schedule (name, job_name, cron, zone, queue, kwargs, next_slot, missed_slots) values ('nightly', 'note', '0 3 * * *', 'UTC', 'mail', '{}', now() + interval '1 day', 1)").await;
    tower.a_minute_passes().await;
    let text = metrics_in_time(async || tower.engine.metrics().await).await;
    (tower, text)
}

#[tokio::test]
async fn the_text_is_what_a_strict_scraper_accepts() {
    let (tower, own) = full().await;
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
        ("leasehold_jobs_enqueued_total", &[("queue", "mail"), ("kind", "note")][..], 3.0),
        ("leasehold_jobs_finished_total", &[("queue", "mail"), ("outcome", "completed")], 2.0),
        ("leasehold_jobs_finished_total", &[("kind", "note"), ("outcome", "dead")], 1.0),
        ("leasehold_job_duration_seconds_count", &[("outcome", "completed")], 2.0),
        ("leasehold_job_wait_seconds_count", &[("queue", "mail")], 3.0),
        ("leasehold_job_latency_seconds_count", &[("queue", "mail")], 2.0),
        ("leasehold_queue_jobs", &[("queue", "mail"), ("state", "dead")], 1.0),
        ("leasehold_queue_jobs", &[("queue", "odd \"\\ queue"), ("state", "expired")], 1.0),
        ("leasehold_tag_last_minute_jobs", &[("tag", "two\nlines"), ("event", "expired")], 1.0),
        ("leasehold_queue_last_minute_jobs", &[("queue", "mail"), ("event", "completed")], 2.0),
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
    let shown = tower.metrics().await;
    let other = parse(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
    let queues = |families: &[crate::prometheus::Family]| {
        families.iter().find(|family| family.name == "leasehold_queue_jobs").unwrap().samples.len()
    };
    assert_eq!(queues(&families), queues(&other));
}

#[tokio::test]
async fn every_metric_that_is_written_is_in_the_list_with_its_kind_and_help() {
    let (_tower, text) = full().await;
    for family in parse(&text).unwrap() {
        let known = names::ALL.iter().find(|metric| metric.name == family.name);
        let known = known.unwrap_or_else(|| panic!("{} is not in the list", family.name));
        let kind = match known.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        assert_eq!((family.kind.as_str(), family.help.as_str()), (kind, known.help));
    }
}

#[tokio::test]
async fn names_with_strokes_stay_whole_and_mirrors_are_no_queues() {
    let tower = Tower::start().await;
    tower.sql("insert into leasehold.tally (queue, tag, what, n, subject) values ('a/b', 'c/d', 'retried', 2, ''), ('100%', 't', 'retried', 3, ''), ('notes', 't', 'synced_missing', 5, 'notes.index')").await;
    tower.a_minute_passes().await;
    let text = tower.metrics().await;
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
async fn jobs_that_are_enqueued_many_at_once_are_counted() {
    let tower = Tower::start().await;
    let notes = (0..7).map(|_| Note { fails: false });
    assert_eq!(tower.engine.enqueue_many(notes).await.unwrap(), 7);
    let text = tower.engine.metrics().await;
    let line = "leasehold_jobs_enqueued_total{queue=\"mail\",kind=\"note\"} 7\n";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_queue_says_what_people_call_it_and_whose_it_is() {
    let tower = Tower::start().await;
    let set =
        ["queues", "set", "mail", "--new-queue", "--display-name", "Mail & more", "--owner", "ann"];
    tower.place.run(&set).await.expect(0).prints("Mail & more");
    let line =
        "leasehold_queue_info{queue=\"mail\",display_name=\"Mail & more\",owner=\"ann\"} 1\n";
    assert!(tower.metrics().await.contains(line));
    let list = tower.place.run(&["queues", "list", "--json"]).await.json();
    let mail = list["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "mail");
    assert_eq!(mail.unwrap()["owner"], "ann");
    tower.place.run(&["queues", "set", "mail", "--owner", ""]).await.expect(0);
    let line = "leasehold_queue_info{queue=\"mail\",display_name=\"Mail & more\",owner=\"\"} 1\n";
    assert!(tower.metrics().await.contains(line));
}

#[tokio::test]
async fn whoever_took_the_last_sample_leads() {
    let keeper = Tower::keeping_house().await;
    let leads = "leasehold_leader 1\n";
    until("it leads", async || keeper.metrics().await.contains(leads)).await;
    assert!(!keeper.engine.metrics().await.contains(leads), "another process took none");
}

#[tokio::test]
async fn a_database_that_is_away_leaves_the_counts_of_the_process() {
    let tower = Tower::start().await;
    tower.sql("alter schema leasehold rename to elsewhere").await;
    let text = tower.get_once("/metrics").await.text().await.unwrap();
    let families = parse(&text).unwrap();
    let up = families.iter().find(|family| family.name == "leasehold_database_up").unwrap();
    assert_eq!(up.samples[0].value, 0.0);
    assert!(families.iter().any(|family| family.name == "leasehold_fetch_duration_seconds"));
    let page = tower.get_once("/console").await;
    assert_eq!(page.status(), 503);
    assert!(page.text().await.unwrap().contains("The database does not answer."));
}
