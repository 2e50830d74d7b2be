//! Deletions that fail, arrive late, or race with new pastes of the same bytes.

use std::time::Duration;

use leasehold_testing::s3::{Op, Rule};

use super::S3Rig;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Sets the time since when DOOMED and GONE contents are dead.
async fn change_the_dead(rig: &S3Rig, ago: Duration) {
    let sql = "update pastes.contents set changed_at = now() - make_interval(secs => $1) \
               where state in ('DOOMED', 'GONE')";
    rig.client.execute(sql, &[&ago.as_secs_f64()]).await.unwrap();
}

#[tokio::test]
async fn e4_a_delete_that_lands_last_cannot_hit_new_bytes() {
    let rig = S3Rig::new().await;
    let first = rig.paste("same bytes").await;
    rig.work_it_off().await;
    let old_key = rig.keys().remove(0);
    rig.expire(&first).await;
    let late = rig.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).land_later());
    rig.sweep().await;
    rig.s3.wait_fired(late).await.unwrap();

    let second = rig.paste("same bytes").await;
    rig.work_it_off().await;
    assert_eq!(rig.status(&second).await, "PROCESSED");
    assert_eq!(rig.bytes(&second).await, b"same bytes");
    rig.s3.remove(late);
    // The job's second attempt has already deleted the old key: the late delete finds nothing.
    rig.s3.wait_for_times(Op::DeleteMany, 2).await.unwrap();
    assert_eq!(rig.bytes(&second).await, b"same bytes");
    assert!(!rig.keys().contains(&old_key));
    rig.assert_settled().await;
}

#[tokio::test]
async fn e4_a_delete_under_way_while_the_same_bytes_are_pasted_and_uploaded() {
    let rig = S3Rig::new().await;
    let first = rig.paste("same bytes").await;
    rig.work_it_off().await;
    rig.expire(&first).await;
    let held = rig.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).hold());
    let worker = pastes::worker(&rig.pastes, rig.engine.worker()).unwrap();
    rig.pastes.expiry_sweep().unwrap().run_once(&rig.engine).await.unwrap();
    let working = tokio::spawn(worker.run_until_idle());
    rig.s3.wait_fired(held).await.unwrap();
    let second = rig.paste("same bytes").await;
    // The worker that waits for the delete uploads in the meantime.
    crate::rig::until(async || rig.status(&second).await == "PROCESSED").await;
    assert_eq!(rig.keys().len(), 2, "the old object is still there");
    rig.s3.remove(held);
    working.await.unwrap().unwrap();
    // If the client timed out, the delete lands by itself and the job runs once more.
    rig.s3.wait_for(Op::DeleteMany).await.unwrap();
    rig.work_it_off().await;
    assert_eq!(rig.bytes(&second).await, b"same bytes");
    rig.assert_settled().await;
}

#[tokio::test]
async fn e3_a_put_that_lands_after_its_object_was_deleted_goes_a_day_later() {
    let rig = S3Rig::new().await;
    let late = rig.s3.add(Rule::on(Op::Put).land_later());
    let code = rig.paste("zombie").await;
    rig.work().await;
    rig.s3.wait_fired(late).await.unwrap();
    rig.expire(&code).await;
    rig.sweep().await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
    rig.s3.remove(late);
    rig.s3.wait_for_key(Op::Put, "").await.unwrap();
    crate::rig::until(async || rig.keys().len() == 1).await;
    let key = rig.keys().remove(0);

    let check = async || rig.pastes.check_orphans().await.unwrap();
    assert_eq!(check().await.deleted, 0, "it may be an upload that is going on");
    change_the_dead(&rig, DAY * 2).await;
    assert_eq!(check().await.deleted, 0, "it came a moment ago");
    rig.s3.age_object(&key, DAY * 2);
    change_the_dead(&rig, Duration::ZERO).await;
    assert_eq!(check().await.deleted, 0, "its intent has not been dead for a day");
    change_the_dead(&rig, DAY * 2).await;
    let report = check().await;
    assert_eq!((report.seen, report.deleted, report.unknown), (1, 1, 0));
    assert_eq!(rig.keys(), Vec::<String>::new());
    rig.assert_settled().await;
}

#[tokio::test]
async fn e18_deletions_wait_for_a_store_that_is_down() {
    let rig = S3Rig::new().await;
    let code = rig.paste("dead soon").await;
    rig.work_it_off().await;
    rig.expire(&code).await;
    rig.s3.go_down();
    rig.sweep().await;
    assert_eq!(rig.deletion_status(&code).await, "DELETED", "the database comes first");
    while rig.backoff().await < Duration::from_secs(2 * 60 * 60) {
        let wait = rig.wait().await.expect("the job is still there");
        rig.later(wait).await;
        rig.work().await;
    }
    assert_eq!(rig.keys().len(), 1);
    rig.s3.come_back();
    rig.work_it_off().await;
    assert_eq!(rig.keys(), Vec::<String>::new());
    let dead = "select count(*) from leasehold.dead_job where name = 'pastes.delete_objects'";
    assert_eq!(rig.count(dead).await, 0);
    rig.assert_settled().await;
}

#[tokio::test]
async fn e1_a_deletion_whose_answer_was_lost_is_repeated_and_finds_nothing() {
    let rig = S3Rig::new().await;
    let code = rig.paste("dead soon").await;
    rig.work_it_off().await;
    rig.expire(&code).await;
    rig.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).apply_then_drop());
    rig.sweep().await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'DOOMED'").await, 1);
    rig.work_it_off().await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'GONE'").await, 1);
    rig.assert_settled().await;
}

/// S3 reports success for the batch as a whole, and a result for each key.
#[tokio::test]
async fn a_batch_of_which_one_key_is_refused_keeps_that_one_for_the_next_try() {
    let rig = S3Rig::new().await;
    let codes = [rig.paste("one").await, rig.paste("two").await, rig.paste("three").await];
    rig.work_it_off().await;
    for code in &codes {
        rig.expire(code).await;
    }
    let stubborn = pastes::store::hash_of(b"two");
    let refused = rig.s3.add(Rule::on(Op::DeleteMany).key(&stubborn).refuse_keys());
    rig.sweep().await;
    assert_eq!(rig.s3.fired(refused), 1);
    assert_eq!(rig.keys().len(), 1);
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'GONE'").await, 2);
    rig.work_it_off().await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'GONE'").await, 3);
    rig.assert_settled().await;
}

/// A 200 whose body is an error says nothing about any key.
#[tokio::test]
async fn e17_a_batch_that_is_answered_with_an_error_in_200_is_not_taken_for_done() {
    let rig = S3Rig::new().await;
    let code = rig.paste("still there").await;
    rig.work_it_off().await;
    rig.expire(&code).await;
    let lie = rig.s3.add(Rule::on(Op::Delete).and(Op::DeleteMany).error_in_200());
    rig.sweep().await;
    assert_eq!(rig.s3.fired(lie), 1);
    assert_eq!(rig.count("select count(*) from pastes.contents where state = 'DOOMED'").await, 1);
    rig.work_it_off().await;
    rig.assert_settled().await;
}
