//! A console or service runs housekeeping when every worker is gone.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::support::{ANYWHERE, LIMIT, Place};
use crate::tower::{Tower, until};

const LOW: &str = "completion_rate_low mail";

/// Starts a real worker process, and waits until it is ready.
async fn worker(place: &Place) -> Child {
    let args = ["worker", "--queue", "mail=2", "--exec", "send=true"];
    let mut child = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = async {
        while !lines.next_line().await.unwrap().expect("ready before the end").starts_with("ready")
        {
        }
    };
    tokio::time::timeout(LIMIT, ready).await.expect("ready in time");
    child
}

async fn done(place: &Place, jobs: i64) {
    let done = "select count(*) from leasehold.finished_job where queue = 'mail'";
    until("the jobs are done", async || place.number(done).await == jobs).await;
}

#[tokio::test]
async fn consumer_and_producer_stop_and_the_console_that_stays_raises_the_alarm() {
    let tower = Tower::keeping_house().await;
    let watch = ["alarms", "watch", "mail", "--min-completed", "1", "--over", "2m"];
    tower.place.run(&watch).await.expect(0);
    let mut only = worker(&tower.place).await;
    tower.place.job("mail", "send").await;
    done(&tower.place, 1).await;
    tower.a_minute_passes_by_itself().await;
    assert_eq!(tower.up().await, Vec::<String>::new());
    // Killed: it can neither unregister nor take one more sample.
    only.kill().await.unwrap();
    for _ in 0..3 {
        tower.a_minute_passes_by_itself().await;
    }
    until("the alarm", async || tower.up().await == [LOW]).await;
    let page = tower.get("/console").await.text().await.unwrap();
    assert!(page.contains("completion rate low"), "{page}");
    // Starting a worker again, with a job to complete, clears the alarm.
    let _again = worker(&tower.place).await;
    tower.place.job("mail", "send").await;
    done(&tower.place, 2).await;
    tower.a_minute_passes_by_itself().await;
    until("it is over", async || tower.up().await.is_empty()).await;
    assert_eq!(tower.ever().await, [LOW]);
}

#[tokio::test]
async fn a_service_without_a_worker_takes_samples() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let args = ["serve", "--no-worker", "--no-console", "--listen", ANYWHERE, "--store"];
    let args = [&args[..], &[store.to_str().unwrap()]].concat();
    let _serve = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let samples = "select count(*) from leasehold.measure where metric = 'sampled'";
    until("a sample", async || place.number(samples).await > 0).await;
    // The service still runs and may write there, so errors are ignored.
    let _ = std::fs::remove_dir_all(&store);
}

#[tokio::test]
async fn a_console_that_may_not_measure_says_so() {
    let place = Place::new().await;
    let role = format!("seer_{}", uuid::Uuid::new_v4().simple());
    place
        .client
        .batch_execute(&format!("create role {role} login in role leasehold_viewer"))
        .await
        .unwrap();
    let url = place.database.url().replace("user=postgres", &format!("user={role}"));
    let tower = Tower::as_somebody(place, &url).await;
    let overview: Value = tower.get("/console/api/overview").await.json().await.unwrap();
    assert_eq!(overview["housekeeping"], "not_allowed");
    let page = tower.get("/console").await.text().await.unwrap();
    assert!(page.contains("its role is not a member of leasehold_housekeeper"), "{page}");
}
