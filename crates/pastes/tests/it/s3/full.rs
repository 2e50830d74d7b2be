//! One suite, three stores: our test server, a folder, and a full third-party S3 server.

use std::path::Path;

use leasehold_testing::{FullS3Server, S3Server};
use pastes::Store;

use super::{store_of, suite};
use crate::fixture::{Fixture, settings};

#[tokio::test]
async fn folder_passes_the_suite() {
    // In memory if possible: a busy disk may take longer than the store's timeout.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("pastes-{}", uuid::Uuid::new_v4().simple()));
    suite::run(&Store::local(&folder).unwrap()).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn test_server_passes_the_suite() {
    let s3 = S3Server::start().unwrap();
    suite::run(&store_of(&s3.endpoint())).await;
    assert_eq!(s3.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn full_server_passes_the_suite() {
    let server = FullS3Server::start().unwrap_or_else(|error| panic!("{error}"));
    let store = store_of(&server.endpoint());
    suite::run(&store).await;

    let nowhere = Path::new("/nowhere").to_owned();
    let fixture = Fixture::on(store.clone(), nowhere, settings()).await;
    let (one, two) = (fixture.paste("same bytes").await, fixture.paste("same bytes").await);
    fixture.work().await;
    assert_eq!(fixture.bytes(&one).await, b"same bytes");
    assert_eq!(fixture.bytes(&two).await, b"same bytes");
    let report = fixture.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted, report.unknown), (1, 0, 0));
    for code in [one, two] {
        fixture.expire(&code).await;
    }
    fixture.sweep().await;
    assert_eq!(fixture.pastes.check_orphans().await.unwrap().seen, 0);
    fixture.assert_ref_counts().await;
}
