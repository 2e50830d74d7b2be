//! Batches whose jobs have limits.

use leasehold::{BatchDraft, Draft, Job};
use serde::{Deserialize, Serialize};

use super::*;
use crate::support::engine;

#[derive(Job, Serialize, Deserialize)]
#[job(name = "sync", limit_key = "account:{account}", max_running = 1)]
struct Sync {
    account: i64,
}

/// Claims as a worker does, and completes what it claimed. Returns how many jobs there were.
async fn work(sql: &Sql) -> usize {
    let take = "select id, lease_generation \
                  from leasehold_internal.claim_limited('w', 'default', 10, null, null, null)";
    let rows = sql.client.query(take, &[]).await.expect("a claim");
    for row in &rows {
        assert!(complete(&sql.client, row.get(0), row.get(1)).await);
    }
    rows.len()
}

#[tokio::test]
async fn k22_jobs_that_are_added_to_a_batch_have_the_limit_key_of_their_type() {
    let sql = Sql::new().await;
    let engine = engine(&sql.database).await;
    let mut client = engine.pool().get().await.expect("a connection");
    let tx = client.transaction().await.expect("a transaction");
    let ended = Draft::untyped("ended", &serde_json::json!({})).expect("a draft");
    let batch = BatchDraft::new().then(ended).open(&tx).await.expect("open");
    let jobs = [7, 8, 7].map(|account| Sync { account });
    assert_eq!(batch.add_many(&tx, jobs).await.expect("jobs"), 3);
    assert!(batch.seal(&tx).await.expect("sealed"));
    tx.commit().await.expect("committed");
    sql.run("select leasehold.set_limit('default', 'account', 'ann', 1)").await;
    let keys: Vec<String> =
        all(&sql.client, "select limit_key from leasehold.job order by 1", &[]).await;
    assert_eq!(keys, ["account:7", "account:7", "account:8"]);
    // One job of each account, then the other one of the first.
    assert_eq!(work(&sql).await, 2);
    assert_eq!(follow_up_names(&sql).await, [""; 0]);
    assert_eq!(work(&sql).await, 1);
    assert_eq!(follow_up_names(&sql).await, ["ended"]);
    assert_eq!(seen(&sql, batch.id().0).await, ("closed".to_owned(), vec![3, 3, 0, 0, 0]));
}

async fn follow_up_names(sql: &Sql) -> Vec<String> {
    all(&sql.client, "select name from leasehold.job where name <> 'sync'", &[]).await
}

#[tokio::test]
async fn k22_job_with_a_follow_up_is_stored_under_debounce_and_throttle() {
    for rule in ["debounce => '10 minutes'", "throttle => '10 minutes'"] {
        let sql = Sql::new().await;
        sql.run(&format!("select leasehold.set_limit('default', 'doc', 'ann', {rule})")).await;
        let plain = "select inserted from leasehold.enqueue('note', limit_key => 'doc:7')";
        assert!(sql.one::<bool>(plain, &[]).await);
        assert!(!sql.one::<bool>(plain, &[]).await, "{rule}");
        let followed = "select inserted from leasehold.enqueue('note', limit_key => 'doc:7', \
                        on_success => '{\"name\": \"succeeded\"}')";
        assert!(sql.one::<bool>(followed, &[]).await, "{rule}");
        // A later enqueue replaces the other job.
        assert!(!sql.one::<bool>(plain, &[]).await, "{rule}");
        let stored = "select count(*) from leasehold.job where batch_id is not null";
        assert_eq!(sql.one::<i64>(stored, &[]).await, 1, "{rule}");
        assert_eq!(sql.count("job").await, 2, "{rule}");
    }
}

#[tokio::test]
async fn k22_follow_up_is_stored_whatever_its_limit_says_of_enqueues() {
    for rule in ["debounce => '10 minutes'", "throttle => '10 minutes'", "max_waiting => 1"] {
        let sql = Sql::new().await;
        sql.run(&format!("select leasehold.set_limit('default', 'doc', 'ann', {rule})")).await;
        sql.run("select leasehold.enqueue('other', queue => 'default', limit_key => 'doc:7')")
            .await;
        let draft = "{\"name\": \"other\", \"limit_key\": \"doc:7\"}";
        for _ in 0..2 {
            let open = format!("select leasehold.open_batch(on_end => '{draft}')");
            let batch: i64 = sql.one(&open, &[]).await;
            assert!(sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await);
        }
        let jobs =
            "select count(distinct follow_up_job_id) from leasehold.batches where state = 'closed'";
        assert_eq!(sql.one::<i64>(jobs, &[]).await, 2, "{rule}");
        assert_eq!(sql.count("job").await, 3, "{rule}");
    }
}

#[tokio::test]
async fn k22_follow_up_waits_for_the_limit_of_its_name() {
    let sql = Sql::new().await;
    sql.run("select leasehold.set_limit('default', 'report', 'ann', 1, by_name => true)").await;
    for _ in 0..2 {
        let open = "select leasehold.open_batch(on_end => '{\"name\": \"report\"}')";
        let batch: i64 = sql.one(open, &[]).await;
        assert!(sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await);
    }
    let keys: Vec<String> = all(&sql.client, "select limit_key from leasehold.job", &[]).await;
    assert_eq!(keys, ["report", "report"]);
    assert_eq!((work(&sql).await, work(&sql).await), (1, 1));
}
