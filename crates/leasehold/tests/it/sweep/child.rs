//! A sweeping process: a test of this program that returns at once, unless it was started as a worker.

use std::io::Read;
use std::time::Duration;

use leasehold::sweep::{ClaimedRows, When};
use leasehold::{JobError, Leasehold};
use tokio_postgres::types::Type;

use super::fixture::loans;

pub const MAIN: &str = "sweep::child::process_sweeper_main";

#[expect(clippy::exit, reason = "a worker process ends here")]
#[test]
fn process_sweeper_main() {
    let Ok(kind) = std::env::var("LEASEHOLD_TEST_PROCESS") else { return };
    let url = std::env::var("LEASEHOLD_TEST_PROCESS_URL").expect("a database");
    // The parent process holds stdin open: when it ends, this process ends, too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(9);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(sweep(&kind, &url));
    std::process::exit(0);
}

async fn sweep(kind: &str, url: &str) {
    let engine = Leasehold::connect(url).await.expect("an engine");
    let sweep = loans().claim_size(1000).when(When::continuous(Duration::from_millis(20)));
    let recorder = engine.clone();
    let sweep = match kind {
        // Finishes 400 of its rows, and then hangs.
        "400-of-1000" => sweep.handle(move |batch| {
            let engine = recorder.clone();
            async move {
                let first: Vec<_> = batch.keys().iter().take(400).collect();
                batch.finish(&first).await?;
                say(&engine, "400 are done").await;
                std::future::pending().await
            }
        }),
        // Holds its batch until the test opens the door.
        "waits" => sweep.handle(move |batch| wait_for_door(recorder.clone(), batch)),
        // The claim itself waits in Postgres, with the gate held.
        #[cfg(feature = "redis")]
        "claims-slowly" => {
            let redis = std::env::var("LEASEHOLD_TEST_REDIS").expect("an address");
            sweep
                .due("ends_at < statement_timestamp() and library.dawdle()")
                .gate(leasehold::sweep::Gate::redis(&redis).expect("a gate"))
        }
        other => panic!("no such kind of process: {other}"),
    };
    let worker = engine.worker().sweep(sweep).poll_every(Duration::from_millis(20));
    let mut events = worker.events().subscribe();
    let recorder = engine.clone();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            say(&recorder, &format!("{event:?}")).await;
        }
    });
    worker.without_housekeeping().run_until(std::future::pending::<()>()).await.expect("a worker");
}

async fn wait_for_door(engine: Leasehold, _batch: ClaimedRows) -> Result<(), JobError> {
    let client = engine.pool().get().await?;
    say(&engine, "waiting").await;
    while client.query_typed("select from library.door", &[]).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn say(engine: &Leasehold, what: &str) {
    let client = engine.pool().get().await.expect("a connection");
    let sql = "insert into library.said values ($1)";
    client.query_typed(sql, &[(&what, Type::TEXT)]).await.expect("said");
}
