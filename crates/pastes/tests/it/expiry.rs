//! How pastes end.

use pastes::{ReadError, Settings};

use crate::rig::{Rig, new, settings, until};

#[tokio::test]
async fn a_paste_walks_from_its_commit_to_its_end() {
    let rig = Rig::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let code = rig.paste("hello").await;
    assert_eq!(rig.status(&code).await, "IN_PROGRESS");
    rig.work().await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    assert_eq!(rig.bytes(&code).await, b"hello");
    assert_eq!(rig.objects(), 1);
    rig.expire(&code).await;
    assert!(matches!(rig.pastes.read(&code).await, Err(ReadError::NotFound)));
    assert_eq!(rig.deletion_status(&code).await, "NOT_EXPIRED", "not read, though not yet swept");
    rig.sweep().await;
    assert_eq!(rig.deletion_status(&code).await, "DELETED");
    assert_eq!(rig.objects(), 0);
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
}

#[tokio::test]
async fn a_paste_that_is_read_all_the_time_ends_when_another_node_ends_it() {
    let rig = Rig::new().await;
    let code = rig.paste("read by many").await;
    rig.work().await;
    assert_eq!(rig.bytes(&code).await, b"read by many");
    rig.expire(&code).await;
    until(async || matches!(rig.pastes.read(&code).await, Err(ReadError::NotFound))).await;
}

#[tokio::test]
async fn content_stays_until_its_last_paste_is_deleted() {
    let rig = Rig::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let (one, two) = (rig.paste("shared").await, rig.paste("shared").await);
    rig.work().await;
    assert_eq!(rig.objects(), 1);
    rig.expire(&one).await;
    rig.sweep().await;
    assert_eq!(rig.bytes(&two).await, b"shared");
    rig.assert_ref_counts().await;
    rig.expire(&two).await;
    rig.sweep().await;
    assert_eq!(rig.objects(), 0);
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn the_same_bytes_after_the_end_get_a_key_of_their_own() {
    let rig = Rig::with(Settings { recheck: std::time::Duration::ZERO, ..settings() }).await;
    let first = rig.paste("again").await;
    rig.work().await;
    rig.expire(&first).await;
    // Doomed, but its object is not yet deleted.
    rig.pastes.expiry_sweep().unwrap().run_once(&rig.engine).await.unwrap();
    let second = rig.paste("again").await;
    rig.work().await;
    assert_eq!(rig.bytes(&second).await, b"again");
    assert_eq!(rig.objects(), 1);
    assert_eq!(rig.count("select count(distinct object_id) from pastes.contents").await, 2);
}

#[tokio::test]
async fn tombstones_intents_and_old_keys_are_purged() {
    let rig = Rig::new().await;
    let code = rig.paste("old").await;
    rig.work().await;
    rig.expire(&code).await;
    rig.sweep().await;
    rig.client
        .batch_execute(
            "update pastes.pastes set deletion_initiated_at = now() - interval '8 days'; \
             update pastes.contents set changed_at = now() - interval '31 days'; \
             select leasehold.enqueue('pastes.purge', queue => 'pastes.tidy')",
        )
        .await
        .unwrap();
    rig.work().await;
    let left = "select (select count(*) from pastes.pastes) + (select count(*) from pastes.contents) \
                + (select count(*) from pastes.staged)";
    assert_eq!(rig.count(left).await, 0);
}

#[tokio::test]
async fn e12_staged_bytes_of_a_failed_paste_stay_for_a_day() {
    let rig = Rig::new().await;
    let code = rig.paste("precious").await;
    let bury = "update leasehold.job set attempts = 5 where name = 'pastes.upload'; \
                update pastes.contents set content_hash = repeat('0', 64)";
    rig.client.batch_execute(bury).await.unwrap();
    rig.work().await;
    assert_eq!(rig.status(&code).await, "FAILED");
    assert!(matches!(rig.pastes.read(&code).await, Err(ReadError::NotFound)));
    let soon = "select count(*) from pastes.pastes where status = 'FAILED' \
                and expires_at between now() + interval '23 hours' and now() + interval '25 hours'";
    assert_eq!(rig.count(soon).await, 1);
    let purge = "select leasehold.enqueue('pastes.purge', queue => 'pastes.tidy')";
    rig.client.batch_execute(purge).await.unwrap();
    rig.work().await;
    assert_eq!(rig.count("select count(*) from pastes.staged").await, 1, "not before its paste");
    rig.expire(&code).await;
    rig.sweep().await;
    rig.client.batch_execute(purge).await.unwrap();
    rig.work().await;
    assert_eq!(rig.count("select count(*) from pastes.staged").await, 0);
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn a_deleted_paste_is_gone_at_once_and_deleting_it_again_changes_nothing() {
    let rig = Rig::new().await;
    let created = rig.pastes.create(new("mine")).await.unwrap();
    rig.work().await;
    let token = pastes::Bearer::new(&created.delete_token).unwrap();
    let wrong = pastes::Bearer::new(&"0".repeat(48)).unwrap();
    assert!(rig.pastes.delete(&created.code, &wrong, None).await.is_err());
    rig.pastes.delete(&created.code, &token, None).await.unwrap();
    rig.pastes.delete(&created.code, &token, None).await.unwrap();
    assert!(matches!(rig.pastes.read(&created.code).await, Err(ReadError::NotFound)));
    rig.sweep().await;
    assert_eq!(rig.deletion_status(&created.code).await, "DELETED");
    assert_eq!(rig.objects(), 0);
    rig.assert_ref_counts().await;
}
