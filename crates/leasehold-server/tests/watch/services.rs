//! `leasehold dev` and `leasehold serve` measure, show and watch by themselves.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Child;

use crate::support::{Place, free_address, ready};
use crate::tower::{console_in, until};

/// Starts a command and gives the address of its console.
async fn start(place: &Place, args: &[&str]) -> (Child, String) {
    let args = [args, &["--console", "127.0.0.1:0"]].concat();
    let mut child = place.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let url = console_in(&ready(&mut child).await);
    (child, url)
}

#[tokio::test]
async fn dev_takes_its_samples_and_shows_them() {
    let place = Place::new().await;
    place.job("mail", "send").await;
    let (_dev, url) = start(&place, &["dev", "--no-pastes"]).await;
    let overview = async || -> Value {
        reqwest::get(format!("{url}/console/api/overview")).await.unwrap().json().await.unwrap()
    };
    until("a sample", async || !overview().await["sampled_at"].is_null()).await;
    assert_eq!(overview().await["queues"][0]["name"], "mail");
    let metrics = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
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
    let listen = free_address();
    let args = ["serve", "--listen", &listen, "--store", store.to_str().unwrap()];
    let (_serve, url) = start(&place, &args).await;
    let done = "select count(*) from leasehold.finished_job \
                 where name = 'leasehold.canary' and queue = 'pastes'";
    until("a canary", async || place.number(done).await > 0).await;
    let watched = "select count(*) from leasehold.watch where queue = 'pastes' and not off";
    assert_eq!(place.number(watched).await, 1);
    let page = reqwest::get(format!("{url}/console")).await.unwrap();
    assert_eq!(page.status(), 200);
    // The address of the service itself does not lead there.
    let public = reqwest::get(format!("http://{listen}/metrics")).await.unwrap();
    assert_eq!(public.status(), 404);
    std::fs::remove_dir_all(&store).unwrap();
}

#[tokio::test]
async fn without_an_index_nothing_is_expected_of_the_queue_of_annotations() {
    let place = Place::new().await;
    for service in ["pastes", "annotations"] {
        place.run(&["migrate", "up", "--service", service]).await.expect(0);
    }
    let store = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let (pastes, notes) = (free_address(), free_address());
    let listen = ["serve", "--listen", &pastes, "--annotations-listen", &notes, "--store"];
    let (_serve, _) = start(&place, &[&listen[..], &[store.to_str().unwrap()]].concat()).await;
    let watched = "select count(*) from leasehold.watch where queue";
    assert_eq!(place.number(&format!("{watched} = 'pastes'")).await, 1);
    assert_eq!(place.number(&format!("{watched} = 'annotations'")).await, 0);
    // Both send their first canary at once, and this one has been enqueued, claimed and completed. One
    // that nobody takes would lie there.
    let done = "select count(*) from leasehold.finished_job where queue = 'pastes'";
    until("a canary of pastes", async || place.number(done).await > 0).await;
    let waits = "select count(*) from leasehold.job where queue = 'annotations'";
    assert_eq!(place.number(waits).await, 0);
    std::fs::remove_dir_all(&store).unwrap();
}
