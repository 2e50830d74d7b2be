//! Creating pastes.

use std::time::Duration;

use pastes::{CreateError, NewPaste, Reading, Settings};

use crate::rig::{Rig, new, settings, until};

#[tokio::test]
async fn a_paste_its_bytes_and_its_job_are_one_commit() {
    let rig = Rig::new().await;
    let code = rig.paste("hello").await;
    let row = rig
        .client
        .query_one(
            "select p.status::text, p.s3_url is null, s.bytes, j.name, c.ref_count, c.state::text \
             from pastes.pastes p join pastes.staged s using (short_code) \
             join leasehold.job j on j.id = s.job_id \
             join pastes.contents c on c.content_id = p.content_id where p.short_code = $1",
            &[&code.as_str()],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "IN_PROGRESS");
    assert!(row.get::<_, bool>(1));
    assert_eq!(row.get::<_, Vec<u8>>(2), b"hello");
    assert_eq!(row.get::<_, String>(3), "pastes.upload");
    assert_eq!(row.get::<_, i32>(4), 1);
    assert_eq!(row.get::<_, String>(5), "STAGED");
    assert!(matches!(rig.pastes.read(&code).await.unwrap(), Reading::Uploading { .. }));
}

#[tokio::test]
async fn the_direct_upload_makes_a_paste_readable_and_settles_its_job() {
    let rig = Rig::with(Settings { direct_upload: true, ..settings() }).await;
    let code = rig.paste("hello").await;
    until(async || rig.status(&code).await == "PROCESSED").await;
    assert_eq!(rig.bytes(&code).await, b"hello");
    let left = "select (select count(*) from leasehold.job) + (select count(*) from pastes.staged)";
    let left: i64 = rig.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "nothing is left to do");
    assert_eq!(rig.objects(), 1);
}

#[tokio::test]
async fn e21_the_edges_of_size() {
    let rig = Rig::with(Settings { max_size: 10, ..settings() }).await;
    assert!(matches!(rig.pastes.create(new("")).await, Err(CreateError::Empty)));
    rig.paste("1").await;
    rig.paste("1234567890").await;
    let too_much = rig.pastes.create(new("12345678901")).await;
    assert!(matches!(too_much, Err(CreateError::TooLarge { size: 11, limit: 10 })));
}

#[tokio::test]
async fn a_request_that_is_repeated_with_its_key_makes_one_paste() {
    let rig = Rig::new().await;
    let asked = || NewPaste { idempotency_key: Some("abc".into()), ..new("once") };
    let first = rig.pastes.create(asked()).await.unwrap();
    let again = rig.pastes.create(asked()).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!((&first.code, &first.delete_token), (&again.code, &again.delete_token));
    let other = NewPaste { content: "twice".into(), ..asked() };
    assert!(matches!(rig.pastes.create(other).await, Err(CreateError::KeyReused)));
    let stranger = NewPaste { client: Some([192, 0, 2, 1].into()), ..asked() };
    assert!(!rig.pastes.create(stranger).await.unwrap().replayed, "keys of others are others");
}

#[tokio::test]
async fn an_alias_can_be_used_again_when_its_paste_is_over() {
    let rig = Rig::new().await;
    let named = |text: &str| NewPaste { alias: Some("notes".into()), ..new(text) };
    let code = rig.pastes.create(named("one")).await.unwrap().code;
    assert!(matches!(rig.pastes.create(named("two")).await, Err(CreateError::AliasTaken(_))));
    rig.expire(&code).await;
    rig.pastes.create(named("three")).await.unwrap();
    let life = NewPaste { expires_in: Some(Duration::from_secs(400 * 86400)), ..new("x") };
    assert!(matches!(rig.pastes.create(life).await, Err(CreateError::BadExpiry { .. })));
}
