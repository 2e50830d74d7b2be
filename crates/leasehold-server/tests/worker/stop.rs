//! Stopping: a job that is cancelled, a worker that is stopped, a worker that is killed.

use leasehold_testing::TestDatabase;
use rustix::process::Signal;

use crate::fixture::{Folder, Worker, enqueue, job_until, look, runs, zombies_of};
use leasehold_testing::until;

/// Returns a command that writes the ids of itself and of a child, and waits for the child.
fn long(folder: &Folder, before: &str) -> String {
    let file = folder.file("pids");
    format!("long=sh -c '{before} sleep 1000 & echo $$ $! >{}; wait; wait'", file.display())
}

async fn pids(folder: &Folder) -> (String, String) {
    let pids = folder.read("pids").await;
    let (leader, child) = pids.split_once(' ').expect("two");
    (leader.to_owned(), child.to_owned())
}

#[tokio::test]
async fn cancelled_job_ends_its_whole_process_group() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("cancel"));
    let client = database.connect().await;
    let worker = Worker::start(&database, &["--exec", &long(&folder, "")]).await;
    let id = enqueue(&client, "long", "{}").await;
    let (leader, child) = pids(&folder).await;
    assert!(runs(&leader) && runs(&child));
    let answer: String = client
        .query_one("select leasehold.cancel($1, 'ann', 'enough')", &[&id])
        .await
        .expect("asked")
        .get(0);
    assert_eq!(answer, "cancel_requested");
    let row = job_until(&client, id, |row| row.is("cancelled")).await;
    assert!(row.error.contains("the command was stopped: its job was cancelled"), "{row:?}");
    until("the whole group has ended", async || !runs(&leader) && !runs(&child)).await;
    until("every child is reaped", async || zombies_of(worker.pid()) == 0).await;
}

#[tokio::test]
async fn command_that_ignores_sigterm_is_killed() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("deaf"));
    let client = database.connect().await;
    // Its child ignores the signal, too.
    let script = long(&folder, "trap : INT; trap \"\" TERM;");
    let worker = Worker::start(&database, &["--exec", &script]).await;
    let id = enqueue(&client, "long", "{}").await;
    let (leader, child) = pids(&folder).await;
    client.query_one("select leasehold.cancel($1, 'ann')", &[&id]).await.expect("asked");
    job_until(&client, id, |row| row.is("cancelled")).await;
    until("the whole group has ended", async || !runs(&leader) && !runs(&child)).await;
    until("every child is reaped", async || zombies_of(worker.pid()) == 0).await;
}

#[tokio::test]
async fn command_that_exits_0_on_sigterm_is_not_completed() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("polite"));
    let client = database.connect().await;
    let script = long(&folder, "trap \"exit 0\" TERM;");
    let mut worker = Worker::start(&database, &["--grace", "1ms", "--exec", &script]).await;
    let id = enqueue(&client, "long", "{}").await;
    pids(&folder).await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.success());
    let row = look(&client, id).await;
    assert!(row.is("waiting") && row.attempts == 0, "{row:?}");
}

#[tokio::test]
async fn stopped_worker_releases_its_job_without_an_attempt() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("sigterm"));
    let client = database.connect().await;
    let script = long(&folder, "trap \"\" TERM;");
    let mut worker = Worker::start(&database, &["--grace", "1ms", "--exec", &script]).await;
    let id = enqueue(&client, "long", "{}").await;
    let (leader, child) = pids(&folder).await;
    worker.signal(Signal::TERM);
    assert!(worker.ended().await.success(), "{}", worker.output());
    let row = look(&client, id).await;
    assert!(row.is("waiting") && row.attempts == 0 && row.error.is_empty(), "{row:?}");
    until("the whole group has ended", async || !runs(&leader) && !runs(&child)).await;
}

#[tokio::test]
async fn stopped_worker_finishes_running_jobs_and_claims_none() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("drain"));
    let client = database.connect().await;
    let (started, go) = (folder.file("started"), folder.file("go"));
    std::process::Command::new("mkfifo").arg(&go).status().expect("a pipe to wait on");
    let script = format!("slow=sh -c 'echo $$ >{}; cat {}'", started.display(), go.display());
    let mut worker = Worker::start(&database, &["--grace", "10m", "--exec", &script]).await;
    let running = enqueue(&client, "slow", "{}").await;
    folder.read("started").await;
    worker.signal(Signal::TERM);
    worker.says("stopping").await;
    let late = enqueue(&client, "slow", "{}").await;
    std::fs::write(&go, "").expect("the job may continue");
    assert!(worker.ended().await.success(), "{}", worker.output());
    assert!(look(&client, running).await.is("completed"));
    assert!(look(&client, late).await.is("waiting"));
}

#[tokio::test]
async fn second_signal_ends_the_grace_period() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("second-signal"));
    let client = database.connect().await;
    let mut worker =
        Worker::start(&database, &["--grace", "10m", "--exec", &long(&folder, "")]).await;
    let id = enqueue(&client, "long", "{}").await;
    pids(&folder).await;
    worker.signal(Signal::INT);
    worker.says("stopping").await;
    worker.signal(Signal::INT);
    assert!(worker.ended().await.success(), "{}", worker.output());
    let row = look(&client, id).await;
    assert!(row.is("waiting") && row.attempts == 0, "{row:?}");
}

#[tokio::test]
async fn commands_of_a_killed_worker_end() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("sigkill"));
    let client = database.connect().await;
    let mut worker = Worker::start(&database, &["--exec", &long(&folder, "")]).await;
    enqueue(&client, "long", "{}").await;
    let (leader, child) = pids(&folder).await;
    worker.signal(Signal::KILL);
    assert!(!worker.ended().await.success());
    until("the whole group has ended", async || !runs(&leader) && !runs(&child)).await;
}

#[tokio::test]
async fn processes_of_a_command_end_with_it() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("leftover"));
    let client = database.connect().await;
    let file = folder.file("pid");
    // The child holds standard output open, which must not hold the job up.
    let script = format!("spawn=sh -c 'sleep 1000 & echo $! >{}'", file.display());
    let _worker = Worker::start(&database, &["--exec", &script]).await;
    let id = enqueue(&client, "spawn", "{}").await;
    job_until(&client, id, |row| row.is("completed")).await;
    let child = folder.read("pid").await;
    until("the command has ended", async || !runs(&child)).await;
}
