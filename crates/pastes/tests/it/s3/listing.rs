//! Incomplete listings, and objects that the database does not know.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};

use super::S3Fixture;

const OLD: Duration = Duration::from_secs(48 * 60 * 60);

/// Sets up two live pastes and a dead object, all old enough to be deleted.
async fn setup() -> (S3Fixture, [pastes::ShortCode; 2], String) {
    let fixture = S3Fixture::new().await;
    let dead = fixture.paste("dead").await;
    fixture.work_it_off().await;
    let (key, bytes) = (fixture.keys().remove(0), b"dead");
    fixture.expire(&dead).await;
    fixture.sweep().await;
    let alive = [fixture.paste("alive 1").await, fixture.paste("alive 2").await];
    fixture.work_it_off().await;
    fixture.s3.put_object(&key, bytes).unwrap();
    for key in fixture.keys() {
        fixture.s3.age_object(&key, OLD);
    }
    let sql = "update pastes.contents set changed_at = now() - interval '48 hours'";
    fixture.client.batch_execute(sql).await.unwrap();
    (fixture, alive, key)
}

async fn assert_alive(fixture: &S3Fixture, alive: &[pastes::ShortCode; 2]) {
    assert_eq!(fixture.bytes(&alive[0]).await, b"alive 1");
    assert_eq!(fixture.bytes(&alive[1]).await, b"alive 2");
}

#[tokio::test]
async fn e22_orphan_check_concludes_nothing_from_missing_objects() {
    let (fixture, alive, dead) = setup().await;
    let all_hidden = fixture.s3.add(Rule::hide_from_lists("blobs/"));
    let report = fixture.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted), (0, 0));
    fixture.s3.remove(all_hidden);
    let one_hidden = fixture.s3.add(Rule::hide_from_lists(pastes::store::hash_of(b"alive 1")));
    let report = fixture.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted, report.unknown), (2, 1, 0));
    assert!(!fixture.keys().contains(&dead), "only objects that the table calls dead");
    fixture.s3.remove(one_hidden);
    assert_alive(&fixture, &alive).await;
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'LIVE'").await, 2);
}

#[tokio::test]
async fn e22_orphan_check_leaves_unknown_objects() {
    let (fixture, alive, _) = setup().await;
    let hash = pastes::store::hash_of(b"alive 1");
    let foreign = [
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
    for key in &foreign {
        fixture.s3.put_object(key, b"not ours").unwrap();
        fixture.s3.age_object(key, OLD);
    }
    let report = fixture.pastes.check_orphans().await.unwrap();
    assert_eq!(
        (report.deleted, report.unknown),
        (1, 3),
        "objects under other prefixes are not listed"
    );
    for key in &foreign {
        assert!(fixture.s3.keys().contains(key), "{key}");
    }
    assert_alive(&fixture, &alive).await;
}

#[tokio::test]
async fn e22_orphan_check_deletes_nothing_if_the_listing_fails() {
    let (fixture, alive, dead) = setup().await;
    fixture.s3.add(Rule::on(Op::List).fail(500));
    assert!(fixture.pastes.check_orphans().await.is_err());
    fixture.s3.add(Rule::on(Op::List).cut_inside());
    assert!(fixture.pastes.check_orphans().await.is_err());
    assert!(fixture.keys().contains(&dead));
    assert_alive(&fixture, &alive).await;
    assert_eq!(fixture.pastes.check_orphans().await.unwrap().deleted, 1);
}
