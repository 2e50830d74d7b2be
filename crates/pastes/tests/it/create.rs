//! Creating pastes.

use std::time::Duration;

use pastes::{CreateError, NewPaste, Reading, Settings};

use crate::fixture::{Fixture, new, settings, until};

#[tokio::test]
async fn paste_its_bytes_and_its_job_are_one_commit() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("hello").await;
    let row = fixture
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
    assert!(matches!(fixture.pastes.read(&code).await.unwrap(), Reading::Uploading { .. }));
}

#[tokio::test]
async fn direct_upload_makes_the_paste_readable_and_completes_its_job() {
    let fixture = Fixture::with(Settings { direct_upload: true, ..settings() }).await;
    let code = fixture.paste("hello").await;
    until(async || fixture.status(&code).await == "PROCESSED").await;
    assert_eq!(fixture.bytes(&code).await, b"hello");
    let left = "select (select count(*) from leasehold.job) + (select count(*) from pastes.staged)";
    let left: i64 = fixture.client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "no job and no staged bytes are left");
    assert_eq!(fixture.objects(), 1);
}

#[tokio::test]
async fn e21_create_refuses_empty_and_too_large_pastes() {
    let fixture = Fixture::with(Settings { max_size: 10, ..settings() }).await;
    assert!(matches!(fixture.pastes.create(new("")).await, Err(CreateError::Empty)));
    fixture.paste("1").await;
    fixture.paste("1234567890").await;
    let too_much = fixture.pastes.create(new("12345678901")).await;
    assert!(matches!(too_much, Err(CreateError::TooLarge { size: 11, limit: 10 })));
}

#[tokio::test]
async fn repeated_request_with_a_key_creates_one_paste() {
    let fixture = Fixture::new().await;
    let asked = || NewPaste { idempotency_key: Some("abc".into()), ..new("once") };
    let first = fixture.pastes.create(asked()).await.unwrap();
    let again = fixture.pastes.create(asked()).await.unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!((&first.code, &first.delete_token), (&again.code, &again.delete_token));
    let other = NewPaste { content: "twice".into(), ..asked() };
    assert!(matches!(fixture.pastes.create(other).await, Err(CreateError::KeyReused)));
    let unknown = NewPaste { client: Some([192, 0, 2, 1].into()), ..asked() };
    assert!(
        !fixture.pastes.create(unknown).await.unwrap().replayed,
        "each client has its own keys"
    );
}

#[tokio::test]
async fn alias_can_be_used_again_after_its_paste_has_ended() {
    let fixture = Fixture::new().await;
    let named = |text: &str| NewPaste { alias: Some("notes".into()), ..new(text) };
    let code = fixture.pastes.create(named("one")).await.unwrap().code;
    assert!(matches!(fixture.pastes.create(named("two")).await, Err(CreateError::AliasTaken(_))));
    fixture.expire(&code).await;
    fixture.pastes.create(named("three")).await.unwrap();
    let life = NewPaste { expires_in: Some(Duration::from_secs(400 * 86400)), ..new("x") };
    assert!(matches!(fixture.pastes.create(life).await, Err(CreateError::BadExpiry { .. })));
}
