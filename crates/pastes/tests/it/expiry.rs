//! How pastes end.

use pastes::{ReadError, Settings};

use crate::fixture::{Fixture, new, settings, until};

#[tokio::test]
async fn paste_goes_from_create_to_deletion() {
    let fixture =
        Fixture::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let code = fixture.paste("hello").await;
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    fixture.work().await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    assert_eq!(fixture.bytes(&code).await, b"hello");
    assert_eq!(fixture.objects(), 1);
    fixture.expire(&code).await;
    assert!(matches!(fixture.pastes.read(&code).await, Err(ReadError::NotFound)));
    assert_eq!(fixture.deletion_status(&code).await, "NOT_EXPIRED", "expired, and not yet swept");
    fixture.sweep().await;
    assert_eq!(fixture.deletion_status(&code).await, "DELETED");
    assert_eq!(fixture.objects(), 0);
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
}

#[tokio::test]
async fn cached_paste_ends_when_another_node_ends_it() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("read by many").await;
    fixture.work().await;
    assert_eq!(fixture.bytes(&code).await, b"read by many");
    fixture.expire(&code).await;
    until(async || matches!(fixture.pastes.read(&code).await, Err(ReadError::NotFound))).await;
}

#[tokio::test]
async fn content_stays_until_its_last_paste_is_deleted() {
    let fixture =
        Fixture::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let (one, two) = (fixture.paste("shared").await, fixture.paste("shared").await);
    fixture.work().await;
    assert_eq!(fixture.objects(), 1);
    fixture.expire(&one).await;
    fixture.sweep().await;
    assert_eq!(fixture.bytes(&two).await, b"shared");
    fixture.assert_ref_counts().await;
    fixture.expire(&two).await;
    fixture.sweep().await;
    assert_eq!(fixture.objects(), 0);
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn same_bytes_after_the_end_get_a_new_key() {
    let fixture =
        Fixture::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let first = fixture.paste("again").await;
    fixture.work().await;
    fixture.expire(&first).await;
    // Doomed, but its object is not yet deleted.
    fixture.pastes.expiry_sweep().unwrap().run_once(&fixture.engine).await.unwrap();
    let second = fixture.paste("again").await;
    fixture.work().await;
    assert_eq!(fixture.bytes(&second).await, b"again");
    assert_eq!(fixture.objects(), 1);
    assert_eq!(fixture.count("select count(distinct object_id) from pastes.contents").await, 2);
}

#[tokio::test]
async fn purge_deletes_tombstones_intents_and_staged_bytes() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("old").await;
    fixture.work().await;
    fixture.expire(&code).await;
    fixture.sweep().await;
    fixture
        .client
        .batch_execute(
            "update pastes.pastes set deletion_initiated_at = now() - interval '8 days'; \
             update pastes.contents set changed_at = now() - interval '31 days'; \
             select leasehold.enqueue('pastes.purge', queue => 'pastes.housekeeping')",
        )
        .await
        .unwrap();
    fixture.work().await;
    let left = "select (select count(*) from pastes.pastes) + (select count(*) from pastes.contents) \
                + (select count(*) from pastes.staged)";
    assert_eq!(fixture.count(left).await, 0);
}

#[tokio::test]
async fn e12_staged_bytes_of_a_failed_paste_stay_for_a_day() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("precious").await;
    let bury = "update leasehold.job set attempts = 5 where name = 'pastes.upload'; \
                update pastes.contents set content_hash = repeat('0', 64)";
    fixture.client.batch_execute(bury).await.unwrap();
    fixture.work().await;
    assert_eq!(fixture.status(&code).await, "FAILED");
    assert!(matches!(fixture.pastes.read(&code).await, Err(ReadError::NotFound)));
    let soon = "select count(*) from pastes.pastes where status = 'FAILED' \
                and expires_at between now() + interval '23 hours' and now() + interval '25 hours'";
    assert_eq!(fixture.count(soon).await, 1);
    let purge = "select leasehold.enqueue('pastes.purge', queue => 'pastes.housekeeping')";
    fixture.client.batch_execute(purge).await.unwrap();
    fixture.work().await;
    assert_eq!(
        fixture.count("select count(*) from pastes.staged").await,
        1,
        "not before its paste is deleted"
    );
    fixture.expire(&code).await;
    fixture.sweep().await;
    fixture.client.batch_execute(purge).await.unwrap();
    fixture.work().await;
    assert_eq!(fixture.count("select count(*) from pastes.staged").await, 0);
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn deleted_paste_is_gone_at_once_and_can_be_deleted_again() {
    let fixture = Fixture::new().await;
    let created = fixture.pastes.create(new("mine")).await.unwrap();
    fixture.work().await;
    let token = pastes::Bearer::new(&created.delete_token).unwrap();
    let wrong = pastes::Bearer::new(&"0".repeat(48)).unwrap();
    assert!(fixture.pastes.delete(&created.code, &wrong, None).await.is_err());
    fixture.pastes.delete(&created.code, &token, None).await.unwrap();
    fixture.pastes.delete(&created.code, &token, None).await.unwrap();
    assert!(matches!(fixture.pastes.read(&created.code).await, Err(ReadError::NotFound)));
    fixture.sweep().await;
    assert_eq!(fixture.deletion_status(&created.code).await, "DELETED");
    assert_eq!(fixture.objects(), 0);
    fixture.assert_ref_counts().await;
}
