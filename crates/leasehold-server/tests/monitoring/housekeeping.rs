//! A console or service runs housekeeping when every worker is gone.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::console_fixture::ConsoleFixture;
use crate::fixture::{FREE_PORT, Fixture, LIMIT};
use leasehold_testing::until;

const LOW: &str = "completion_rate_low mail";

/// Starts a real worker process, and waits until it is ready.
async fn worker(fixture: &Fixture) -> Child {
    let args = ["worker", "--queue", "mail=2", "--exec", "send=true"];
    let mut child = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = async {
        while !lines.next_line().await.unwrap().expect("ready before the end").starts_with("ready")
        {
        }
    };
    tokio::time::timeout(LIMIT, ready).await.expect("ready in time");
    child
}

async fn done(fixture: &Fixture, jobs: i64) {
    let done = "select count(*) from leasehold_internal.finished_job where queue = 'mail'";
    until("the jobs are done", async || fixture.count(done).await == jobs).await;
}

#[tokio::test]
async fn console_raises_the_alarm_when_every_worker_is_gone() {
    let console = ConsoleFixture::with_housekeeping().await;
    let watch = ["alarms", "watch", "mail", "--min-completed", "1", "--over", "2m", "--new-queue"];
    console.fixture.run(&watch).await.expect(0);
    let mut only = worker(&console.fixture).await;
    console.fixture.job("mail", "send").await;
    done(&console.fixture, 1).await;
    console.a_minute_passes_by_itself().await;
    assert_eq!(console.active().await, Vec::<String>::new());
    // Killed: it can neither unregister nor take one more sample.
    only.kill().await.unwrap();
    for _ in 0..3 {
        console.a_minute_passes_by_itself().await;
    }
    until("the alarm", async || console.active().await == [LOW]).await;
    let page = console.get("/console").await.text().await.unwrap();
    assert!(page.contains("completion rate low"), "{page}");
    // Starting a worker again, with a job to complete, clears the alarm.
    let _again = worker(&console.fixture).await;
    console.fixture.job("mail", "send").await;
    done(&console.fixture, 2).await;
    console.a_minute_passes_by_itself().await;
    until("it is over", async || console.active().await.is_empty()).await;
    assert_eq!(console.all_raised().await, [LOW]);
}

#[tokio::test]
async fn service_without_a_worker_takes_samples() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let args = ["serve", "--no-worker", "--no-console", "--listen", FREE_PORT, "--store"];
    let args = [&args[..], &[store.to_str().unwrap()]].concat();
    let _serve = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let samples = "select count(*) from leasehold_internal.measure where metric = 'sampled'";
    until("a sample", async || fixture.count(samples).await > 0).await;
    // The service still runs and may write there, so errors are ignored.
    let _ = std::fs::remove_dir_all(&store);
}

#[tokio::test]
async fn console_without_the_role_reports_that_it_takes_no_samples() {
    let fixture = Fixture::new().await;
    let role = format!("seer_{}", uuid::Uuid::new_v4().simple());
    fixture.sql(&format!("create role {role} login in role leasehold_viewer")).await;
    let url = fixture.database.url().replace("user=postgres", &format!("user={role}"));
    let console = ConsoleFixture::with_role(fixture, &url).await;
    let overview: Value = console.get("/console/api/overview").await.json().await.unwrap();
    assert_eq!(overview["housekeeping"], "not_allowed");
    let page = console.get("/console").await.text().await.unwrap();
    assert!(page.contains("its role is not a member of leasehold_housekeeper"), "{page}");
}
