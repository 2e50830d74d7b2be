//! The server crashes, or has no free connections.

use leasehold::{Enqueue, Finished, Leasehold};
use leasehold_testing::{PrivatePostgres, TestDatabase};
use rustix::process::{Pid, Signal, kill_process};

use super::load::Load;
use crate::fixture::{number, run, soon, until};
use crate::support::Note;

/// A private server with a producer and a worker.
struct Crashing {
    postgres: PrivatePostgres,
    database: TestDatabase,
    load: Load,
}

impl Crashing {
    async fn start() -> Self {
        let postgres = PrivatePostgres::throwaway().start().expect("a server");
        let database = TestDatabase::on(&postgres).await.expect("a database");
        let client = database.connect_directly().await;
        let load = Load::start(&client, &database.direct_url()).await;
        Self { postgres, database, load }
    }

    async fn settle(self) {
        let client = self.database.connect_directly().await;
        self.load.settle(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a9_server_that_crashes_again_and_again_loses_and_repeats_nothing() {
    let mut server = Crashing::start().await;
    for _ in 0..4 {
        server.load.progress().await;
        server.postgres.crash().expect("crashed");
        server.postgres.start_again().expect("recovered");
    }
    server.load.progress().await;
    server.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_one_backend_killed_with_9_costs_nothing_but_a_restart() {
    let mut server = Crashing::start().await;
    for _ in 0..3 {
        server.load.progress().await;
        let victim = server.database.connect_directly().await;
        let pid = number(&victim, "select pg_backend_pid()").await as i32;
        kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("killed");
        // Every session of the server ends with it.
        until("the server noticed", async || victim.batch_execute("select 1").await.is_err()).await;
    }
    server.load.progress().await;
    server.settle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_worker_without_a_connection_continues_when_one_is_free() {
    let options = PrivatePostgres::throwaway().set("max_connections", "16");
    let postgres = options.start().expect("a server");
    let database = TestDatabase::on(&postgres).await.expect("a database");
    let client = database.connect_directly().await;
    let engine = Leasehold::connect(&database.direct_url()).await.expect("an engine");
    let mut worker = run(engine.worker().queue("default", 2).handle(async |_: Note| {}));
    Note { n: 0 }.enqueue(&engine).await.expect("enqueued");
    assert_eq!(worker.next_end().await, Finished::Completed);
    // Terminate every session of the engine, and let others take their places.
    let ours = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                where application_name = 'leasehold'";
    let crowd = soon(async {
        let mut crowd = Vec::new();
        loop {
            match database.direct_config().connect(tokio_postgres::NoTls).await {
                Ok((one, connection)) => crowd.push((one, tokio::spawn(connection))),
                Err(full) => {
                    assert_eq!(full.code().map(|code| code.code()), Some("53300"), "{full:?}");
                    // The engine's last session has freed its place, or will in a moment: fill that
                    // one too.
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
