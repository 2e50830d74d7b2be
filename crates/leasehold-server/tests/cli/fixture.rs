//! A database, the executable that works on it, and jobs in every state.

pub use leasehold_testing::program::{LIMIT, Ran};
use leasehold_testing::{TestDatabase, count, sql};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio_postgres::Client;

/// Returns the executable with a clean environment.
pub fn command(args: &[&str]) -> tokio::process::Command {
    leasehold_testing::program::command(env!("CARGO_BIN_EXE_leasehold"), args)
}

/// Waits until a long-running program prints `ready`. Returns the lines before it.
pub async fn ready(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut said = String::new();
    let reading = async {
        loop {
            let line = lines.next_line().await.expect("text").expect("ready before the end");
            if line == "ready" {
                return;
            }
            said.push_str(&line);
            said.push('\n');
        }
    };
    tokio::time::timeout(LIMIT, reading).await.expect("ready in time");
    said
}

/// Any free port; the program prints which one it got.
pub const FREE_PORT: &str = "127.0.0.1:0";

/// Finds the URL of a service in what a program printed before it was ready: `http://127.0.0.1:1234`.
pub fn url_of(service: &str, said: &str) -> String {
    let url = said.lines().find_map(|line| line.strip_prefix(service)).expect(service);
    url.trim().trim_end_matches('/').to_owned()
}

/// A database and the executable that works on it.
pub struct Fixture {
    pub database: TestDatabase,
    pub client: Client,
}

impl Fixture {
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.connect_directly().await;
        Self { database, client }
    }

    pub fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = command(args);
        command.env("DATABASE_URL", self.database.url());
        command
    }

    pub async fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args)).await
    }

    /// Enqueues a job.
    pub async fn job(&self, queue: &str, name: &str) -> i64 {
        let sql = "select job_id from leasehold.enqueue($1, '{\"n\":1}', $2)";
        self.client.query_one(sql, &[&name, &queue]).await.expect("a job").get(0)
    }

    /// Enqueues and claims a job; returns its id and lease generation.
    pub async fn running(&self, queue: &str, name: &str) -> (i64, i64) {
        self.job(queue, name).await;
        let sql =
            "select id, lease_generation from leasehold.claim('tester', $1, 1, names => array[$2])";
        let row = self.client.query_one(sql, &[&queue, &name]).await.expect("a claim");
        (row.get(0), row.get(1))
    }

    /// Enqueues, claims and buries a job.
    pub async fn dead(&self, queue: &str, name: &str, cause: &str) -> i64 {
        let (id, generation) = self.running(queue, name).await;
        let sql = "select leasehold.bury($1, $2, 'it hurts', $3)";
        assert!(
            self.client
                .query_one(sql, &[&id, &generation, &cause])
                .await
                .expect("a burial")
                .get::<_, bool>(0)
        );
        id
    }

    /// Enqueues, claims and completes a job.
    pub async fn completed(&self, queue: &str, name: &str) -> i64 {
        let (id, generation) = self.running(queue, name).await;
        self.client
            .query_one("select leasehold.complete($1::bigint, $2::bigint)", &[&id, &generation])
            .await
            .expect("an end");
        id
    }

    /// Keeps registered workers alive: a worker that was not seen for 30 s counts as dead.
    pub async fn keep_workers_alive(&self) {
        self.sql("update leasehold_internal.worker set last_seen_at = now() + interval '1 hour'")
            .await;
    }

    pub async fn count(&self, statement: &str) -> i64 {
        count(&self.client, statement).await
    }

    pub async fn sql(&self, statements: &str) {
        sql(&self.client, statements).await;
    }

    /// Returns the state of a job in `leasehold.jobs`.
    pub async fn state(&self, id: i64) -> String {
        self.client
            .query_one("select state from leasehold.jobs where id = $1", &[&id])
            .await
            .expect("the job")
            .get(0)
    }
}

/// Returns the ids in a JSON list of jobs.
pub fn ids(document: &Value) -> Vec<String> {
    let jobs = document["jobs"].as_array().expect("jobs");
    jobs.iter().map(|job| job["id"].as_str().expect("ids are text").to_owned()).collect()
}
