//! Incomplete listings, and objects that the database does not know.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};

use super::S3Rig;

const OLD: Duration = Duration::from_secs(48 * 60 * 60);

/// Sets up two live pastes and a dead object, all old enough to be deleted.
async fn setup() -> (S3Rig, [pastes::ShortCode; 2], String) {
    let rig = S3Rig::new().await;
    let dead = rig.paste("dead").await;
    rig.work_it_off().await;
    let (key, bytes) = (rig.keys().remove(0), b"dead");
    rig.expire(&dead).await;
    rig.sweep().await;
    let alive = [rig.paste("alive 1").await, rig.paste("alive 2").await];
    rig.work_it_off().await;
    rig.s3.put_object(&key, bytes).unwrap();
    for key in rig.keys() {
        rig.s3.age_object(&key, OLD);
    }
    let sql = "update pastes.contents set changed_at = now() - interval '48 hours'";
    rig.client.batch_execute(sql).await.unwrap();
    (rig, alive, key)
}

async fn assert_alive(rig: &S3Rig, alive: &[pastes::ShortCode; 2]) {
    assert_eq!(rig.bytes(&alive[0]).await, b"alive 1");
    assert_eq!(rig.bytes(&alive[1]).await, b"alive 2");
}

#[tokio::test]
async fn e22_nothing_is_concluded_from_what_a_list_lacks() {
    let (rig, alive, dead) = setup().await;
    let all_hidden = rig.s3.add(Rule::hide_from_lists("blobs/"));
    let report = rig.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted), (0, 0));
    rig.s3.remove(all_hidden);
    let one_hidden = rig.s3.add(Rule::hide_from_lists(pastes::store::hash_of(b"alive 1")));
    let report = rig.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted, report.unknown), (2, 1, 0));
    assert!(!rig.keys().contains(&dead), "only what the table calls dead");
    rig.s3.remove(one_hidden);
    assert_alive(&rig, &alive).await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'LIVE'").await, 2);
}

#[tokio::test]
async fn e22_objects_of_others_are_counted_and_left_alone() {
    let (rig, alive, _) = setup().await;
    let hash = pastes::store::hash_of(b"alive 1");
    let strangers = [
        "blobs/readme.txt".to_owned(),
        // An id that a restored database has not assigned yet.
        format!(
            "blobs/{}/{hash}-999999-{}",
            hash.get(..3).unwrap(),
            uuid::Uuid::from_u128(1).simple()
        ),
        // The id of a dead content, but another object id: not its object.
        format!("blobs/{}/{hash}-1-{}", hash.get(..3).unwrap(), uuid::Uuid::from_u128(2).simple()),
        "elsewhere/file".to_owned(),
    ];
    for key in &strangers {
        rig.s3.put_object(key, b"not ours").unwrap();
        rig.s3.age_object(key, OLD);
    }
    let report = rig.pastes.check_orphans().await.unwrap();
    assert_eq!((report.deleted, report.unknown), (1, 3), "what is elsewhere is not even seen");
    for key in &strangers {
        assert!(rig.s3.keys().contains(key), "{key}");
    }
    assert_alive(&rig, &alive).await;
}

#[tokio::test]
async fn e22_a_list_that_fails_deletes_nothing() {
    let (rig, alive, dead) = setup().await;
    rig.s3.add(Rule::on(Op::List).fail(500));
    assert!(rig.pastes.check_orphans().await.is_err());
    rig.s3.add(Rule::on(Op::List).cut_inside());
    assert!(rig.pastes.check_orphans().await.is_err());
    assert!(rig.keys().contains(&dead));
    assert_alive(&rig, &alive).await;
    assert_eq!(rig.pastes.check_orphans().await.unwrap().deleted, 1);
}
