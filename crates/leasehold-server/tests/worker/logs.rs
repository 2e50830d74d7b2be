//! What a worker logs: the fields of the job, and nothing of what it carries.

use leasehold_testing::TestDatabase;

use super::support::{Worker, enqueue, job_until};

#[tokio::test]
async fn h12_lines_about_a_job_carry_its_fields_and_not_its_arguments() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let env = [("LEASEHOLD_LOG_FORMAT", "json"), ("LEASEHOLD_LOG", "info")];
    let mut worker = Worker::start_with(&database, &["--exec", "fails=false"], &env).await;
    let id = enqueue(&client, "fails", r#"{"password": "hunter2"}"#).await;
    job_until(&client, id, |row| row.attempts == 1 && row.is("pending")).await;
    worker.says("the attempt failed").await;
    let output = worker.output();
    let line = output.lines().find(|line| line.contains("the attempt failed")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let span = &line["span"];
    assert_eq!((&span["job.id"], &span["job.attempt"]), (&id.into(), &1.into()), "{line}");
    assert_eq!((&span["job.name"], &span["job.queue"]), (&"fails".into(), &"default".into()));
    assert!(!output.contains("hunter2"), "{output}");
}
