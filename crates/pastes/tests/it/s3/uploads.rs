//! Uploads whose put or verification fails.

use leasehold_testing::s3::{Op, Outcome, Rule};
use pastes::{Reading, Settings};

use super::S3Fixture;
use crate::fixture::{settings, until};

/// Returns the outcomes of all requests of one kind.
fn about(fixture: &S3Fixture, op: Op) -> Vec<Outcome> {
    fixture.s3.log().iter().filter(|entry| entry.op == op).map(|entry| entry.outcome).collect()
}

#[tokio::test]
async fn e1_upload_with_a_lost_response_is_found_and_checked() {
    let fixture = S3Fixture::new().await;
    fixture.s3.add(Rule::on(Op::Put).apply_then_drop());
    let code = fixture.paste("once").await;
    fixture.work().await;
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS", "the upload is not recorded");
    assert_eq!(fixture.keys().len(), 1);
    fixture.work_it_off().await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    assert_eq!(
        about(&fixture, Op::Put),
        [Outcome::Lost, Outcome::Refused(412)],
        "the object is not written again"
    );
    assert_eq!(fixture.bytes(&code).await, b"once");
    fixture.assert_settled().await;
}

#[tokio::test]
async fn e1_direct_upload_and_job_write_the_same_key() {
    let fixture = S3Fixture::with(Settings { direct_upload: true, ..settings() }).await;
    let lost = fixture.s3.add(Rule::on(Op::Put).apply_then_drop());
    let code = fixture.paste("once").await;
    fixture.s3.wait_fired(lost).await.unwrap();
    fixture.work_it_off().await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    fixture.assert_settled().await;
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
    let fixture = S3Fixture::new().await;
    for (what, rule) in rules {
        let text = format!("precious: {what}");
        let rule = fixture.s3.add(rule);
        let code = fixture.paste(&text).await;
        fixture.work().await;
        assert_eq!(fixture.s3.fired(rule), 1, "{what}");
        assert_eq!(fixture.status(&code).await, "IN_PROGRESS", "{what}");
        let staged = fixture.count("select count(*) from pastes.staged").await;
        assert_eq!(staged, 1, "{what}: the bytes stay until the object is verified");
        fixture.work_it_off().await;
        assert_eq!(fixture.status(&code).await, "PROCESSED", "{what}");
        assert_eq!(fixture.bytes(&code).await, text.as_bytes(), "{what}");
        fixture.s3.remove(rule);
    }
    fixture.assert_settled().await;
}

/// The paste ends before the put is applied, before the uploader gets its response, before the object
/// is read back, and before the uploader gets the bytes.
#[tokio::test]
async fn e13_paste_that_ends_during_its_upload_leaves_no_object() {
    let moments = [
        (Rule::on(Op::Put).hold(), "the put is under way"),
        (Rule::on(Op::Put).hold_reply(), "the put is done"),
        (Rule::on(Op::Get).hold(), "the proof is under way"),
        (Rule::on(Op::Get).hold_reply(), "the proof is done"),
    ];
    for (rule, moment) in moments {
        let fixture = S3Fixture::with(Settings { direct_upload: true, ..settings() }).await;
        let held = fixture.s3.add(rule);
        let code = fixture.paste("too late").await;
        fixture.s3.wait_fired(held).await.unwrap();
        fixture.expire(&code).await;
        fixture.sweep().await;
        // Release it at once: an upload that is held for too long times out.
        fixture.s3.remove(held);
        assert_eq!(fixture.deletion_status(&code).await, "DELETED", "{moment}");
        let gone = "select count(*) from pastes.contents where state = 'GONE'";
        assert_eq!(fixture.count(gone).await, 1, "{moment}");
        // Either the uploader misses its object, or it learns that no paste refers to it any more and
        // enqueues its deletion.
        let jobs = "select count(*) from leasehold.job where name = 'pastes.delete_objects'";
        let missed = || about(&fixture, Op::Get).contains(&Outcome::Missing);
        until(async || missed() || fixture.count(jobs).await == 1).await;
        fixture.work_it_off().await;
        assert_eq!(fixture.keys(), Vec::<String>::new(), "{moment}");
        assert_eq!(
            fixture.status(&code).await,
            "IN_PROGRESS",
            "{moment}: it never became readable"
        );
        assert!(fixture.pastes.read(&code).await.is_err());
        fixture.assert_ref_counts().await;
    }
}

#[tokio::test]
async fn e19_upload_is_one_request() {
    let most = 6 * 1024 * 1024;
    let fixture = S3Fixture::with(Settings { max_size: most, ..settings() }).await;
    let (small, large) = (fixture.paste("x").await, fixture.paste(&"y".repeat(most)).await);
    fixture.work_it_off().await;
    for code in [small, large] {
        assert!(matches!(fixture.pastes.read(&code).await.unwrap(), Reading::Ready(_)));
    }
    assert_eq!(about(&fixture, Op::Put).len(), 2);
    assert_eq!(fixture.s3.count(Op::Multipart), 0, "no unfinished upload can be left");
    fixture.assert_settled().await;
}
