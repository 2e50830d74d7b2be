//! What a worker logs: the fields of the job, but not its arguments.

use leasehold_testing::TestDatabase;

use super::fixture::{Worker, enqueue, job_until};

#[tokio::test]
async fn h12_log_lines_have_fields_of_the_job_and_no_arguments() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let env = [("LEASEHOLD_LOG_FORMAT", "json"), ("LEASEHOLD_LOG", "info")];
    let mut worker = Worker::start_with(&database, &["--exec", "fails=false"], &env).await;
    let id = enqueue(&client, "fails", r#"{"password": "hunter2"}"#).await;
    job_until(&client, id, |row| row.attempts == 1 && row.is("waiting")).await;
    worker.says("failed, next in").await;
    let output = worker.output();
    let line = output.lines().find(|line| line.contains("failed, next in")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let span = &line["span"];
    assert_eq!((&span["job.id"], &span["job.attempt"]), (&id.into(), &1.into()), "{line}");
    assert_eq!((&span["job.name"], &span["job.queue"]), (&"fails".into(), &"default".into()));
    assert!(!output.contains("hunter2"), "{output}");
}

/// Returns the level and the message of the first line that contains `words`.
fn line(worker: &Worker, words: &str) -> (String, String) {
    let output = worker.output();
    let line = output.lines().find(|line| line.contains(words)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    (line["level"].as_str().unwrap().to_owned(), line["message"].as_str().unwrap().to_owned())
}

const JSON: [(&str, &str); 2] = [("LEASEHOLD_LOG_FORMAT", "json"), ("LEASEHOLD_LOG", "info")];
const FAILS: &str = "fails=sh -c 'echo no route to postgres://u:hunter2@db >&2; exit 1'";

#[tokio::test]
async fn a36_failed_attempt_is_a_warning_and_a_burial_an_error() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let mut worker = Worker::start_with(&database, &["--exec", FAILS], &JSON).await;
    enqueue(&client, "fails", "{}").await;
    worker.says("attempt 1 of 25 failed, next in").await;
    let (level, message) = line(&worker, "attempt 1 of 25 failed");
    assert_eq!(level, "WARN", "{message}");
    assert!(message.contains("no route to postgres://u:***@db"), "{message}");
    let last = "insert into leasehold.job (name, max_attempts) values ('fails', 1)";
    client.batch_execute(last).await.unwrap();
    worker.says("attempt 1 of 1 failed, the job is dead: ").await;
    assert_eq!(line(&worker, "attempt 1 of 1 failed").0, "ERROR");
    assert!(!worker.output().contains("hunter2"));
}

#[tokio::test]
async fn log_line_of_a_permanent_failure_names_its_cause() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let rejects = "rejects=sh -c 'echo no such user >&2; exit 65'";
    let mut worker = Worker::start_with(&database, &["--exec", rejects], &JSON).await;
    let id = enqueue(&client, "rejects", "{}").await;
    worker.says("the job is dead: ").await;
    let (level, message) = line(&worker, "the job is dead");
    let cause = "select cause from leasehold_internal.dead_job where id = $1";
    let cause: String = client.query_one(cause, &[&id]).await.unwrap().get(0);
    assert_eq!(level, "ERROR", "{message}");
    assert!(
        message.starts_with(&format!("attempt 1 of 25: {cause}, the job is dead: ")),
        "{message}"
    );
    assert!(message.contains("no such user"), "{message}");
}

#[tokio::test]
async fn h25_hidden_errors_are_in_no_line_and_in_no_row() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let args = ["--hide-errors", "--exec", FAILS];
    let mut worker = Worker::start_with(&database, &args, &JSON).await;
    let id = enqueue(&client, "fails", "{}").await;
    worker.says("attempt 1 of 25 failed, next in").await;
    assert!(!worker.output().contains("no route"), "{}", worker.output());
    job_until(&client, id, |row| row.attempts == 1 && row.is("waiting")).await;
    let kept = "select concat_ws(' ', j.*) from leasehold.job j";
    let kept: String = client.query_one(kept, &[]).await.unwrap().get(0);
    assert!(kept.contains("hides error texts") && !kept.contains("no route"), "{kept}");
}
