//! Two services on one index in a directory: one writes, and the other takes over when it is killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_testing::until;
use serde_json::{Value, json};
use tokio::process::Child;

use super::fixture::{FREE_PORT, Fixture, LIMIT, ready, url_of};

/// A folder for the index, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("lh-two-{}", uuid::Uuid::new_v4().simple());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running {
    child: Child,
    url: String,
    said: String,
}

async fn serve(fixture: &Fixture, folder: &Path, args: &[&str]) -> Running {
    let first = ["serve", "--no-console", "--annotations-listen", FREE_PORT, "--annotations-index"];
    let args = [&first[..], &[folder.to_str().unwrap()], args].concat();
    let mut child = fixture.command(&args).stderr(Stdio::inherit()).spawn().unwrap();
    let said = ready(&mut child).await;
    Running { child, url: url_of("annotations", &said), said }
}

impl Running {
    /// Saves a note; returns its id.
    async fn save(&self, token: &str, words: &str) -> String {
        let note =
            json!({ "target": { "source": "https://example.com/" }, "body": [{ "value": words }] });
        let asked = leasehold_testing::http::client()
            .post(format!("{}/api/annotations", self.url))
            .bearer_auth(token.trim())
            .json(&note);
        let saved = asked.send().await.unwrap();
        assert_eq!(saved.status(), 201);
        let saved: Value = saved.json().await.unwrap();
        saved["id"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()
    }

    /// Returns whether the index, and not Postgres in its fixture, finds a word for a user who saved
    /// nothing.
    async fn finds(&self, word: &str) -> bool {
        let asked = leasehold_testing::http::get(format!("{}/api/search?q={word}", self.url))
            .await
            .unwrap();
        let found: Value = asked.json().await.unwrap();
        found["index"] == "ok" && found["rows"].as_array().is_some_and(|rows| rows.len() == 1)
    }

    async fn will_find(&self, word: &str) {
        until(&format!("{word} is found"), async || self.finds(word).await).await;
    }
}

/// Starts two services and kills the first one.
async fn takes_over(folder: &Path, args: &[&str]) -> (Fixture, Running, String) {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let token = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    // Started first, but only reads: it must not keep the processes with a worker from writing.
    let asking = serve(&fixture, folder, &[args, &["--no-worker"]].concat()).await;
    let mut first = serve(&fixture, folder, args).await;
    assert!(first.said.contains("keeps the search index equal"), "{}", first.said);
    let second = serve(&fixture, folder, args).await;
    assert!(second.said.contains("waits for its turn"), "{}", second.said);

    first.save(&token, "early").await;
    for running in [&first, &second, &asking] {
        running.will_find("early").await;
    }
    first.child.start_kill().unwrap();
    first.child.wait().await.unwrap();
    let id = second.save(&token, "late").await;
    second.will_find("late").await;
    // A process that only reads follows the one that writes.
    asking.will_find("late").await;
    second.will_find("early").await;
    (fixture, second, id)
}

/// Returns whether the job of a note has completed.
async fn is_worked(fixture: &Fixture, id: &str) -> bool {
    let sql = format!(
        "select count(*) from leasehold_internal.finished_job \
          where name = 'index' and kwargs->>'annotation_id' = '{id}'"
    );
    fixture.count(&sql).await > 0
}

#[tokio::test]
async fn second_process_takes_over_index_jobs_of_a_killed_one() {
    let args = ["--annotations-direct=no", "--annotations-verify-after=1s"];
    let folder = Folder::new();
    let (fixture, _second, id) = takes_over(&folder.0, &args).await;
    // By its job: direct writes are off.
    until("the job of the note has completed", async || is_worked(&fixture, &id).await).await;
}

#[tokio::test]
async fn second_process_takes_over_direct_writes_of_a_killed_one() {
    let args = ["--annotations-direct=yes", "--annotations-verify-after=1h"];
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "up", "--service", "annotations"]).await.expect(0);
    let token = fixture.run(&["annotations", "users", "add", "sophia"]).await.expect(0).stdout;
    let folder = Folder::new();
    let mut first = serve(&fixture, &folder.0, &args).await;
    let second = serve(&fixture, &folder.0, &args).await;
    first.child.start_kill().unwrap();
    first.child.wait().await.unwrap();
    // Save until the second process has noticed that the first is gone. From then on the index finds
    // each note at once, before its job ran. Notes saved earlier are found by the check and written
    // by their jobs.
    let saving = async {
        let mut number = 0;
        loop {
            number += 1;
            let word = format!("word{number}");
            let id = second.save(&token, &word).await;
            for _ in 0..10 {
                if second.finds(&word).await && !is_worked(&fixture, &id).await {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    assert!(tokio::time::timeout(LIMIT, saving).await.is_ok(), "nothing is written directly");
}
