//! `leasehold worker --database A --database B`.

use leasehold_testing::{TestDatabase, count, until};
use rustix::process::Signal;

use super::fixture::{Folder, Worker};
use super::metrics::{origin, scrape, value};

const DONE: &str = "select coalesce(sum(cardinality(job_ids)), 0) from leasehold_internal.history where outcome = 'completed'";

async fn enqueue(database: &TestDatabase, jobs: i64) {
    let sql =
        format!("select leasehold.enqueue('note', '{{\"n\":1}}') from generate_series(1, {jobs})");
    database.connect_directly().await.batch_execute(&sql).await.expect("enqueued");
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_worker_runs_jobs_of_several_databases_while_one_is_down() {
    let (eu, us) = (TestDatabase::new().await, TestDatabase::new().await);
    enqueue(&eu, 3).await;
    enqueue(&us, 2).await;
    let gone = "postgres://me:s3cret@127.0.0.1:1/gone";
    let databases = format!("eu={} us={} gone={gone}", eu.url(), us.url());
    let folder = Folder::new("fleet");
    let seen = folder.file("seen");
    let exec = format!("note=(cat; echo) >> {}", seen.display());
    let args = ["--shell", "--exec", &exec, "--metrics-listen", "127.0.0.1:0"];
    let mut worker = Worker::start_with(&eu, &args, &[("LEASEHOLD_DATABASES", &databases)]).await;
    for (database, jobs) in [(&eu, 3), (&us, 2)] {
        let client = database.connect_directly().await;
        until("its jobs are done", async || count(&client, DONE).await == jobs).await;
    }
    worker.says("fleet{database=\"gone\"}").await;
    let seen = std::fs::read_to_string(seen).expect("the jobs");
    assert_eq!(seen.matches("\"database\":\"eu\"").count(), 3, "{seen}");
    assert_eq!(seen.matches("\"database\":\"us\"").count(), 2, "{seen}");
    let url = origin(&worker);
    // A scrape waits for a database only briefly.
    until("two of three databases are up", async || {
        let families = scrape(&url).await;
        let up = |name| value(&families, "leasehold_database_up", &[("database", name)]);
        (up("eu"), up("us"), up("gone")) == (1.0, 1.0, 0.0)
    })
    .await;
    assert!(!worker.output().contains("s3cret"), "{}", worker.output());
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.success(), "{}", worker.output());
}
