//! `leasehold dev` and `leasehold serve` measure, show and watch by themselves.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Child;

use crate::support::{ANYWHERE, Place, ready, url_of};
use crate::tower::{console_in, in_time, metrics_in_time, until};

/// Starts a command with a console, and returns what it prints.
async fn start(place: &Place, args: &[&str]) -> (Child, String) {
    let args = [args, &["--console", ANYWHERE]].concat();
    let mut child = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    (child, said)
}

#[tokio::test]
async fn dev_takes_its_samples_and_shows_them() {
    let place = Place::new().await;
    place.job("mail", "send").await;
    let (_dev, said) = start(&place, &["dev", "--no-pastes"]).await;
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
async fn serve_watches_its_queue_and_sends_it_a_canary_that_its_worker_completes() {
    let place = Place::new().await;
    place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let args = ["serve", "--listen", ANYWHERE, "--store", store.to_str().unwrap()];
    let (_serve, said) = start(&place, &args).await;
    let done = "select count(*) from leasehold.finished_job \
                 where name = 'leasehold.canary' and queue = 'pastes'";
    until("a canary", async || place.number(done).await > 0).await;
    let watched = "select count(*) from leasehold.watch where queue = 'pastes' and not off";
    assert_eq!(place.number(watched).await, 1);
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
async fn without_an_index_nothing_is_expected_of_the_queue_of_annotations() {
    let place = Place::new().await;
    for service in ["pastes", "annotations"] {
        place.run(&["migrate", "up", "--service", service]).await.expect(0);
    }
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let listen = ["serve", "--listen", ANYWHERE, "--annotations-listen", ANYWHERE, "--store"];
    let (_serve, _) = start(&place, &[&listen[..], &[store.to_str().unwrap()]].concat()).await;
    let watched = "select count(*) from leasehold.watch where queue";
    assert_eq!(place.number(&format!("{watched} = 'pastes'")).await, 1);
    assert_eq!(place.number(&format!("{watched} = 'annotations'")).await, 0);
    // Both services would send their first canary at once. The one of pastes has completed by now;
    // one for annotations would still wait, because no worker takes it.
    let done = "select count(*) from leasehold.finished_job where queue = 'pastes'";
    until("a canary of pastes", async || place.number(done).await > 0).await;
    let waits = "select count(*) from leasehold.job where queue = 'annotations'";
    assert_eq!(place.number(waits).await, 0);
    let _ = std::fs::remove_dir_all(&store);
}
