//! Reads on a store that returns wrong bytes, is late, or has lost an object.

use leasehold_testing::s3::{Op, Rule};
use pastes::ReadError;

use super::S3Rig;

#[tokio::test]
async fn e14_a_read_that_meets_the_deletion_hears_that_it_is_over() {
    let rig = S3Rig::new().await;
    let code = rig.paste("short life").await;
    rig.work_it_off().await;
    let key = rig.keys().remove(0);
    let held = rig.s3.add(Rule::on(Op::Get).hold());
    let reading = {
        let (pastes, code) = (rig.pastes.clone(), code.clone());
        tokio::spawn(async move { pastes.read(&code).await })
    };
    rig.s3.wait_fired(held).await.unwrap();
    // The effect of the sweep and its job, but faster than the timeout of a read.
    rig.expire(&code).await;
    assert!(rig.s3.remove_object(&key).unwrap());
    rig.s3.remove(held);
    let answer = reading.await.unwrap();
    assert!(matches!(answer, Err(ReadError::NotFound)), "{answer:?}");
}

#[tokio::test]
async fn e14_an_object_that_is_missing_under_a_living_paste_is_no_end_of_it() {
    let rig = S3Rig::new().await;
    let code = rig.paste("alive").await;
    rig.work_it_off().await;
    let key = rig.keys().remove(0);
    rig.s3.remove_object(&key).unwrap();
    let answer = rig.pastes.read(&code).await;
    assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "{answer:?}");
    // Two gets: the paste could have ended, or been uploaded, in between.
    let gets = rig.s3.log().iter().filter(|entry| entry.op == Op::Get).count();
    assert_eq!(gets, 3, "one to prove the upload, two to read");
    rig.s3.put_object(&key, b"alive").unwrap();
    assert_eq!(rig.bytes(&code).await, b"alive");
}

#[tokio::test]
async fn e17_wrong_bytes_are_never_handed_out() {
    let rules = [
        ("another byte", Rule::on(Op::Get).flip_byte()),
        ("half of them", Rule::on(Op::Get).shorten()),
        ("cut off", Rule::on(Op::Get).cut_inside()),
        ("an error as the body", Rule::on(Op::Get).error_in_200()),
    ];
    let rig = S3Rig::new().await;
    let code = rig.paste("precious bytes").await;
    rig.work_it_off().await;
    for (what, rule) in rules {
        rig.s3.add(rule);
        let answer = rig.pastes.read(&code).await;
        assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "{what}: {answer:?}");
        assert_eq!(
            rig.bytes(&code).await,
            b"precious bytes",
            "{what}: nothing of it is remembered"
        );
    }
    let key = rig.keys().remove(0);
    rig.s3.rot_object(&key).unwrap();
    let answer = rig.pastes.read(&code).await;
    assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "rotten: {answer:?}");
}

#[tokio::test]
async fn e18_a_store_that_is_down_burns_nothing() {
    let rig = S3Rig::new().await;
    let burns = pastes::NewPaste { burn: true, ..crate::rig::new("read me once") };
    let code = rig.pastes.create(burns).await.unwrap().code;
    rig.work_it_off().await;
    rig.s3.go_down();
    let answer = rig.pastes.burn(&code, None).await;
    assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "{answer:?}");
    rig.s3.come_back();
    assert_eq!(rig.pastes.burn(&code, None).await.unwrap().content, "read me once");
    assert!(matches!(rig.pastes.burn(&code, None).await, Err(ReadError::NotFound)));
}

#[tokio::test]
async fn e18_readers_stop_asking_a_store_that_keeps_failing() {
    let rig = S3Rig::new().await;
    let code = rig.paste("timeout").await;
    rig.work_it_off().await;
    let down = rig.s3.add(Rule::on(Op::Get).fail(503).always());
    // Two more than the breaker needs to open; half a minute later it would let a probe through.
    for _ in 0..12 {
        let answer = rig.pastes.read(&code).await;
        assert!(matches!(answer, Err(ReadError::StoreDown { .. })), "{answer:?}");
    }
    assert_eq!(rig.s3.fired(down), 10, "ten failures are enough");
    assert!(rig.pastes.store().breaker().is_open());
}

/// Creates a paste with an alias and uploads it.
async fn named(rig: &S3Rig, text: &str, burn: bool) -> pastes::ShortCode {
    let alias = Some("name".to_owned());
    let new = pastes::NewPaste { alias, burn, ..crate::rig::new(text) };
    let code = rig.pastes.create(new).await.unwrap().code;
    rig.work_it_off().await;
    code
}

#[tokio::test]
async fn e37_burning_one_paste_leaves_the_next_of_its_name_unread() {
    let rig = S3Rig::new().await;
    let code = named(&rig, "first", true).await;
    let held = rig.s3.add(Rule::on(Op::Get).hold());
    let (pastes, asked) = (rig.pastes.clone(), code.clone());
    let burning = tokio::spawn(async move { pastes.burn(&asked, None).await });
    rig.s3.wait_fired(held).await.unwrap();
    rig.expire(&code).await;
    let alias = Some("name".to_owned());
    let next = pastes::NewPaste { alias, burn: true, ..crate::rig::new("second") };
    rig.pastes.create(next).await.unwrap();
    rig.s3.remove(held);
    let burnt = burning.await.unwrap();
    assert!(matches!(burnt, Err(ReadError::NotFound)), "{burnt:?}");
    rig.work_it_off().await;
    assert_eq!(rig.pastes.burn(&code, None).await.unwrap().content, "second", "nobody has read it");
}

#[tokio::test]
async fn e37_reader_of_one_paste_is_not_given_the_next_one_that_burns() {
    let rig = S3Rig::new().await;
    let code = named(&rig, "first", false).await;
    let held = rig.s3.add(Rule::on(Op::Get).hold());
    let (pastes, asked) = (rig.pastes.clone(), code.clone());
    let reading = tokio::spawn(async move { pastes.read(&asked).await });
    rig.s3.wait_fired(held).await.unwrap();
    rig.expire(&code).await;
    for key in rig.keys() {
        rig.s3.remove_object(&key).unwrap();
    }
    let alias = Some("name".to_owned());
    let next = pastes::NewPaste { alias, burn: true, ..crate::rig::new("second") };
    rig.pastes.create(next).await.unwrap();
    rig.client
        .batch_execute(
            "update pastes.pastes set status = 'PROCESSED', s3_url = 'x' where short_code = 'name'; \
             delete from leasehold.job",
        )
        .await
        .unwrap();
    let row = "select content_hash || '-' || content_id || '-' || replace(object_id::text, '-', '') \
               from pastes.contents where state = 'STAGED'";
    let name: String = rig.client.query_one(row, &[]).await.unwrap().get(0);
    let key = format!("blobs/{}/{name}", name.get(..3).unwrap());
    rig.s3.put_object(&key, b"second").unwrap();
    rig.s3.remove(held);
    let read = reading.await.unwrap();
    assert!(matches!(read, Err(ReadError::NotFound)), "{read:?}");
}
