//! Workers as separate processes: killed, stopped, crashed, terminated.

mod child;
mod killed;
mod poison;
mod stopped;

use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use leasehold_testing::TestDatabase;
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::Client;

use crate::fixture::{count, sql, until};

/// A worker process: this test program again, running only the worker.
pub struct Process {
    child: Child,
    /// When it closes, the process ends: it must not outlive the tests.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a worker of one kind; see [`child`].
    pub fn start(kind: &str, database: &TestDatabase, chaos: &str) -> Self {
        Self::run(
            "processes::child::process_worker_main",
            kind,
            database,
            &[("LEASEHOLD_CHAOS", chaos)],
        )
    }

    /// Starts this program again, with nothing but the test `main`.
    pub fn run(main: &str, kind: &str, database: &TestDatabase, more: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("our own path");
        let mut child = Command::new(program)
            .args(["--exact", main, "--nocapture"])
            .env("LEASEHOLD_TEST_PROCESS", kind)
            .env("LEASEHOLD_TEST_PROCESS_URL", database.direct_url())
            .envs(more.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        let stdin = child.stdin.take();
        Self { child, _stdin: stdin }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a pid");
        kill_process(pid, signal).expect("signalled");
    }

    /// Waits for its end, and returns its status.
    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", async || {
            status = self.child.try_wait().expect("waited");
            status.is_some()
        })
        .await;
        status.expect("an end")
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also kills a stopped process, which would not see its stdin close.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates the tables in which processes record what they do: only the database is shared.
pub async fn tables(client: &Client) {
    sql(
        client,
        "create table noted (what text, job bigint, generation bigint, at timestamptz default clock_timestamp()); \
         create table ledger (n bigint); \
         create table gate (is_open boolean)",
    )
    .await;
}

async fn noted(client: &Client, what: &str) -> i64 {
    count(client, &format!("select count(*) from noted where what = '{what}'")).await
}

/// Asserts that every held job has an open lease that names it, and that every open lease holds a job.
async fn assert_no_orphans(client: &Client) {
    let jobs = "select count(*) from leasehold.job j where j.held and not exists \
                (select from leasehold_internal.lease l where l.lease_generation = j.lease_generation \
                 and l.ended_at is null and j.id = any (l.job_ids))";
    assert_eq!(count(client, jobs).await, 0, "held jobs without a lease");
    let leases = "select count(*) from leasehold_internal.lease l where l.ended_at is null and not exists \
                  (select from leasehold.job j where j.held and j.lease_generation = l.lease_generation)";
    assert_eq!(count(client, leases).await, 0, "open leases without a job");
}
