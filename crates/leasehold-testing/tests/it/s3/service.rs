use super::*;
use leasehold_testing::FullS3Server;
use std::time::SystemTime;

#[tokio::test]
async fn s3_server_passes_the_suite() {
    let (s3, store) = setup();
    suite::run(&store).await;
    assert_eq!(s3.keys(), Vec::<String>::new());
    assert_eq!(s3.count(Op::Multipart), 0);
}

#[tokio::test]
async fn full_s3_server_passes_the_suite() {
    let server = FullS3Server::start().unwrap_or_else(|error| panic!("{error}"));
    let endpoint = server.endpoint();
    let store = client(&endpoint, S3Server::BUCKET, S3Server::ACCESS_KEY, S3Server::SECRET_KEY);
    suite::run(&store).await;
    let thief = client(&endpoint, S3Server::BUCKET, S3Server::ACCESS_KEY, "guessed");
    assert!(put(&thief, "k", "x").await.is_err());
    drop(server);
    assert!(put(&store, "k", "x").await.is_err(), "it ends with its handle");
}

#[tokio::test]
async fn wrong_secret_is_refused() {
    let s3 = S3Server::start().unwrap();
    let thief = client(&s3.endpoint(), S3Server::BUCKET, S3Server::ACCESS_KEY, "guessed");
    let refused = put(&thief, "k", "x").await.unwrap_err();
    assert!(matches!(refused, object_store::Error::PermissionDenied { .. }), "{refused:?}");
    assert_eq!(s3.keys(), Vec::<String>::new());
    assert_eq!(about(&s3, "k"), [(Op::Put, Outcome::Refused(403))]);
}

#[tokio::test]
async fn log_has_requests_in_order() {
    let (s3, store) = setup();
    put(&store, "blobs/a b+c", "x").await.unwrap();
    get(&store, "blobs/a b+c").await.unwrap();
    store.head(&"none".into()).await.unwrap_err();
    suite::delete(&store, &["blobs/a b+c", "none"]).await;
    suite::keys(&store, "blobs").await;
    let line = |op, key: &str, outcome| Entry { op, key: key.to_owned(), outcome };
    assert_eq!(
        s3.log(),
        [
            line(Op::Put, "blobs/a b+c", Outcome::Done),
            line(Op::Get, "blobs/a b+c", Outcome::Done),
            line(Op::Head, "none", Outcome::Missing),
            line(Op::DeleteMany, "blobs/a b+c", Outcome::Done),
            line(Op::DeleteMany, "none", Outcome::Missing),
            line(Op::List, "blobs/", Outcome::Done),
        ]
    );
    assert_eq!(s3.wait_for_key(Op::Get, "b+c").await.unwrap().outcome, Outcome::Done);
    s3.clear_log();
    assert_eq!(s3.log(), []);
    assert_eq!(s3.count(Op::DeleteMany), 2);
}

#[tokio::test]
async fn test_can_change_objects_directly() {
    let (s3, store) = setup();
    s3.put_object("blobs/old", b"bytes").unwrap();
    assert!(s3.age_object("blobs/old", Duration::from_secs(48 * 3600)));
    let head = store.head(&"blobs/old".into()).await.unwrap();
    let age = SystemTime::now().duration_since(head.last_modified.into()).unwrap();
    assert!(age >= Duration::from_secs(47 * 3600), "{age:?}");
    assert!(s3.rot_object("blobs/old").unwrap());
    assert_ne!(get(&store, "blobs/old").await.unwrap(), "bytes");
    assert_eq!(s3.objects()[0].size, 5);
    assert!(s3.remove_object("blobs/old").unwrap());
    assert!(!s3.remove_object("blobs/old").unwrap());
    assert!(!s3.age_object("blobs/old", Duration::ZERO));
    assert!(!s3.rot_object("blobs/old").unwrap());
}

#[tokio::test]
async fn multipart_uploads_are_refused_and_logged() {
    let (s3, store) = setup();
    assert!(store.put_multipart(&"blobs/parts".into()).await.is_err());
    assert_eq!(about(&s3, "blobs/parts"), [(Op::Multipart, Outcome::Refused(501))]);
}

#[tokio::test]
async fn another_bucket_does_not_exist() {
    let s3 = S3Server::start().unwrap();
    let store = client(&s3.endpoint(), "other", S3Server::ACCESS_KEY, S3Server::SECRET_KEY);
    let missing = put(&store, "k", "x").await.unwrap_err();
    assert!(missing.to_string().contains("NoSuchBucket"), "{missing}");
}

#[tokio::test]
async fn server_stops_with_its_handle() {
    let (s3, store) = setup();
    put(&store, "k", "x").await.unwrap();
    drop(s3);
    assert!(get(&store, "k").await.is_err());
}
