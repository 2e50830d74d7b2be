//! An engine for one test, with a clock that the test moves.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use leasehold::{Enqueue, Job, JobError};
//! # use leasehold_testing::TestEngine;
//! # #[derive(Debug, Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "email.send")]
//! # struct SendEmail { to: String }
//! # async fn sign_up(_: &mut tokio_postgres::Client, _: &str) {}
//! # async fn send_email(_: SendEmail) -> Result<(), JobError> { Ok(()) }
//! # async fn test() {
//! let t = TestEngine::new().await;
//! sign_up(&mut t.client().await, "ada@example.com").await; // your code, which enqueues
//!
//! let found = t.assert_enqueued::<SendEmail>(|job| job.to == "ada@example.com").await;
//! t.perform(send_email, found.job).await.assert_done(); // one handler, alone
//!
//! t.crash_worker().await; // a worker claimed the job and died
//! let counts = t.drain(t.worker().handle(send_email)).await; // everything that is due
//! assert_eq!(counts.completed, 1);
//!
//! t.advance(Duration::from_secs(3600)).await; // retries, delays, schedules: an hour later
//! # }
//! ```
//!
//! # Invariants
//! - Time moves by moving rows: the clock of Postgres is not changed, so nothing has to be mocked.
//! - The engine's own code recovers what a crashed worker held.
//!
//! # What can go wrong
//! - A worker that runs while the test moves time may lose its lease, as it would after a long pause.

#![allow(clippy::panic, reason = "what a test asks for and does not get ends it")]

use std::time::Duration;

use leasehold::housekeeping::HousekeepingConfig;
use leasehold::worker::WorkerBuilder;
use leasehold::{FinishedCounts, JobId, Leasehold};
use tokio_postgres::Client;

use crate::TestDatabase;

/// A drain that takes longer fails the test.
const LIMIT: Duration = Duration::from_secs(180);

/// A database and an engine on it, for one test.
pub struct TestEngine {
    // Before the database: it is dropped first, and closes its connections.
    engine: Leasehold,
    database: TestDatabase,
}

impl TestEngine {
    /// Creates a fresh, migrated database and an engine on it. Panics on failure.
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        match Leasehold::connect(&database.url()).await {
            Ok(engine) => Self { engine, database },
            Err(error) => panic!("no engine on test database {}: {error}", database.name()),
        }
    }

    pub fn engine(&self) -> &Leasehold {
        &self.engine
    }

    pub fn database(&self) -> &TestDatabase {
        &self.database
    }

    /// Opens another connection, for the code under test and for queries of the test.
    pub async fn client(&self) -> Client {
        self.database.connect().await
    }

    /// Returns a worker that polls every 10 ms; add handlers and [`drain`](Self::drain) it.
    pub fn worker(&self) -> WorkerBuilder<()> {
        hasty(self.engine.worker())
    }

    /// Like [`worker`](Self::worker), with state for the handlers.
    pub fn worker_with<S: Send + Sync + 'static>(&self, state: S) -> WorkerBuilder<S> {
        hasty(self.engine.worker_with(state))
    }

    /// Runs the worker until nothing is due, and returns how the attempts ended. Jobs that failed, or
    /// were snoozed or deferred, wait for their time: [`advance`](Self::advance), then drain again.
    pub async fn drain<S: Send + Sync + 'static>(
        &self,
        worker: WorkerBuilder<S>,
    ) -> FinishedCounts {
        match tokio::time::timeout(LIMIT, worker.run_until_idle()).await {
            Ok(Ok(tally)) => tally,
            Ok(Err(error)) => panic!("the worker failed: {error}"),
            Err(_) => panic!(
                "work is still due after {} s; waiting: {}",
                LIMIT.as_secs(),
                self.describe_waiting().await
            ),
        }
    }

    /// Lets `time` pass: every stored moment moves into the past.
    pub async fn advance(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let mut client = self.database.connect_directly().await;
        let moved = async {
            let transaction = client.transaction().await?;
            for (table, columns) in MOMENTS {
                let columns: Vec<String> = columns
                    .iter()
                    .map(|column| format!("{column} = {column} - make_interval(secs => {seconds})"))
                    .collect();
                let sql = format!("update {table} set {}", columns.join(", "));
                transaction.batch_execute(&sql).await?;
            }
            transaction.commit().await
        };
        if let Err(error) = moved.await {
            panic!("time could not be moved: {}", describe(&error));
        }
    }

    /// Claims everything that is due, as a worker that then dies: its leases have expired, and what
    /// it did is unknown. Returns the jobs that it held. A worker that drains afterwards finds them
    /// as it would after a real crash. A job that was lost before waits a little before it is due
    /// again.
    pub async fn crash_worker(&self) -> Vec<JobId> {
        let client = self.database.connect_directly().await;
        let crashed = async {
            let mut held = Vec::new();
            let queues = client.query("select distinct queue from leasehold.job", &[]).await?;
            for queue in &queues {
                let queue: String = queue.get(0);
                let sql = "select id from leasehold.claim('crashed', $1, claim_size => 1000)";
                loop {
                    let claimed = client.query(sql, &[&queue]).await?;
                    if claimed.is_empty() {
                        break;
                    }
                    held.extend(claimed.iter().map(|row| JobId(row.get(0))));
                }
            }
            // All at once, at the end: the next claim would reclaim expired leases.
            let over = "update leasehold_internal.lease \
                           set lease_expires_at = statement_timestamp() - interval '1 second' \
                         where claimed_by = 'crashed' and ended_at is null";
            client.execute(over, &[]).await?;
            Ok(held)
        };
        match crashed.await {
            Ok(held) => held,
            Err(error) => panic!("no worker could be crashed: {}", describe(&error)),
        }
    }
}

fn describe(error: &tokio_postgres::Error) -> String {
    leasehold::error::describe(error)
}

/// Every stored moment that code depends on or that operators see.
const MOMENTS: &[(&str, &[&str])] = &[
    ("leasehold.job", &["enqueued_at", "scheduled_at", "expires_at"]),
    ("leasehold_internal.lease", &["claimed_at", "lease_expires_at", "ended_at"]),
    ("leasehold_internal.dead_job", &["enqueued_at", "scheduled_at", "expires_at", "died_at"]),
    ("leasehold_internal.history", &["finished_at"]),
    ("leasehold_internal.idempotency_key", &["holds_until", "created_at", "recheck_at"]),
    ("leasehold_internal.once_marker", &["started_at", "finished_at", "keep_until"]),
    ("leasehold_internal.worker", &["started_at", "last_seen_at", "draining_since", "stopped_at"]),
    (
        "leasehold_internal.schedule",
        &["next_slot", "last_slot", "paused_at", "last_declared_at", "moved_at"],
    ),
    (
        "leasehold_internal.sweep",
        &[
            "next_run_at",
            "run_started_at",
            "run_ended_at",
            "watchdog_ran_at",
            "paused_at",
            "due_counted_at",
            "claims_counted_at",
            "oldest_claim_at",
        ],
    ),
    ("leasehold_internal.sweep_failure", &["failed_at", "retry_at", "dead_at"]),
    ("leasehold_internal.duty", &["ran_at"]),
    ("leasehold_internal.server_start", &["since"]),
    ("leasehold_internal.queue", &["paused_at"]),
    (
        "leasehold_internal.mirror",
        &[
            "rebuild_started_at",
            "rebuild_ended_at",
            "check_due_at",
            "check_busy_until",
            "round_started_at",
            "compared_at",
            "oldest_difference",
            "equal_as_of",
            "adopted_at",
        ],
    ),
    ("leasehold_internal.mirror_gone", &["gone_at"]),
    ("leasehold_internal.mirror_difference", &["first_seen", "last_seen", "repaired_at"]),
    ("leasehold_internal.tally", &["at"]),
    ("leasehold_internal.watch", &["since"]),
    (
        "leasehold_internal.alarm",
        &[
            "raised_at",
            "cleared_at",
            "seen_at",
            "acknowledged_at",
            "silenced_until",
            "notified_at",
            "delivered_at",
        ],
    ),
    ("leasehold_internal.alarm_receiver", &["seen_at"]),
];

/// Returns whether [`TestEngine::advance`] moves a column, such as `job.scheduled_at`.
pub fn moves(column: &str) -> bool {
    MOMENTS.iter().any(|(table, columns)| {
        column
            .strip_prefix(table)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|name| columns.contains(&name))
    })
}

fn hasty<S: Send + Sync + 'static>(worker: WorkerBuilder<S>) -> WorkerBuilder<S> {
    let tidying = HousekeepingConfig::default().reclaim_every(Duration::from_millis(20));
    worker.name("test").poll_every(Duration::from_millis(10)).housekeeping(tidying)
}
