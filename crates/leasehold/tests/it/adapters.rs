//! Enqueue through every driver: in the caller's transaction, with the same options and errors.

mod bulk;
#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(any(feature = "diesel-async", feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod drivers;
mod refusals;
mod schema;
#[cfg(feature = "sqlx-0_8")]
mod sqlx_0_8;
#[cfg(feature = "sqlx-0_9")]
mod sqlx_0_9;

use std::time::Duration;

use jiff::Timestamp;
use leasehold::{Backoff, Draft, Enqueue, Enqueued, Job, JobId};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Row};

use crate::support::{Note, engine};

const HOUR: Duration = Duration::from_secs(3600);

async fn jobs(client: &Client) -> i64 {
    client.query_one("select count(*) from leasehold.job", &[]).await.expect("a count").get(0)
}

/// A draft that sets every option.
fn full_draft() -> Draft {
    let draft = Note { n: 7 }.draft().expect("a draft");
    draft
        .queue("mail")
        .priority(-3)
        .run_after(HOUR)
        .expire_after(2 * HOUR)
        .tag("import")
        .max_attempts(4)
        .key("note:7")
        .key_ttl(3 * HOUR)
        .trace_context("00-1-2-01")
}

/// Asserts what every driver must have stored for [`full_draft`].
async fn assert_stored_in_full(client: &Client, id: JobId) {
    let sql = "
        select j.name, j.kwargs::text, j.queue, j.priority, j.tag, j.max_attempts, j.trace_context,
               j.idempotency_key = 'note:7' and k.job_id = j.id,
               j.scheduled_at - j.enqueued_at between '1 h' and '1 h 10 min',
               j.expires_at - j.enqueued_at between '2 h' and '2 h 10 min',
               k.holds_until - k.created_at = '3 h',
               abs(extract(epoch from j.enqueued_at - clock_timestamp())) < 600
          from leasehold.job j join leasehold_internal.idempotency_key k on k.queue = j.queue and k.key = 'note:7'
         where j.id = $1";
    let row: Row = client.query_one(sql, &[&id.0]).await.expect("the job and its key");
    let texts: Vec<&str> = [0, 1, 2, 4, 6].into_iter().map(|column| row.get(column)).collect();
    assert_eq!(texts, ["note", "{\"n\": 7}", "mail", "import", "00-1-2-01"]);
    assert_eq!((row.get::<_, i32>(3), row.get::<_, i32>(5)), (-3, 4));
    for (column, what) in
        [(7, "the key"), (8, "the delay"), (9, "the expiry"), (10, "the window"), (11, "the clock")]
    {
        assert!(row.get::<_, bool>(column), "{what}");
    }
}

#[tokio::test]
async fn transaction_of_tokio_postgres_stores_the_job_with_its_commit() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.expect("a transaction");
    Note { n: 1 }.enqueue(&tx).await.expect("enqueued");
    assert_eq!(jobs(&looking).await, 0, "no other session sees it before the commit");
    tx.rollback().await.expect("rolled back");
    assert_eq!(jobs(&looking).await, 0);

    let tx = client.transaction().await.expect("a transaction");
    let id = full_draft().enqueue(&tx).await.expect("enqueued").id();
    tx.commit().await.expect("committed");
    assert_eq!(jobs(&looking).await, 1);
    assert_stored_in_full(&looking, id).await;
    let again = full_draft().enqueue(&client).await.expect("known");
    assert_eq!(again, Enqueued::Duplicate(id));
}

#[tokio::test]
async fn transaction_of_deadpool_stores_the_job_with_its_commit() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let engine = engine(&database).await;
    let mut client = engine.pool().get().await.expect("a connection");
    let tx = client.transaction().await.expect("a transaction");
    Note { n: 1 }.enqueue(&tx).await.expect("enqueued");
    drop(tx); // rolls back
    let tx = client.transaction().await.expect("a transaction");
    let id = full_draft().enqueue(&tx).await.expect("enqueued").id();
    assert_eq!(jobs(&looking).await, 0, "no other session sees it before the commit");
    tx.commit().await.expect("committed");
    assert_eq!(jobs(&looking).await, 1);
    assert_stored_in_full(&looking, id).await;
    assert_eq!(full_draft().enqueue(&client).await.expect("known"), Enqueued::Duplicate(id));
}

#[tokio::test]
async fn handle_enqueues_at_once() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let engine = engine(&database).await;
    let id = full_draft().enqueue(&engine).await.expect("enqueued").id();
    assert_stored_in_full(&looking, id).await;
    assert_eq!(full_draft().enqueue(&engine).await.expect("known"), Enqueued::Duplicate(id));
}

#[tokio::test]
async fn savepoint_that_rolls_back_removes_its_job() {
    let database = TestDatabase::new().await;
    let looking = database.connect_directly().await;
    let mut client = database.connect().await;
    let mut tx = client.transaction().await.expect("a transaction");
    Note { n: 1 }.enqueue(&tx).await.expect("enqueued");
    let inner = tx.transaction().await.expect("a savepoint");
    Note { n: 2 }.enqueue(&inner).await.expect("enqueued");
    inner.rollback().await.expect("rolled back");
    tx.commit().await.expect("committed");
    let left = looking.query("select kwargs::text from leasehold.job", &[]).await.expect("jobs");
    assert_eq!(left.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["{\"n\": 1}"]);
}

#[tokio::test]
async fn due_time_is_stored_as_given() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let at: Timestamp = "2031-02-03T04:05:06.789012Z".parse().expect("a moment");
    let id = Note { n: 1 }
        .draft()
        .expect("a draft")
        .run_at(at)
        .enqueue(&client)
        .await
        .expect("enqueued")
        .id();
    let sql = "select scheduled_at, expires_at = scheduled_at + interval '30 days' from leasehold.job where id = $1";
    let row = client.query_one(sql, &[&id.0]).await.expect("the job");
    assert_eq!(row.get::<_, Timestamp>(0), at);
    assert!(row.get::<_, bool>(1), "a far job has its 30 days when it is due");
}

/// Every attribute of the derive.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "email.send", queue = "mail", priority = -5, max_attempts = 8, run_limit = "90s")]
#[job(backoff = "250ms..2h")]
struct SendEmail {
    body: String,
}

#[tokio::test]
async fn job_gets_the_policy_of_its_type_unless_its_draft_overrides_it() {
    let policy = SendEmail::policy();
    assert_eq!((SendEmail::NAME, SendEmail::QUEUE), ("email.send", "mail"));
    assert_eq!((policy.priority, policy.max_attempts), (-5, Some(8)));
    assert_eq!(policy.run_limit, Some(Duration::from_secs(90)));
    assert_eq!(policy.backoff, Some(Backoff::doubling(Duration::from_millis(250), 2 * HOUR)));
    assert_eq!((Note::QUEUE, Note::policy()), ("default", leasehold::Policy::default()));

    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let mail = || SendEmail { body: "hello".to_owned() };
    let one = mail().enqueue(&client).await.expect("enqueued").id();
    let draft = mail().draft().expect("a draft").queue("slow").priority(1).max_attempts(2);
    let other = draft.enqueue(&client).await.expect("enqueued").id();
    let sql = "select queue, priority, max_attempts from leasehold.job where id = $1";
    for (id, queue, priority, attempts) in [(one, "mail", -5, 8), (other, "slow", 1, 2)] {
        let row = client.query_one(sql, &[&id.0]).await.expect("the job");
        assert_eq!((row.get(0), row.get(1), row.get(2)), (queue, priority, attempts));
    }
}
