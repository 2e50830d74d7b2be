//! `leasehold dev` and `leasehold serve` measure, show and watch by themselves.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Child;

use crate::console_fixture::{console_in, in_time, metrics_in_time};
use crate::fixture::{FREE_PORT, Fixture, ready, url_of};
use leasehold_testing::until;

/// Starts a command with a console, and returns what it prints.
async fn start(fixture: &Fixture, args: &[&str]) -> (Child, String) {
    let args = [args, &["--console", FREE_PORT]].concat();
    let mut child = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    (child, said)
}

#[tokio::test]
async fn dev_takes_samples_and_shows_them() {
    let fixture = Fixture::new().await;
    fixture.job("mail", "send").await;
    let (_dev, said) = start(&fixture, &["dev", "--no-pastes"]).await;
    let url = console_in(&said);
    let overview = async || -> Value {
        leasehold_testing::http::get(format!("{url}/console/api/overview"))
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    };
    until("a sample", async || overview().await["queues"][0]["name"] == "mail").await;
    let metrics = async || {
        leasehold_testing::http::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap()
    };
    let metrics = metrics_in_time(metrics).await;
    assert!(
        metrics.contains("leasehold_queue_jobs{queue=\"mail\",state=\"ready\"} 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn serve_watches_its_queue_and_completes_canaries() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let args = ["serve", "--listen", FREE_PORT, "--store", store.to_str().unwrap()];
    let (_serve, said) = start(&fixture, &args).await;
    let done = "select count(*) from leasehold_internal.finished_job \
                 where name = 'leasehold.canary' and queue = 'pastes'";
    until("a canary", async || fixture.count(done).await > 0).await;
    let watched =
        "select count(*) from leasehold_internal.watch where queue = 'pastes' and not off";
    assert_eq!(fixture.count(watched).await, 1);
    let url = console_in(&said);
    let page =
        in_time(async || leasehold_testing::http::get(format!("{url}/console")).await.unwrap())
            .await;
    assert_eq!(page.status(), 200);
    // The address of the service itself does not serve metrics.
    let public = format!("{}/metrics", url_of("pastes", &said));
    assert_eq!(leasehold_testing::http::get(public).await.unwrap().status(), 404);
    // The service still runs and may write there, so errors are ignored.
    let _ = std::fs::remove_dir_all(&store);
}

#[tokio::test]
async fn serve_without_an_index_does_not_watch_annotations() {
    let fixture = Fixture::new().await;
    for service in ["pastes", "annotations"] {
        fixture.run(&["migrate", "up", "--service", service]).await.expect(0);
    }
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let listen = ["serve", "--listen", FREE_PORT, "--annotations-listen", FREE_PORT, "--store"];
    let (_serve, _) = start(&fixture, &[&listen[..], &[store.to_str().unwrap()]].concat()).await;
    let watched = "select count(*) from leasehold_internal.watch where queue";
    assert_eq!(fixture.count(&format!("{watched} = 'pastes'")).await, 1);
    assert_eq!(fixture.count(&format!("{watched} = 'annotations'")).await, 0);
    // Both services would send their first canary at once. The one of pastes has completed by now;
    // one for annotations would still wait, because no worker takes it.
    let done = "select count(*) from leasehold_internal.finished_job where queue = 'pastes'";
    until("a canary of pastes", async || fixture.count(done).await > 0).await;
    let waits = "select count(*) from leasehold.job where queue = 'annotations'";
    assert_eq!(fixture.count(waits).await, 0);
    let _ = std::fs::remove_dir_all(&store);
}
