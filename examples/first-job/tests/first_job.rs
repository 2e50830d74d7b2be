//! The samples of the README: their output, their length, and that the README shows these very files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::process::Command;

use leasehold_testing::TestDatabase;

const SAMPLE: &str = include_str!("../src/main.rs");
const README: &str = include_str!("../../../README.md");
const STAYS: &str = include_str!("../src/bin/mail-worker.rs");
const SHOWN: [(&str, &str); 2] = [
    ("examples/first-job/src/main.rs", SAMPLE),
    ("examples/first-job/src/bin/mail-worker.rs", STAYS),
];

#[tokio::test]
async fn first_job_runs_on_an_empty_database() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client
        .batch_execute("drop schema leasehold, leasehold_internal cascade")
        .await
        .expect("an empty database");
    let url = database.url();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(env!("CARGO_BIN_EXE_first-job")).env("DATABASE_URL", url).output()
    });
    let run = tokio::time::timeout(std::time::Duration::from_secs(60), run);
    let output = run.await.expect("within a minute").expect("no panic").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sent to ada@example.com\n");
    let done = client
        .query("select name from leasehold_internal.finished_job", &[])
        .await
        .expect("history");
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].get::<_, &str>(0), "email.send");
}

#[tokio::test]
async fn mail_worker_runs_until_sigterm() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let mut worker = Command::new(env!("CARGO_BIN_EXE_mail-worker"))
        .env("DATABASE_URL", database.url())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let enqueue = "select leasehold.enqueue('email.send', '{\"to\":\"ada@example.com\"}')";
    client.batch_execute(enqueue).await.expect("enqueued");
    let working = async {
        let done = "select from leasehold_internal.finished_job where outcome = 'completed'";
        while client.query(done, &[]).await.expect("history").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let worked = tokio::time::timeout(std::time::Duration::from_secs(60), working).await;
    let stop = Command::new("kill").args(["-TERM", &worker.id().to_string()]).status();
    assert!(stop.expect("kill").success());
    let ended = tokio::task::spawn_blocking(move || worker.wait()).await.expect("no panic");
    worked.expect("the job is completed within a minute");
    assert!(ended.expect("it ends").success());
}

#[test]
fn samples_have_at_most_25_lines() {
    for (path, sample) in SHOWN {
        assert!(sample.lines().count() <= 25, "{path}: {} lines", sample.lines().count());
    }
}

#[test]
fn readme_shows_the_tested_samples() {
    for (path, sample) in SHOWN {
        let mark = format!("<!-- sample: {path} -->");
        let (_, after) = README.split_once(&mark).expect("README.md has the mark of the sample");
        let code =
            after.trim_start().strip_prefix("```rust\n").expect("a Rust block follows the mark");
        let (code, _) = code.split_once("```\n").expect("the block ends");
        assert!(code == sample, "README.md differs from {path}: copy the file into it");
    }
}
