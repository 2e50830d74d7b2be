//! A store that is down for a while, and one that does not come back.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};
use pastes::{CreateError, ReadError, Reading, Settings, ShortCode};

use super::S3Rig;
use crate::rig::{new, settings, until};

/// Retries while the paste is in progress and the sum of the backoffs is within `limit`.
async fn try_for(rig: &S3Rig, code: &ShortCode, limit: Duration) {
    rig.work().await;
    while rig.status(code).await == "IN_PROGRESS" && rig.backoff().await <= limit {
        let wait = rig.wait().await.expect("a paste in progress has a job");
        rig.later(wait).await;
        rig.work().await;
    }
}

#[tokio::test]
async fn e18_a_store_that_fails_for_twenty_seconds_costs_no_paste() {
    let rig = S3Rig::with(Settings { direct_upload: true, ..settings() }).await;
    rig.s3.go_down();
    let code = rig.paste("timeout").await;
    assert!(rig.s3.wait_turned_away(1).await, "the direct upload tried");
    try_for(&rig, &code, Duration::from_secs(20)).await;
    assert_eq!(rig.status(&code).await, "IN_PROGRESS");
    assert!(matches!(rig.pastes.read(&code).await.unwrap(), Reading::Uploading { .. }));
    assert!(rig.s3.turned_away() >= 4, "it was tried again and again");
    rig.s3.come_back();
    rig.work_it_off().await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    assert_eq!(rig.bytes(&code).await, b"timeout");
    let dead = "select count(*) from leasehold.dead_job where name = 'pastes.upload'";
    assert_eq!(rig.count(dead).await, 0);
    rig.assert_settled().await;
}

#[tokio::test]
async fn e18_a_store_that_fails_for_good_makes_the_paste_failed() {
    let rig = S3Rig::new().await;
    let down = rig.s3.add(Rule::on(Op::Put).fail(500).always());
    let code = rig.paste("no way").await;
    try_for(&rig, &code, Duration::from_secs(600)).await;
    assert_eq!(rig.status(&code).await, "FAILED");
    assert_eq!(rig.s3.fired(down), 6, "six tries");
    let about_half_a_minute = Duration::from_secs(20)..Duration::from_secs(60);
    let waited = rig.backoff().await;
    assert!(about_half_a_minute.contains(&waited), "{waited:?} of waiting in between");
    assert!(matches!(rig.pastes.read(&code).await, Err(ReadError::NotFound)));
    let sql = "select last_error from leasehold.dead_job where name = 'pastes.upload'";
    let why: String = rig.client.query_one(sql, &[]).await.unwrap().get(0);
    assert!(why.contains("500"), "people see why: {why}");
    assert_eq!(rig.count("select count(*) from pastes.staged").await, 1, "its bytes are not lost");

    rig.s3.heal();
    let next = rig.paste("no way").await;
    rig.work_it_off().await;
    assert_eq!(rig.bytes(&next).await, b"no way", "others with the same bytes go their way");
    assert_eq!(rig.status(&code).await, "FAILED");
    rig.expire(&code).await;
    rig.sweep().await;
    assert_eq!(rig.bytes(&next).await, b"no way");
    rig.assert_settled().await;
}

#[tokio::test]
async fn e18_throttling_is_waited_out() {
    for status in [429, 503] {
        let rig = S3Rig::new().await;
        let busy = rig.s3.add(Rule::on_everything().fail(status).times(4));
        let code = rig.paste("slow down").await;
        rig.work_it_off().await;
        assert_eq!(rig.s3.fired(busy), 4);
        assert_eq!(rig.status(&code).await, "PROCESSED", "after {status}");
        rig.assert_settled().await;
    }
}

#[tokio::test]
async fn e18_bytes_in_progress_can_be_read_through_an_outage() {
    let rig = S3Rig::with(Settings { serve_staged: true, ..settings() }).await;
    rig.s3.go_down();
    let code = rig.paste("from the database").await;
    rig.work().await;
    assert_eq!(rig.status(&code).await, "IN_PROGRESS");
    assert_eq!(rig.bytes(&code).await, b"from the database");
    rig.s3.come_back();
    rig.work_it_off().await;
    assert_eq!(rig.bytes(&code).await, b"from the database");
}

#[tokio::test]
async fn e18_what_waits_for_the_store_is_bounded() {
    let rig = S3Rig::with(Settings { staging_quota: 50, ..settings() }).await;
    rig.s3.go_down();
    let first = rig.paste(&"x".repeat(60)).await;
    let full = async || {
        let refused = rig.pastes.create(new("one more")).await;
        matches!(refused, Err(CreateError::StagingFull { .. }))
    };
    until(full).await;
    rig.s3.come_back();
    rig.work_it_off().await;
    assert_eq!(rig.status(&first).await, "PROCESSED");
    until(async || rig.pastes.create(new("one more")).await.is_ok()).await;
}

#[tokio::test]
async fn e39_store_that_is_down_at_the_start_is_compared_before_it_is_used() {
    let rig = S3Rig::new().await;
    let code = rig.paste("kept").await;
    rig.work_it_off().await;
    rig.s3.go_down();
    let store = super::store_of(&rig.s3.endpoint());
    let started = pastes::Pastes::start(rig.engine.clone(), store, settings()).await;
    let second = started.expect("creating needs no store");
    second.create(new("while it is down")).await.unwrap();
    // The bucket comes back with the id of another database: nothing is read from it.
    let id = rig.s3.keys().into_iter().find(|key| key.ends_with("store-id")).unwrap();
    let right = rig.s3.read_object(&id).unwrap().unwrap();
    rig.s3.put_object(&id, b"00000000-0000-0000-0000-000000000000\n").unwrap();
    rig.s3.clear_log();
    rig.s3.come_back();
    until(async || rig.s3.count(Op::Get) > 0).await;
    // The comparison has read the id. What follows from it may take a moment. No read before that:
    // failed reads would open the breaker, which answers the same.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = second.read(&code).await;
    assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "{answer:?}");
    rig.s3.put_object(&id, &right).unwrap();
    drop(second);
    // With the right id, the service uses it again by itself.
    rig.s3.go_down();
    let store = super::store_of(&rig.s3.endpoint());
    let third = pastes::Pastes::start(rig.engine.clone(), store, settings()).await.unwrap();
    rig.s3.come_back();
    until(async || matches!(third.read(&code).await, Ok(Reading::Ready(_)))).await;
}
