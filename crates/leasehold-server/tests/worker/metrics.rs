//! `--metrics-listen`: a worker exports its own metrics, to permitted clients only.

use leasehold::measure::names;
use leasehold_testing::TestDatabase;
use reqwest::StatusCode;
use rustix::process::Signal;

use crate::fixture::{Folder, Worker, enqueue, job_until, leasehold};
use crate::prometheus::{Family, parse};
use leasehold_testing::until;

const TOKEN: &str = "0123456789abcdef0123";

/// Returns the address of the metrics that a worker prints, without the path.
pub fn origin(worker: &Worker) -> String {
    let output = worker.output();
    let line = output.lines().find_map(|line| line.strip_prefix("metrics: "));
    let url = line.unwrap_or_else(|| panic!("no address in: {output}"));
    url.strip_suffix("/metrics").expect("a path").to_owned()
}

pub async fn scrape(url: &str) -> Vec<Family> {
    let answer = leasehold_testing::http::get(format!("{url}/metrics")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.unwrap();
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub fn value(families: &[Family], name: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = families.iter().flat_map(|family| &family.samples);
    let fits = |sample: &&crate::prometheus::Sample| {
        let has = |(name, value): &(&str, &str)| {
            sample.labels.get(*name).is_some_and(|have| have == value)
        };
        sample.name == name && labels.iter().all(has)
    };
    samples.filter(fits).map(|sample| sample.value).sum()
}

/// Counts the TCP ports that a process listens on.
fn listening(pid: u32) -> usize {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default()
    });
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let ours = lines.filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(3) == Some(&"0A") && sockets.iter().any(|socket| words.get(9) == Some(&&**socket))
    });
    ours.count()
}

#[tokio::test]
async fn worker_metrics_have_the_listed_names() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let args = ["--exec", "good=true", "--exec", "bad=false", "--metrics-listen", "0"];
    let worker = Worker::start(&database, &args).await;
    let url = origin(&worker);
    for (name, status) in [("good", "completed"), ("good", "completed"), ("bad", "waiting")] {
        let id = enqueue(&client, name, "{}").await;
        job_until(&client, id, |row| row.is(status) && row.attempts == 1).await;
    }
    let finished = "leasehold_jobs_finished_total";
    // A worker counts an attempt once the database has confirmed its end.
    until("both outcomes are counted", async || {
        let families = scrape(&url).await;
        value(&families, finished, &[("name", "good"), ("outcome", "completed")]) == 2.0
            && value(&families, finished, &[("name", "bad"), ("outcome", "retried")]) == 1.0
    })
    .await;
    let families = scrape(&url).await;
    assert_eq!(value(&families, "leasehold_worker_slots", &[("queue", "default")]), 4.0);
    // A scrape waits for the database only briefly.
    until("the database is up", async || {
        value(&scrape(&url).await, "leasehold_database_up", &[]) == 1.0
    })
    .await;
    // Every process exports the numbers of the shared sample.
    client
        .batch_execute(
            "update leasehold_internal.duty set ran_at = ran_at - interval '2 minutes' where name = 'measure'",
        )
        .await
        .unwrap();
    // Either this call or the worker's housekeeping takes the sample.
    leasehold::measure::sample(&client).await.unwrap();
    let retrying = [("queue", "default"), ("state", "retrying")];
    until("the retrying job is sampled", async || {
        value(&scrape(&url).await, "leasehold_queue_jobs", &retrying) == 1.0
    })
    .await;
    for family in scrape(&url).await {
        let known = names::ALL.iter().any(|metric| metric.name == family.name);
        assert!(known, "{} is not in the list", family.name);
    }
    let health = leasehold_testing::http::get(format!("{url}/healthz")).await.unwrap();
    assert_eq!((health.status(), health.text().await.unwrap().as_str()), (StatusCode::OK, "ok\n"));
    // A worker does not serve the console.
    assert_eq!(leasehold_testing::http::get(format!("{url}/console")).await.unwrap().status(), 404);
}

#[tokio::test]
async fn worker_listens_only_with_metrics_listen() {
    let database = TestDatabase::new().await;
    let quiet = Worker::start(&database, &["--exec", "a=true"]).await;
    assert_eq!(listening(quiet.pid()), 0);
    assert!(!quiet.output().contains("/metrics"), "{}", quiet.output());
    let asked = Worker::start(&database, &["--exec", "a=true", "--metrics-listen", "0"]).await;
    assert_eq!(listening(asked.pid()), 1);
    // A port alone means a loopback address.
    assert!(origin(&asked).starts_with("http://127.0.0.1:"), "{}", origin(&asked));
}

#[tokio::test]
async fn h12_metrics_need_a_local_name_or_the_token() {
    let database = TestDatabase::new().await;
    let args = ["--exec", "a=true", "--metrics-listen", "127.0.0.1:0"];
    let open = Worker::start(&database, &args).await;
    let client = leasehold_testing::http::client();
    // A page whose own host name resolves to this address (DNS rebinding) gets nothing.
    let from = |host: &'static str| {
        client.get(format!("{}/metrics", origin(&open))).header("host", host).send()
    };
    assert_eq!(from("evil.example").await.unwrap().status(), StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(from("localhost:1").await.unwrap().status(), StatusCode::OK);

    let token = [("LEASEHOLD_CONSOLE_TOKEN", TOKEN)];
    let args = ["--exec", "a=true", "--metrics-listen", "0.0.0.0:0"];
    let closed = Worker::start_with(&database, &args, &token).await;
    let url = format!("{}/metrics", origin(&closed));
    let answer = client.get(&url).header("accept", "text/html").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    let answer = client.get(&url).bearer_auth("wrong-wrong-wrong").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let answer = client.get(&url).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(!closed.output().contains(TOKEN));
}

#[tokio::test]
async fn worker_with_a_bad_metrics_address_does_not_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, code, words) in [
        ("0.0.0.0:0", 4, "LEASEHOLD_CONSOLE_TOKEN"),
        (taken.as_str(), 5, "--metrics-listen 9465"),
        ("somewhere", 2, "write 9464"),
    ] {
        let mut command = leasehold();
        command
            .args(["worker", "-q", "default", "--exec", "a=true", "--metrics-listen", address])
            .env("LEASEHOLD_DATABASE_URL", "postgres://none@127.0.0.1:1/none");
        let done = command.output().await.unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(code), "{address}: {text}");
        assert!(text.contains(words), "{address}: {text}");
    }
}

#[tokio::test]
async fn draining_worker_serves_metrics() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("drain"));
    let client = database.connect().await;
    let (started, go) = (folder.file("started"), folder.file("go"));
    let script = format!(
        "slow=sh -c 'echo yes >{}; until [ -e {} ]; do sleep 0.05; done'",
        started.display(),
        go.display()
    );
    let args = ["--grace", "10m", "--exec", &script, "--metrics-listen", "0"];
    let mut worker = Worker::start(&database, &args).await;
    let url = origin(&worker);
    enqueue(&client, "slow", "{}").await;
    folder.read("started").await;
    worker.signal(Signal::TERM);
    worker.says("stopping: ").await;
    assert_eq!(
        value(&scrape(&url).await, "leasehold_worker_slots_busy", &[("queue", "default")]),
        1.0
    );
    std::fs::write(&go, "").unwrap();
    assert!(worker.ended().await.success());
}
