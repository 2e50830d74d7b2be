//! The sample of the README: its output, its length, and that the README shows this very file.

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
const MARK: &str = "<!-- sample: examples/first-job/src/main.rs -->";

#[tokio::test]
async fn the_first_job_of_a_newcomer_runs_on_an_empty_database() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client.batch_execute("drop schema leasehold cascade").await.expect("an empty database");
    let url = database.url();
    let run = tokio::task::spawn_blocking(move || {
        Command::new(env!("CARGO_BIN_EXE_first-job")).env("DATABASE_URL", url).output()
    });
    let run = tokio::time::timeout(std::time::Duration::from_secs(60), run);
    let output = run.await.expect("within a minute").expect("no panic").expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "sent to ada@example.com\n");
    let done = client.query("select name from leasehold.finished_job", &[]).await.expect("history");
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].get::<_, &str>(0), "email.send");
}

#[test]
fn the_first_job_takes_at_most_25_lines() {
    assert!(SAMPLE.lines().count() <= 25, "{} lines", SAMPLE.lines().count());
}

#[test]
fn the_readme_shows_the_sample_that_the_tests_run() {
    let (_, after) = README.split_once(MARK).expect("README.md has the mark of the sample");
    let code = after.trim_start().strip_prefix("```rust\n").expect("a Rust block follows the mark");
    let (code, _) = code.split_once("```\n").expect("the block ends");
    assert!(
        code == SAMPLE,
        "README.md differs from examples/first-job/src/main.rs: copy the file into it"
    );
}
