//! Uploads whose put or verification fails.

use leasehold_testing::s3::{Op, Outcome, Rule};
use pastes::{Reading, Settings};

use super::S3Rig;
use crate::rig::{settings, until};

/// Returns the outcomes of all requests of one kind.
fn about(rig: &S3Rig, op: Op) -> Vec<Outcome> {
    rig.s3.log().iter().filter(|entry| entry.op == op).map(|entry| entry.outcome).collect()
}

#[tokio::test]
async fn e1_an_upload_whose_answer_was_lost_is_found_and_checked() {
    let rig = S3Rig::new().await;
    rig.s3.add(Rule::on(Op::Put).apply_then_drop());
    let code = rig.paste("once").await;
    rig.work().await;
    assert_eq!(rig.status(&code).await, "IN_PROGRESS", "nobody knows that it is there");
    assert_eq!(rig.keys().len(), 1);
    rig.work_it_off().await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    assert_eq!(
        about(&rig, Op::Put),
        [Outcome::Lost, Outcome::Refused(412)],
        "what is there is not written again"
    );
    assert_eq!(rig.bytes(&code).await, b"once");
    rig.assert_settled().await;
}

#[tokio::test]
async fn e1_the_direct_upload_and_the_job_write_the_same_key() {
    let rig = S3Rig::with(Settings { direct_upload: true, ..settings() }).await;
    let lost = rig.s3.add(Rule::on(Op::Put).apply_then_drop());
    let code = rig.paste("once").await;
    rig.s3.wait_fired(lost).await.unwrap();
    rig.work_it_off().await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    rig.assert_settled().await;
}

#[tokio::test]
async fn e17_wrong_bytes_never_count_as_uploaded() {
    let rules = [
        ("stored with another byte", Rule::on(Op::Put).corrupt()),
        ("not stored at all", Rule::on(Op::Put).error_in_200()),
        ("read back with another byte", Rule::on(Op::Get).flip_byte()),
        ("read back by half", Rule::on(Op::Get).shorten()),
        ("cut off while read back", Rule::on(Op::Get).cut_inside()),
        ("read back as an error", Rule::on(Op::Get).error_in_200()),
        ("proof refused", Rule::on(Op::Get).fail(500)),
        ("proof lost", Rule::on(Op::Get).drop_before()),
    ];
    let rig = S3Rig::new().await;
    for (what, rule) in rules {
        let text = format!("precious: {what}");
        let rule = rig.s3.add(rule);
        let code = rig.paste(&text).await;
        rig.work().await;
        assert_eq!(rig.s3.fired(rule), 1, "{what}");
        assert_eq!(rig.status(&code).await, "IN_PROGRESS", "{what}");
        let staged = rig.count("select count(*) from pastes.staged").await;
        assert_eq!(staged, 1, "{what}: the bytes stay until the object was seen");
        rig.work_it_off().await;
        assert_eq!(rig.status(&code).await, "PROCESSED", "{what}");
        assert_eq!(rig.bytes(&code).await, text.as_bytes(), "{what}");
        rig.s3.remove(rule);
    }
    rig.assert_settled().await;
}

/// The paste ends before the put is applied, before the uploader gets its response, before the object
/// is read back, and before the uploader gets the bytes.
#[tokio::test]
async fn e13_a_paste_that_ends_during_its_upload_leaves_nothing_behind() {
    let moments = [
        (Rule::on(Op::Put).hold(), "the put is under way"),
        (Rule::on(Op::Put).hold_reply(), "the put is done"),
        (Rule::on(Op::Get).hold(), "the proof is under way"),
        (Rule::on(Op::Get).hold_reply(), "the proof is done"),
    ];
    for (rule, moment) in moments {
        let rig = S3Rig::with(Settings { direct_upload: true, ..settings() }).await;
        let held = rig.s3.add(rule);
        let code = rig.paste("too late").await;
        rig.s3.wait_fired(held).await.unwrap();
        rig.expire(&code).await;
        rig.sweep().await;
        // Release it at once: an upload that is held for too long times out.
        rig.s3.remove(held);
        assert_eq!(rig.deletion_status(&code).await, "DELETED", "{moment}");
        let gone = "select count(*) from pastes.contents where state = 'GONE'";
        assert_eq!(rig.count(gone).await, 1, "{moment}");
        // Either the uploader misses its object, or it learns that no paste refers to it any more and
        // enqueues its deletion.
        let jobs = "select count(*) from leasehold.job where name = 'pastes.delete_objects'";
        let missed = || about(&rig, Op::Get).contains(&Outcome::Missing);
        until(async || missed() || rig.count(jobs).await == 1).await;
        rig.work_it_off().await;
        assert_eq!(rig.keys(), Vec::<String>::new(), "{moment}");
        assert_eq!(rig.status(&code).await, "IN_PROGRESS", "{moment}: it never became readable");
        assert!(rig.pastes.read(&code).await.is_err());
        rig.assert_ref_counts().await;
    }
}

#[tokio::test]
async fn e19_no_upload_is_made_in_parts() {
    let most = 6 * 1024 * 1024;
    let rig = S3Rig::with(Settings { max_size: most, ..settings() }).await;
    let (small, large) = (rig.paste("x").await, rig.paste(&"y".repeat(most)).await);
    rig.work_it_off().await;
    for code in [small, large] {
        assert!(matches!(rig.pastes.read(&code).await.unwrap(), Reading::Ready(_)));
    }
    assert_eq!(about(&rig, Op::Put).len(), 2);
    assert_eq!(rig.s3.count(Op::Multipart), 0, "nothing unfinished can stay behind");
    rig.assert_settled().await;
}
