//! The SQL contract, called as any client would: one connection per actor, plain statements.
//!
//! Nothing here uses the Rust engine, so a test that fails here has found a mistake in SQL.

use std::time::{Duration, Instant};

use leasehold_testing::TestDatabase;
use tokio::task::JoinHandle;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Error};

/// A database and a connection to observe it.
pub struct Sql {
    pub database: TestDatabase,
    pub client: Client,
}

/// What one claim took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub generation: i64,
    pub ids: Vec<i64>,
}

pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Sql {
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.connect_directly().await;
        // Long enough that a lease ends when a test expires it, and not because the machine is slow.
        let long = "select leasehold_internal.queue_settings('default'); update leasehold_internal.queue set lease = '1 day'";
        run(&client, long).await;
        Self { database, client }
    }

    /// Opens one more connection: an actor of its own.
    pub async fn actor(&self) -> Client {
        self.database.connect_directly().await
    }

    pub async fn run(&self, sql: &str) {
        run(&self.client, sql).await;
    }

    pub async fn one<T: FromSqlOwned>(&self, sql: &str, params: Params<'_>) -> T {
        one(&self.client, sql, params).await
    }

    /// Enqueues `count` jobs of the name `note`, and returns their ids.
    pub async fn enqueue(&self, count: usize) -> Vec<i64> {
        let mut ids = Vec::new();
        for n in 0..count {
            let sql = format!("select job_id from leasehold.enqueue('note', '{{\"n\": {n}}}')");
            ids.push(self.one(&sql, &[]).await);
        }
        ids
    }

    /// Enqueues one job and claims it. Returns its id and the generation.
    pub async fn running(&self) -> (i64, i64) {
        let id = self.enqueue(1).await[0];
        let claim = claim(&self.client, "first", 1).await;
        assert_eq!(claim.ids, [id], "the only job there is");
        (id, claim.generation)
    }

    /// Lets a lease run out, without returning its jobs yet.
    pub async fn overdue(&self, generation: i64) {
        let sql = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second' \
                    where lease_generation = $1";
        assert_eq!(self.client.execute(sql, &[&generation]).await.unwrap(), 1);
    }

    /// Lets a lease run out and returns its jobs; waiting jobs are due at once.
    pub async fn expire(&self, generation: i64) {
        self.overdue(generation).await;
        self.run("select * from leasehold_internal.reclaim_leases()").await;
        self.due().await;
    }

    /// Makes every waiting job due.
    pub async fn due(&self) {
        self.run(
            "update leasehold.job set scheduled_at = now() - interval '1 second' where not held",
        )
        .await;
    }

    /// Returns the state of a job in `leasehold.jobs`, or `gone`.
    pub async fn state(&self, id: i64) -> String {
        let sql =
            "select coalesce(string_agg(state, ' and '), 'gone') from leasehold.jobs where id = $1";
        self.one(sql, &[&id]).await
    }

    pub async fn count(&self, table: &str) -> i64 {
        self.one(&format!("select count(*) from {}", qualified(table)), &[]).await
    }
}

pub async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {}", text(&error));
    }
}

/// Returns the first column of the only row.
pub async fn one<T: FromSqlOwned>(client: &Client, sql: &str, params: Params<'_>) -> T {
    match client.query_one(sql, params).await {
        Ok(row) => row.get(0),
        Err(error) => panic!("{sql}: {}", text(&error)),
    }
}

/// Returns the first column of every row.
pub async fn all<T: FromSqlOwned>(client: &Client, sql: &str, params: Params<'_>) -> Vec<T> {
    match client.query(sql, params).await {
        Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
        Err(error) => panic!("{sql}: {}", text(&error)),
    }
}

/// Claims from the queue `default` with the claim function of the SQL contract.
pub async fn claim(client: &Client, worker: &str, batch: i32) -> Claim {
    try_claim(client, worker, batch).await.expect("a claim")
}

pub async fn try_claim(client: &Client, worker: &str, batch: i32) -> Result<Claim, Error> {
    let sql = "select id, lease_generation from leasehold.claim($1, claim_size => $2)";
    let rows = client.query(sql, &[&worker, &batch]).await?;
    let mut ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    ids.sort_unstable();
    let generation = rows.first().map_or(0, |row| row.get(1));
    assert!(rows.iter().all(|row| row.get::<_, i64>(1) == generation), "one claim, one generation");
    Ok(Claim { generation, ids })
}

/// Returns the code and the text of the error that a statement must give.
pub async fn refused(client: &Client, sql: &str, params: Params<'_>) -> (String, String) {
    match client.query(sql, params).await {
        Ok(_) => panic!("not refused: {sql}"),
        Err(error) => (code(&error), text(&error)),
    }
}

pub fn code(error: &Error) -> String {
    error.code().map_or_else(|| "no code".to_owned(), |code| code.code().to_owned())
}

/// Returns message and hint.
pub fn text(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.message(), error.hint().unwrap_or_default()),
        None => format!("{error:?}"),
    }
}

pub async fn pid(client: &Client) -> i32 {
    one(client, "select pg_backend_pid()", &[]).await
}

/// No wait in these tests may take longer.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns when a backend waits for a lock. Panics when it never does.
pub async fn blocked(observer: &Client, pid: i32) {
    let sql =
        "select coalesce(wait_event_type = 'Lock', false) from pg_stat_activity where pid = $1";
    until(observer, sql, &[&pid]).await;
}

/// Returns when a query returns true. Panics when it never does.
pub async fn until(observer: &Client, sql: &str, params: Params<'_>) {
    let deadline = Instant::now() + TIMEOUT;
    while !one::<bool>(observer, sql, params).await {
        assert!(Instant::now() < deadline, "never true: {sql}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the result of a task that must end.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(TIMEOUT, task).await.expect("an end in time").expect("no panic")
}

/// Names a table or view of the engine with its schema.
pub fn qualified(table: &str) -> String {
    let public = [
        "job",
        "jobs",
        "audit",
        "queues",
        "workers",
        "limits",
        "schedules",
        "sweeps",
        "mirrors",
        "alarms",
    ];
    let schema = if public.contains(&table) { "leasehold" } else { "leasehold_internal" };
    format!("{schema}.{table}")
}
