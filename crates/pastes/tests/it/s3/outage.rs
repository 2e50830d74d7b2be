//! A store that is down for a while, and one that does not come back.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};
use pastes::{CreateError, ReadError, Reading, Settings, ShortCode};

use super::S3Fixture;
use crate::fixture::{new, settings, until};

/// Retries while the paste is in progress and the sum of the backoffs is within `limit`.
async fn try_for(fixture: &S3Fixture, code: &ShortCode, limit: Duration) {
    fixture.work().await;
    while fixture.status(code).await == "IN_PROGRESS" && fixture.backoff().await <= limit {
        let wait = fixture.wait().await.expect("a paste in progress has a job");
        fixture.later(wait).await;
        fixture.work().await;
    }
}

#[tokio::test]
async fn e18_outage_of_twenty_seconds_fails_no_paste() {
    let fixture = S3Fixture::with(Settings { direct_upload: true, ..settings() }).await;
    fixture.s3.go_down();
    let code = fixture.paste("timeout").await;
    assert!(fixture.s3.wait_turned_away(1).await, "the direct upload tried");
    try_for(&fixture, &code, Duration::from_secs(20)).await;
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    assert!(matches!(fixture.pastes.read(&code).await.unwrap(), Reading::Uploading { .. }));
    assert!(fixture.s3.turned_away() >= 4, "it was retried");
    fixture.s3.come_back();
    fixture.work_it_off().await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    assert_eq!(fixture.bytes(&code).await, b"timeout");
    let dead = "select count(*) from leasehold_internal.dead_job where name = 'pastes.upload'";
    assert_eq!(fixture.count(dead).await, 0);
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e18_paste_fails_if_the_store_keeps_failing() {
    let fixture = S3Fixture::new().await;
    let down = fixture.s3.add(Rule::on(Op::Put).fail(500).always());
    let code = fixture.paste("no way").await;
    try_for(&fixture, &code, Duration::from_secs(600)).await;
    assert_eq!(fixture.status(&code).await, "FAILED");
    assert_eq!(fixture.s3.fired(down), 6, "six attempts");
    let about_half_a_minute = Duration::from_secs(20)..Duration::from_secs(60);
    let waited = fixture.backoff().await;
    assert!(about_half_a_minute.contains(&waited), "{waited:?} of waiting in between");
    assert!(matches!(fixture.pastes.read(&code).await, Err(ReadError::NotFound)));
    let sql = "select last_error from leasehold_internal.dead_job where name = 'pastes.upload'";
    let why: String = fixture.client.query_one(sql, &[]).await.unwrap().get(0);
    assert!(why.contains("500"), "operators see the reason: {why}");
    assert_eq!(fixture.count("select count(*) from pastes.staged").await, 1, "its bytes are kept");

    fixture.s3.heal();
    let next = fixture.paste("no way").await;
    fixture.work_it_off().await;
    assert_eq!(fixture.bytes(&next).await, b"no way", "a paste of the same bytes is not affected");
    assert_eq!(fixture.status(&code).await, "FAILED");
    fixture.expire(&code).await;
    fixture.sweep().await;
    assert_eq!(fixture.bytes(&next).await, b"no way");
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e18_upload_succeeds_after_throttling() {
    for status in [429, 503] {
        let fixture = S3Fixture::new().await;
        let busy = fixture.s3.add(Rule::on_everything().fail(status).times(4));
        let code = fixture.paste("slow down").await;
        fixture.work_it_off().await;
        assert_eq!(fixture.s3.fired(busy), 4);
        assert_eq!(fixture.status(&code).await, "PROCESSED", "after {status}");
        fixture.assert_settled().await;
    }
}

#[tokio::test]
async fn e18_staged_bytes_are_served_during_an_outage() {
    let fixture = S3Fixture::with(Settings { serve_staged: true, ..settings() }).await;
    fixture.s3.go_down();
    let code = fixture.paste("from the database").await;
    fixture.work().await;
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    assert_eq!(fixture.bytes(&code).await, b"from the database");
    fixture.s3.come_back();
    fixture.work_it_off().await;
    assert_eq!(fixture.bytes(&code).await, b"from the database");
}

#[tokio::test]
async fn e18_staged_bytes_are_bounded() {
    let fixture = S3Fixture::with(Settings { staging_quota: 50, ..settings() }).await;
    fixture.s3.go_down();
    let first = fixture.paste(&"x".repeat(60)).await;
    let full = async || {
        let refused = fixture.pastes.create(new("one more")).await;
        matches!(refused, Err(CreateError::StagingFull { .. }))
    };
    until(full).await;
    fixture.s3.come_back();
    fixture.work_it_off().await;
    assert_eq!(fixture.status(&first).await, "PROCESSED");
    until(async || fixture.pastes.create(new("one more")).await.is_ok()).await;
}

#[tokio::test]
async fn e39_store_that_is_down_at_the_start_is_compared_before_it_is_used() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("kept").await;
    fixture.work_it_off().await;
    fixture.s3.go_down();
    let store = super::store_of(&fixture.s3.endpoint());
    let started = pastes::Pastes::start(fixture.engine.clone(), store, settings()).await;
    let second = started.expect("creating needs no store");
    second.create(new("while it is down")).await.unwrap();
    // The bucket comes back with the id of another database: nothing is read from it.
    let id = fixture.s3.keys().into_iter().find(|key| key.ends_with("store-id")).unwrap();
    let right = fixture.s3.read_object(&id).unwrap().unwrap();
    fixture.s3.put_object(&id, b"00000000-0000-0000-0000-000000000000\n").unwrap();
    fixture.s3.clear_log();
    fixture.s3.come_back();
    until(async || fixture.s3.count(Op::Get) > 0).await;
    // The comparison has read the id. What follows from it may take a moment. No read before that:
    // failed reads would open the breaker, which responses the same.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let response = second.read(&code).await;
    assert!(matches!(response, Err(ReadError::StoreDown { .. })), "{response:?}");
    fixture.s3.put_object(&id, &right).unwrap();
    drop(second);
    // With the right id, the service uses it again by itself.
    fixture.s3.go_down();
    let store = super::store_of(&fixture.s3.endpoint());
    let third = pastes::Pastes::start(fixture.engine.clone(), store, settings()).await.unwrap();
    fixture.s3.come_back();
    until(async || matches!(third.read(&code).await, Ok(Reading::Ready(_)))).await;
}
