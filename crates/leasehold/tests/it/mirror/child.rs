//! A process that saves a note and is killed before its store has it. The test binary starts itself as
//! the child; without the child's variable this test returns at once.

use std::io::Read;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testing::ScriptedTarget;
use tokio_postgres::types::Type;

use super::fixture::notes;

pub const MAIN: &str = "mirror::child::process_saver_main";

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

#[expect(clippy::exit, reason = "a process of its own ends here")]
#[test]
fn process_saver_main() {
    let Ok(kind) = std::env::var("LEASEHOLD_TEST_PROCESS") else { return };
    let url = std::env::var("LEASEHOLD_TEST_PROCESS_URL").expect("a database");
    // The parent process holds stdin open: when it ends, this process ends, too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(9);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(save(&kind, &url));
    std::process::exit(0);
}

/// Saves a note named after the process kind, and waits for a store that never responds.
async fn save(kind: &str, url: &str) {
    let engine = Leasehold::connect(url).await.expect("an engine");
    let target = ScriptedTarget::new();
    target.faults(|faults| faults.slow = Some(FOR_EVER));
    let mirror = notes(&target).limit(FOR_EVER).without_check();
    let direct = mirror.direct_writer(&engine);
    record(&engine, "insert into margin.note (id) values ($1)", kind).await;
    direct.changed([kind]);
    let recorder = engine.clone();
    tokio::spawn(async move {
        while target.log().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        record(&recorder, "insert into margin.said values ($1)", "at the store").await;
    });
    if kind == "saves-and-works" {
        let worker = engine.worker().mirror(mirror).poll_every(Duration::from_millis(20));
        worker
            .without_housekeeping()
            .run_until(std::future::pending::<()>())
            .await
            .expect("a worker");
    }
    std::future::pending::<()>().await;
}

async fn record(engine: &Leasehold, sql: &str, what: &str) {
    let client = engine.pool().get().await.expect("a connection");
    client.query_typed(sql, &[(&what, Type::TEXT)]).await.expect("recorded");
}
