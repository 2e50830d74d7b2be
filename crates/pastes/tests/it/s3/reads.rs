//! Reads on a store that returns wrong bytes, is late, or has lost an object.

use leasehold_testing::s3::{Op, Rule};
use pastes::ReadError;

use super::S3Fixture;

#[tokio::test]
async fn e14_read_during_the_deletion_is_not_found() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("short life").await;
    fixture.work_it_off().await;
    let key = fixture.keys().remove(0);
    let held = fixture.s3.add(Rule::on(Op::Get).hold());
    let reading = {
        let (pastes, code) = (fixture.pastes.clone(), code.clone());
        tokio::spawn(async move { pastes.read(&code).await })
    };
    fixture.s3.wait_fired(held).await.unwrap();
    // The effect of the sweep and its job, but faster than the timeout of a read.
    fixture.expire(&code).await;
    assert!(fixture.s3.remove_object(&key).unwrap());
    fixture.s3.remove(held);
    let response = reading.await.unwrap();
    assert!(matches!(response, Err(ReadError::NotFound)), "{response:?}");
}

#[tokio::test]
async fn e14_missing_object_of_a_live_paste_is_no_404() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("alive").await;
    fixture.work_it_off().await;
    let key = fixture.keys().remove(0);
    fixture.s3.remove_object(&key).unwrap();
    let response = fixture.pastes.read(&code).await;
    assert!(matches!(response, Err(ReadError::StoreDown { .. })), "{response:?}");
    // Two gets: the paste could have ended, or been uploaded, in between.
    let gets = fixture.s3.log().iter().filter(|entry| entry.op == Op::Get).count();
    assert_eq!(gets, 3, "one to verify the upload, two to read");
    fixture.s3.put_object(&key, b"alive").unwrap();
    assert_eq!(fixture.bytes(&code).await, b"alive");
}

#[tokio::test]
async fn e17_wrong_bytes_are_never_served() {
    let rules = [
        ("another byte", Rule::on(Op::Get).flip_byte()),
        ("half of them", Rule::on(Op::Get).shorten()),
        ("cut off", Rule::on(Op::Get).cut_inside()),
        ("an error as the body", Rule::on(Op::Get).error_in_200()),
    ];
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("precious bytes").await;
    fixture.work_it_off().await;
    for (what, rule) in rules {
        fixture.s3.add(rule);
        let response = fixture.pastes.read(&code).await;
        assert!(matches!(response, Err(ReadError::StoreDown { .. })), "{what}: {response:?}");
        assert_eq!(
            fixture.bytes(&code).await,
            b"precious bytes",
            "{what}: the wrong bytes are not cached"
        );
    }
    let key = fixture.keys().remove(0);
    fixture.s3.rot_object(&key).unwrap();
    let response = fixture.pastes.read(&code).await;
    assert!(matches!(response, Err(ReadError::StoreDown { .. })), "rotten: {response:?}");
}

#[tokio::test]
async fn e18_paste_is_not_burnt_while_the_store_is_down() {
    let fixture = S3Fixture::new().await;
    let burns = pastes::NewPaste { burn: true, ..crate::fixture::new("read me once") };
    let code = fixture.pastes.create(burns).await.unwrap().code;
    fixture.work_it_off().await;
    fixture.s3.go_down();
    let response = fixture.pastes.burn(&code, None).await;
    assert!(matches!(response, Err(ReadError::StoreDown { .. })), "{response:?}");
    fixture.s3.come_back();
    assert_eq!(fixture.pastes.burn(&code, None).await.unwrap().content, "read me once");
    assert!(matches!(fixture.pastes.burn(&code, None).await, Err(ReadError::NotFound)));
}

#[tokio::test]
async fn e18_reads_stop_after_ten_failures_of_the_store() {
    let fixture = S3Fixture::new().await;
    let code = fixture.paste("timeout").await;
    fixture.work_it_off().await;
    let down = fixture.s3.add(Rule::on(Op::Get).fail(503).always());
    // Two more than the breaker needs to open; half a minute later it would let a probe through.
    for _ in 0..12 {
        let response = fixture.pastes.read(&code).await;
        assert!(matches!(response, Err(ReadError::StoreDown { .. })), "{response:?}");
    }
    assert_eq!(fixture.s3.fired(down), 10, "ten failures are enough");
    assert!(fixture.pastes.store().breaker().is_open());
}

/// Creates a paste with an alias and uploads it.
async fn named(fixture: &S3Fixture, text: &str, burn: bool) -> pastes::ShortCode {
    let alias = Some("name".to_owned());
    let new = pastes::NewPaste { alias, burn, ..crate::fixture::new(text) };
    let code = fixture.pastes.create(new).await.unwrap().code;
    fixture.work_it_off().await;
    code
}

#[tokio::test]
async fn e37_burning_one_paste_leaves_the_next_of_its_name_unread() {
    let fixture = S3Fixture::new().await;
    let code = named(&fixture, "first", true).await;
    let held = fixture.s3.add(Rule::on(Op::Get).hold());
    let (pastes, asked) = (fixture.pastes.clone(), code.clone());
    let burning = tokio::spawn(async move { pastes.burn(&asked, None).await });
    fixture.s3.wait_fired(held).await.unwrap();
    fixture.expire(&code).await;
    let alias = Some("name".to_owned());
    let next = pastes::NewPaste { alias, burn: true, ..crate::fixture::new("second") };
    fixture.pastes.create(next).await.unwrap();
    fixture.s3.remove(held);
    let burnt = burning.await.unwrap();
    assert!(matches!(burnt, Err(ReadError::NotFound)), "{burnt:?}");
    fixture.work_it_off().await;
    assert_eq!(
        fixture.pastes.burn(&code, None).await.unwrap().content,
        "second",
        "it has not been read"
    );
}

#[tokio::test]
async fn e37_reader_does_not_get_the_next_paste_of_the_name() {
    let fixture = S3Fixture::new().await;
    let code = named(&fixture, "first", false).await;
    let held = fixture.s3.add(Rule::on(Op::Get).hold());
    let (pastes, asked) = (fixture.pastes.clone(), code.clone());
    let reading = tokio::spawn(async move { pastes.read(&asked).await });
    fixture.s3.wait_fired(held).await.unwrap();
    fixture.expire(&code).await;
    for key in fixture.keys() {
        fixture.s3.remove_object(&key).unwrap();
    }
    let alias = Some("name".to_owned());
    let next = pastes::NewPaste { alias, burn: true, ..crate::fixture::new("second") };
    fixture.pastes.create(next).await.unwrap();
    fixture.client
        .batch_execute(
            "update pastes.pastes set status = 'PROCESSED', s3_url = 'x' where short_code = 'name'; \
             delete from leasehold.job",
        )
        .await
        .unwrap();
    let row = "select content_hash || '-' || content_id || '-' || replace(object_id::text, '-', '') \
               from pastes.contents where state = 'STAGED'";
    let name: String = fixture.client.query_one(row, &[]).await.unwrap().get(0);
    let key = format!("blobs/{}/{name}", name.get(..3).unwrap());
    fixture.s3.put_object(&key, b"second").unwrap();
    fixture.s3.remove(held);
    let read = reading.await.unwrap();
    assert!(matches!(read, Err(ReadError::NotFound)), "{read:?}");
}
