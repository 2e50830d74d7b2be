//! One suite, three stores: our test server, a folder, and a full third-party S3 server.

use std::path::Path;

use leasehold_testing::{FullS3Server, S3Server};
use pastes::Store;

use super::{store_of, suite};
use crate::rig::{Rig, settings};

#[tokio::test]
async fn a_folder_passes_the_suite() {
    // In memory if possible: a busy disk may take longer than the store's timeout.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("pastes-{}", uuid::Uuid::new_v4().simple()));
    suite::run(&Store::local(&folder).unwrap()).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn the_server_for_tests_passes_the_suite() {
    let s3 = S3Server::start().unwrap();
    suite::run(&store_of(&s3.endpoint())).await;
    assert_eq!(s3.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn the_same_suite_against_a_full_server() {
    let server = FullS3Server::start().unwrap_or_else(|error| panic!("{error}"));
    let store = store_of(&server.endpoint());
    suite::run(&store).await;

    let nowhere = Path::new("/nowhere").to_owned();
    let rig = Rig::on(store.clone(), nowhere, settings()).await;
    let (one, two) = (rig.paste("same bytes").await, rig.paste("same bytes").await);
    rig.work().await;
    assert_eq!(rig.bytes(&one).await, b"same bytes");
    assert_eq!(rig.bytes(&two).await, b"same bytes");
    let report = rig.pastes.check_orphans().await.unwrap();
    assert_eq!((report.seen, report.deleted, report.unknown), (1, 0, 0));
    for code in [one, two] {
        rig.expire(&code).await;
    }
    rig.sweep().await;
    assert_eq!(rig.pastes.check_orphans().await.unwrap().seen, 0);
    rig.assert_ref_counts().await;
}
