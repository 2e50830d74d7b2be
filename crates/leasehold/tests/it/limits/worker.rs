//! Workers and limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold::{Enqueue, Job, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use super::{complete, take};
use crate::fixture::{completed, count, run, until};
use crate::support::{Note, engine};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "sync", limit_key = "account:{account}", max_running = 2)]
struct Sync {
    account: usize,
}

/// How many jobs of each account run, and the most that ever did.
#[derive(Default)]
struct Running {
    now: [AtomicI64; 3],
    most: AtomicI64,
}

async fn sync(job: Sync, State(running): State<Arc<Running>>) {
    let now = running.now[job.account].fetch_add(1, Ordering::SeqCst) + 1;
    running.most.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(2)).await;
    running.now[job.account].fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_workers_together_keep_the_limit_that_the_job_type_declares() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((0..60).map(|n| Sync { account: n % 3 })).await.expect("enqueued");
    let running = Arc::new(Running::default());
    let workers: Vec<_> = (0..2)
        .map(|_| run(engine.worker_with(Arc::clone(&running)).queue("default", 8).handle(sync)))
        .collect();
    for account in 0..3 {
        for _ in 0..10 {
            Sync { account }.enqueue(&engine).await.expect("enqueued");
        }
    }
    until("all are done", async || completed(&client).await == 90).await;
    assert_eq!(running.most.load(Ordering::SeqCst), 2);
    let declared = engine.limits().get("default", "account").await.unwrap().expect("declared");
    assert_eq!(declared.max_running, Some(2));
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_idle_worker_is_woken_when_a_key_gets_work_and_when_it_gets_room() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    limit_of_one(&client).await;
    let enqueue = async || {
        let draft = Note { n: 1 }.draft().expect("a draft").limit_key("tenant:7");
        draft.enqueue(&engine).await.expect("enqueued");
    };
    enqueue().await;
    let elsewhere = take(&client, 1).await[0];
    // Neither a poll nor a walk finds its jobs.
    let worker = engine.worker().queue("default", 4).poll_every(Duration::from_secs(3600));
    let worker = run(worker.without_housekeeping().handle(async |_: Note| {}));
    let idle = "select count(*) from pg_locks where locktype = 'advisory' and classid = 7306";
    until("the worker sleeps", async || count(&client, idle).await > 0).await;
    enqueue().await;
    until("the worker has looked", async || {
        count(&client, "select count(*) from leasehold_internal.limit_signal").await == 0
    })
    .await;
    assert_eq!(completed(&client).await, 0, "the only permit is taken");
    assert!(complete(&client, elsewhere).await);
    until("both are done", async || completed(&client).await == 2).await;
    worker.stop().await;
}

async fn limit_of_one(client: &tokio_postgres::Client) {
    let sql = "select leasehold.set_limit('default', 'tenant', 'ann', 1)";
    client.execute(sql, &[]).await.expect("a limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_and_without_a_key_share_a_single_slot() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    for n in 0..200 {
        let draft = Note { n }.draft().expect("a draft");
        let draft = if n % 2 == 0 { draft.limit_key("tenant:7") } else { draft };
        draft.enqueue(&engine).await.expect("enqueued");
    }
    let worker = run(engine.worker().queue("default", 1).handle(async |_: Note| {}));
    until("half are done", async || completed(&client).await >= 100).await;
    let keyed = "select count(*) from leasehold.job where limit_key is not null";
    let plain = "select count(*) from leasehold.job where limit_key is null";
    let left = (count(&client, keyed).await, count(&client, plain).await);
    assert!(left.0 < 100 && left.1 < 100, "{left:?}: one kind has had no turn");
    until("all are done", async || completed(&client).await == 200).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_until_idle_runs_every_job_that_its_limit_lets_start() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    for account in [0, 1, 0, 1, 0] {
        Sync { account }.enqueue(&engine).await.expect("enqueued");
    }
    let worker = engine.worker_with(Arc::new(Running::default())).queue("default", 8).handle(sync);
    assert_eq!(worker.run_until_idle().await.expect("idle").completed, 5);
}
