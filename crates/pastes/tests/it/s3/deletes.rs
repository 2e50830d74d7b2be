//! Deletions that fail, arrive late, or race with new pastes of the same bytes.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};

use super::S3Fixture;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sets the time since when DOOMED and GONE contents are dead.
async fn change_the_dead(fixture: &S3Fixture, ago: Duration) {
    let sql = "update pastes.contents set changed_at = now() - make_interval(secs => $1) \
               where state in ('DOOMED', 'GONE')";
    fixture.client.execute(sql, &[&ago.as_secs_f64()]).await.unwrap();
}

#[tokio::test]
async fn e4_late_delete_does_not_hit_new_bytes() {
    let fixture = S3Fixture::new().await;
    let first = fixture.paste("same bytes").await;
    fixture.work_it_off().await;
    let old_key = fixture.keys().remove(0);
    fixture.expire(&first).await;
    let late = fixture.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).land_later());
    fixture.sweep().await;
    fixture.s3.wait_fired(late).await.unwrap();

    let second = fixture.paste("same bytes").await;
    fixture.work_it_off().await;
    assert_eq!(fixture.status(&second).await, "PROCESSED");
    assert_eq!(fixture.bytes(&second).await, b"same bytes");
    fixture.s3.remove(late);
    // The job's second attempt has already deleted the old key: the late delete finds nothing.
    fixture.s3.wait_for_times(Op::DeleteMany, 2).await.unwrap();
    assert_eq!(fixture.bytes(&second).await, b"same bytes");
    assert!(!fixture.keys().contains(&old_key));
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e4_delete_in_flight_does_not_hit_a_new_upload_of_the_same_bytes() {
    let fixture = S3Fixture::new().await;
    let first = fixture.paste("same bytes").await;
    fixture.work_it_off().await;
    fixture.expire(&first).await;
    let held = fixture.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).hold());
    let worker = pastes::worker(&fixture.pastes, fixture.engine.worker()).unwrap();
    fixture.pastes.expiry_sweep().unwrap().run_once(&fixture.engine).await.unwrap();
    let working = tokio::spawn(worker.run_until_idle());
    fixture.s3.wait_fired(held).await.unwrap();
    let second = fixture.paste("same bytes").await;
    // The worker that waits for the delete uploads in the meantime.
    crate::fixture::until(async || fixture.status(&second).await == "PROCESSED").await;
    assert_eq!(fixture.keys().len(), 2, "the old object is still there");
    fixture.s3.remove(held);
    working.await.unwrap().unwrap();
    // If the client timed out, the delete lands by itself and the job runs once more.
    fixture.s3.wait_for(Op::DeleteMany).await.unwrap();
    fixture.work_it_off().await;
    assert_eq!(fixture.bytes(&second).await, b"same bytes");
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e3_late_put_of_a_deleted_object_is_deleted_a_day_later() {
    let fixture = S3Fixture::new().await;
    let late = fixture.s3.add(Rule::on(Op::Put).land_later());
    let code = fixture.paste("zombie").await;
    fixture.work().await;
    fixture.s3.wait_fired(late).await.unwrap();
    fixture.expire(&code).await;
    fixture.sweep().await;
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
    fixture.s3.remove(late);
    fixture.s3.wait_for_key(Op::Put, "").await.unwrap();
    crate::fixture::until(async || fixture.keys().len() == 1).await;
    let key = fixture.keys().remove(0);

    let check = async || fixture.pastes.check_orphans().await.unwrap();
    assert_eq!(check().await.deleted, 0, "its upload may be in progress");
    change_the_dead(&fixture, DAY * 2).await;
    assert_eq!(check().await.deleted, 0, "the object is young");
    fixture.s3.age_object(&key, DAY * 2);
    change_the_dead(&fixture, Duration::ZERO).await;
    assert_eq!(check().await.deleted, 0, "its intent has not been dead for a day");
    change_the_dead(&fixture, DAY * 2).await;
    let report = check().await;
    assert_eq!((report.seen, report.deleted, report.unknown), (1, 1, 0));
    assert_eq!(fixture.keys(), Vec::<String>::new());
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e18_deletions_wait_for_a_store_that_is_down() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("dead soon").await;
    fixture.work_it_off().await;
    fixture.expire(&code).await;
    fixture.s3.go_down();
    fixture.sweep().await;
    assert_eq!(fixture.deletion_status(&code).await, "DELETED", "the database comes first");
    while fixture.backoff().await < Duration::from_secs(2 * 60 * 60) {
        let wait = fixture.wait().await.expect("the job still waits");
        fixture.later(wait).await;
        fixture.work().await;
    }
    assert_eq!(fixture.keys().len(), 1);
    fixture.s3.come_back();
    fixture.work_it_off().await;
    assert_eq!(fixture.keys(), Vec::<String>::new());
    let dead =
        "select count(*) from leasehold_internal.dead_job where name = 'pastes.delete_objects'";
    assert_eq!(fixture.count(dead).await, 0);
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e1_deletion_with_a_lost_response_is_repeated() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("dead soon").await;
    fixture.work_it_off().await;
    fixture.expire(&code).await;
    fixture.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).apply_then_drop());
    fixture.sweep().await;
    assert_eq!(
        fixture.count("select count(*) from pastes.contents where state = 'DOOMED'").await,
        1
    );
    fixture.work_it_off().await;
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
    fixture.assert_settled().await;
}

/// S3 reports success for the batch as a whole, and a result for each key.
#[tokio::test]
async fn refused_key_of_a_batch_is_retried() {
    let fixture = S3Fixture::new().await;
    let codes =
        [fixture.paste("one").await, fixture.paste("two").await, fixture.paste("three").await];
    fixture.work_it_off().await;
    for code in &codes {
        fixture.expire(code).await;
    }
    let stubborn = pastes::store::hash_of(b"two");
    let refused = fixture.s3.add(Rule::on(Op::DeleteMany).key(&stubborn).refuse_keys());
    fixture.sweep().await;
    assert_eq!(fixture.s3.fired(refused), 1);
    assert_eq!(fixture.keys().len(), 1);
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'GONE'").await, 2);
    fixture.work_it_off().await;
    assert_eq!(fixture.count("select count(*) from pastes.contents where state = 'GONE'").await, 3);
    fixture.assert_settled().await;
}

/// A 200 whose body is an error says nothing about any key.
#[tokio::test]
async fn e17_error_in_a_200_is_not_a_deletion() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("still there").await;
    fixture.work_it_off().await;
    fixture.expire(&code).await;
    let lie = fixture.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).error_in_200());
    fixture.sweep().await;
    assert_eq!(fixture.s3.fired(lie), 1);
    assert_eq!(
        fixture.count("select count(*) from pastes.contents where state = 'DOOMED'").await,
        1
    );
    fixture.work_it_off().await;
    fixture.assert_settled().await;
}
