//! The server itself crashes, or has no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, Finished, JobResult, Leasehold};
use leasehold_testing::{PrivatePostgres, TestDatabase};
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::types::Type;

use crate::rig::{Running, completed, count, jobs, number, queue_settings, run, soon, sql, until};
use crate::support::Note;

async fn into_ledger(job: Note, tx: JobTx, ctx: Ctx) -> JobResult {
    tx.query_typed(
        "insert into ledger values ($1, $2)",
        &[(&job.n, Type::INT8), (&ctx.generation().0, Type::INT8)],
    )
    .await?;
    tx.complete().await
}

/// A server of our own with a producer and a worker on it.
struct Load {
    postgres: PrivatePostgres,
    database: TestDatabase,
    worker: Running,
    go_on: Arc<AtomicBool>,
    stored: Arc<AtomicI64>,
    producer: tokio::task::JoinHandle<()>,
}

impl Load {
    async fn start() -> Self {
        let postgres = PrivatePostgres::throwaway().start().expect("a server");
        let database = TestDatabase::on(&postgres).await.expect("a database");
        let client = database.connect_directly().await;
        sql(&client, "create table ledger (n bigint, generation bigint)").await;
        queue_settings(&client, super::SHORT_LEASES).await;
        let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
        let worker = run(engine.worker().queue("default", 16).handle(into_ledger));
        let (go_on, stored) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicI64::new(0)));
        let (producing, count) = (Arc::clone(&go_on), Arc::clone(&stored));
        let producer = tokio::spawn(async move {
            let mut n = 0;
            while producing.load(Ordering::SeqCst) {
                let draft = Note { n }.with().expect("a draft").key(format!("note {n}"));
                // Stored or not: the key makes it safe to ask again until we know.
                while draft.clone().enqueue(&engine).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                n += 1;
                count.store(n, Ordering::SeqCst);
            }
        });
        Self { postgres, database, worker, go_on, stored, producer }
    }

    /// Waits for so many more stored and finished jobs.
    async fn progress(&mut self) {
        let before = self.stored.load(Ordering::SeqCst);
        until("more jobs are stored", async || self.stored.load(Ordering::SeqCst) > before + 30)
            .await;
        self.worker.finished(30).await;
    }

    /// Stops producing, waits until everything is done and counts.
    async fn settle(self) {
        self.go_on.store(false, Ordering::SeqCst);
        self.producer.await.expect("no panic");
        let stored = self.stored.load(Ordering::SeqCst);
        let client = self.database.connect_directly().await;
        until("all done", async || jobs(&client).await == 0).await;
        self.worker.stop().await;
        println!("{stored} jobs");
        assert_eq!(completed(&client).await, stored);
        assert_eq!(count(&client, "select count(*) from ledger").await, stored);
        assert_eq!(count(&client, "select count(distinct n) from ledger").await, stored);
        assert_eq!(count(&client, "select count(*) from leasehold.dead_job").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a9_a_server_that_crashes_again_and_again_loses_and_repeats_nothing() {
    let mut load = Load::start().await;
    for _ in 0..4 {
        load.progress().await;
        load.postgres.crash().expect("crashed");
        load.postgres.start_again().expect("recovered");
    }
    load.progress().await;
    load.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_one_backend_killed_with_9_costs_nothing_but_a_restart() {
    let mut load = Load::start().await;
    for _ in 0..3 {
        load.progress().await;
        let victim = load.database.connect_directly().await;
        let pid = number(&victim, "select pg_backend_pid()").await as i32;
        kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("killed");
        // Every session of the server ends with it.
        until("the server noticed", async || victim.batch_execute("select 1").await.is_err()).await;
    }
    load.progress().await;
    load.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_a_worker_that_gets_no_connection_comes_back_when_there_is_room() {
    let options = PrivatePostgres::throwaway().set("max_connections", "16");
    let postgres = options.start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let mut worker = run(engine.worker().queue("default", 2).handle(async |_: Note| {}));
    Note { n: 0 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Completed);
    // Everybody is sent away and others take their places.
    let ours = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where application_name = 'leasehold'";
    let crowd = soon(async {
        let mut crowd = Vec::new();
        loop {
            match database.direct_config().connect(tokio_postgres::NoTls).await {
                Ok((one, connection)) => crowd.push((one, tokio::spawn(connection))),
                Err(full) => {
                    assert_eq!(full.code().map(|code| code.code()), Some("53300"), "{full:?}");
                    // The last of ours made room, or will in a moment: fill its place too.
                    let gone = number(&client, ours).await == 0;
                    let job = Note { n: 1 };
                    if gone && job.enqueue(&engine).await.is_err() {
                        break crowd;
                    }
                }
            }
        }
    })
    .await;
    drop(crowd);
    until("there is room", async || Note { n: 2 }.enqueue(&engine).await.is_ok()).await;
    assert_eq!(worker.next_end().await, Finished::Completed);
    worker.stop().await;
}
