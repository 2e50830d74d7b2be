//! Jobs that enqueue refuses, and the error that the caller gets.

use std::time::Duration;

use leasehold::{Draft, Enqueue, EnqueueError};
use leasehold_testing::TestDatabase;
use serde_json::{Value, json};

use super::jobs;
use crate::support::Note;

fn draft() -> Draft {
    Note { n: 1 }.draft().expect("a draft")
}

fn with_arguments(arguments: Value) -> Draft {
    Draft::untyped("note", &arguments).expect("JSON")
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// Drafts that the client refuses before it sends anything, each with the problem and the advice
/// that the error text must contain.
fn refused_here() -> Vec<(Draft, &'static str, &'static str)> {
    vec![
        (draft().queue("Mail"), "\"Mail\" is not allowed", "a-z"),
        (draft().queue(""), "is not allowed", "1 to 64"),
        (with_arguments(json!({ "a": "x".repeat(300_000) })), "64 KiB", "reference"),
        (with_arguments(json!({ "a": nested(64) })), "at most 64 deep", "flatten"),
        (with_arguments(json!({ "a": "x\0" })), "NUL", "remove it"),
        (with_arguments(json!([1])), "JSON object", "wrap"),
        (draft().key("a\0"), "key", "NUL"),
        (draft().key(""), "key has 0 bytes", "1 to 200"),
        (draft().key("k".repeat(201)), "key has 201 bytes", "1 to 200"),
        (draft().tag("t".repeat(201)), "tag has 201 bytes", "0 to 200"),
        (Draft::untyped("", &json!({})).expect("JSON"), "name has 0 bytes", "1 to 200"),
        (draft().max_attempts(0), "max_attempts is 0", "at least 1"),
        (draft().run_after(Duration::from_secs(u64::MAX / 4)), "run_after is", "100,000 years"),
        (draft().expire_after(Duration::MAX), "expire_after is 18446744073709551615 s", "at most"),
        (draft().key("k").key_ttl(Duration::MAX), "key_ttl is 18446744073709551615 s", "at most"),
        (draft().run_at(jiff::Timestamp::MIN), "run_at is -009999", "after the year 0"),
    ]
}

#[tokio::test]
async fn h1_h2_job_that_cannot_be_stored_is_refused_and_the_transaction_continues() {
    let database = TestDatabase::new().await;
    let mut client = database.connect().await;
    let tx = client.transaction().await.expect("a transaction");
    for (draft, what, advice) in refused_here() {
        let error = draft.enqueue(&tx).await.expect_err(what);
        assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(advice), "{text}");
    }
    Note { n: 2 }.enqueue(&tx).await.expect("the transaction is as good as new");
    tx.commit().await.expect("committed");
    assert_eq!(jobs(&database.connect_directly().await).await, 1);
}

#[tokio::test]
async fn h2_server_refuses_large_arguments_and_times_out_of_range() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    for (draft, what, advice) in [
        (with_arguments(json!({ "a": "x".repeat(70_000) })), "kwargs have 700", "reference"),
        (
            draft().run_after(Duration::from_secs(9_000 * 366 * 86_400)),
            "scheduled_at is ",
            "before the year 9999",
        ),
    ] {
        let error = draft.enqueue(&client).await.expect_err(what);
        assert!(matches!(error, EnqueueError::Refused(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(what) && text.contains(advice), "{text}");
    }
    assert_eq!(jobs(&client).await, 0);
}

#[tokio::test]
async fn h13_key_that_belongs_to_a_job_with_other_kwargs_is_a_conflict() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let keyed = |n| Note { n }.draft().expect("a draft").key("order:7");
    keyed(1).enqueue(&client).await.expect("enqueued");
    let error = keyed(2).enqueue(&client).await.expect_err("other kwargs");
    assert!(matches!(error, EnqueueError::KeyConflict(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("order:7") && text.contains("Use a new key"), "{text}");
    // The same text in another queue is another key.
    assert!(keyed(2).queue("other").enqueue(&client).await.expect("enqueued").is_new());
}

#[tokio::test]
async fn refusal_of_the_server_is_reported_as_not_stored() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client.batch_execute("set role leasehold_viewer").await.expect("a role that may not enqueue");
    let error = Note { n: 1 }.enqueue(&client).await.expect_err("no permission");
    assert!(error.to_string().starts_with("the job was not stored: permission denied"), "{error}");
}

#[tokio::test]
async fn lost_reply_is_reported_as_an_unknown_outcome() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.expect("a pid").get(0);
    let killer = database.connect_directly().await;
    // The server ends the session; the statement gets no reply of its own.
    let killed = killer.query_one("select pg_terminate_backend($1, 60000)", &[&pid]).await;
    assert!(killed.expect("a reply").get::<_, bool>(0));
    let error = loop {
        match draft().enqueue(&client).await {
            // The first statement may still receive the server's FATAL message.
            Err(EnqueueError::Database(error)) if error.as_db_error().is_some() => {}
            Err(error) => break error,
            Ok(_) => panic!("the session is gone"),
        }
    };
    let text = error.to_string();
    assert!(
        text.contains("may not have been stored") && text.contains("idempotency key"),
        "{text}"
    );
}
