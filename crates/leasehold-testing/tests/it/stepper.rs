use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_testing::TestDatabase;
use leasehold_testing::stepper::{Run, Script, Stepper, StepperError};
use tokio_postgres::Client;

const SETUP: &str = "drop table if exists t; create table t (id int8 primary key, n int8);
                     insert into t values (1, 0), (2, 0)";

async fn stepper() -> (TestDatabase, Stepper) {
    let database = TestDatabase::new().await;
    let stepper = Stepper::new(database.direct_config());
    (database, stepper)
}

async fn n(client: &Client) -> i64 {
    client.query_one("select n from t where id = 1", &[]).await.unwrap().get(0)
}

/// Reads, adds one in the program, writes: the classic lost update.
fn read_then_write(name: &str, read: &'static str) -> Script {
    let seen = Arc::new(AtomicI64::new(0));
    let written = seen.clone();
    Script::new(name)
        .sql("begin")
        .step("read", move |client| {
            let seen = seen.clone();
            async move {
                seen.store(client.query_one(read, &[]).await?.get(0), Ordering::SeqCst);
                Ok(())
            }
        })
        .step("write", move |client| {
            let next = written.load(Ordering::SeqCst) + 1;
            async move {
                client.execute("update t set n = $1 where id = 1", &[&next]).await?;
                Ok(())
            }
        })
        .sql("commit")
}

async fn both_count(client: &Client, _: &Run) -> Result<(), String> {
    match n(client).await {
        2 => Ok(()),
        other => Err(format!("n is {other}")),
    }
}

#[tokio::test]
async fn read_then_write_loses_an_increment() {
    let (_database, stepper) = stepper().await;
    let read = "select n from t where id = 1";
    let seen = stepper
        .explore(
            || vec![read_then_write("a", read), read_then_write("b", read)],
            async |client| client.batch_execute(SETUP).await.unwrap(),
            both_count,
        )
        .await
        .unwrap();
    // Both scripts read before either commits, except in orders in which one ends before the other
    // reads.
    assert!(seen.failed > 0 && seen.failed < seen.orders, "{seen:?}");
    assert!(seen.waited > 0, "writers of one row wait for each other");
    assert_eq!((seen.deadlocks, seen.diverged), (0, 0));
    let first = seen.failures[0].run.to_string();
    assert!(first.contains("a: read") && first.contains("b: write"), "{first}");
    assert!(std::panic::catch_unwind(|| seen.assert_all_held()).is_err());
}

#[tokio::test]
async fn locked_read_loses_no_increment() {
    let (_database, stepper) = stepper().await;
    let read = "select n from t where id = 1 for update";
    let seen = stepper
        .explore(
            || vec![read_then_write("a", read), read_then_write("b", read)],
            async |client| client.batch_execute(SETUP).await.unwrap(),
            both_count,
        )
        .await
        .unwrap();
    seen.assert_all_held();
    assert!(seen.waited > 0);
}

#[tokio::test]
async fn independent_scripts_run_in_every_order_without_waiting() {
    let (_database, stepper) = stepper().await;
    let script = |name: &str, id: i64| {
        Script::new(name).transaction(&[&format!("update t set n = n + 1 where id = {id}")])
    };
    let seen = stepper
        .explore(
            || vec![script("a", 1), script("b", 2)],
            async |client| client.batch_execute(SETUP).await.unwrap(),
            async |_, run| match run.outcome("a", 1) {
                Ok(answer) if answer.affected == 1 => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await
        .unwrap();
    seen.assert_all_held();
    assert_eq!((seen.orders, seen.waited), (20, 0));
}

#[tokio::test]
async fn deadlock_is_a_result_of_a_step() {
    let (_database, stepper) = stepper().await;
    let lock = |id: i64| format!("update t set n = n + 1 where id = {id}");
    let seen = stepper
        .explore(
            || {
                vec![
                    Script::new("up").transaction(&[&lock(1), &lock(2)]),
                    Script::new("down").transaction(&[&lock(2), &lock(1)]),
                ]
            },
            async |client| client.batch_execute(SETUP).await.unwrap(),
            async |client, run| {
                let ended =
                    u8::from(run.error("up").is_none()) + u8::from(run.error("down").is_none());
                match (n(client).await, ended) {
                    (1, 1) | (2, 2) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            },
        )
        .await
        .unwrap();
    seen.assert_all_held();
    assert!(seen.deadlocks > 0, "{seen:?}");
}

#[tokio::test]
async fn three_scripts_queue_at_one_row() {
    let (_database, stepper) = stepper().await;
    let script =
        |name: &str| Script::new(name).transaction(&["update t set n = n + 1 where id = 1"]);
    let seen = stepper
        .explore(
            || {
                vec![
                    script("a"),
                    script("b"),
                    Script::new("c").sql("update t set n = n + 1 where id = 1"),
                ]
            },
            async |client| client.batch_execute(SETUP).await.unwrap(),
            async |client, _| match n(client).await {
                3 => Ok(()),
                other => Err(format!("n is {other}")),
            },
        )
        .await
        .unwrap();
    seen.assert_all_held();
    assert!(seen.waited > 0 && seen.orders > 50, "{seen:?}");
}

#[tokio::test]
async fn each_order_starts_from_a_fresh_setup() {
    let (_database, stepper) = stepper().await;
    // Neither script ends its transaction, and each leaves a lock and a setting.
    let script = |name: &str, id: i64| {
        Script::new(name)
            .sql("set application_name = 'left over'")
            .sql("select pg_advisory_lock(7)")
            .sql("begin")
            .sql(format!("update t set n = n + 1 where id = {id}"))
            .sql("select pg_advisory_unlock(7)")
    };
    let fresh = |name: &str| Script::new(name).sql("show application_name");
    let seen = stepper
        .explore(
            || vec![script("a", 1), fresh("b")],
            async |client| client.batch_execute(SETUP).await.unwrap(),
            async |client, run| match (
                n(client).await,
                run.outcome("b", 0).as_ref().unwrap().value(),
            ) {
                (0, Some("")) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await
        .unwrap();
    seen.assert_all_held();
    assert_eq!(seen.orders, 6);
}

#[tokio::test]
async fn too_many_orders_are_refused() {
    let (_database, stepper) = stepper().await;
    let script = |name: &str| Script::new(name).transaction(&["select 1"; 8]);
    let error = stepper
        .explore(|| vec![script("a"), script("b")], async |_| panic!("runs"), async |_, _| Ok(()))
        .await
        .unwrap_err();
    assert!(matches!(error, StepperError::TooMany { .. }), "{error}");
}
