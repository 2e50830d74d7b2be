//! The store: which database it belongs to, who can read its files, and how soon content leaves it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold::Leasehold;
use leasehold_testing::TestDatabase;
use pastes::{Act, Bearer, NewPaste, Pastes, StartError, Store, Target};

use crate::fixture::{Fixture, new, settings};

/// Collects the modes of a folder and of everything below it.
fn modes(path: &Path, found: &mut Vec<(String, u32)>) {
    let meta = std::fs::metadata(path).unwrap();
    found.push((path.display().to_string(), meta.permissions().mode() & 0o777));
    if meta.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            modes(&entry.unwrap().path(), found);
        }
    }
}

#[tokio::test]
async fn e28_other_users_of_the_machine_can_read_nothing() {
    let fixture = Fixture::new().await;
    fixture.paste("secret 4711").await;
    fixture.work().await;
    let mut found = Vec::new();
    modes(&fixture.folder, &mut found);
    assert!(found.len() >= 5, "{found:?}");
    for (path, mode) in found {
        assert_eq!(mode & 0o077, 0, "{path} has the mode {mode:o}");
    }
}

#[tokio::test]
async fn e28_content_of_a_paste_that_was_ended_is_deleted_without_a_sweep() {
    let fixture = Fixture::new().await;
    let burns = NewPaste { burn: true, ..new("burn me") };
    let burns = fixture.pastes.create(burns).await.unwrap().code;
    let deleted = fixture.pastes.create(new("delete me")).await.unwrap();
    let taken = fixture.paste("take me down").await;
    let staged = fixture.pastes.create(new("not uploaded yet")).await.unwrap();
    let token = |created: &pastes::Created| Bearer::new(&created.delete_token).unwrap();
    fixture.pastes.delete(&staged.code, &token(&staged), None).await.unwrap();
    fixture.work().await;
    let bytes = "select count(*) from pastes.staged";
    assert_eq!((fixture.objects(), fixture.count(bytes).await), (3, 0));
    assert_eq!(fixture.deletion_status(&staged.code).await, "DELETED");

    fixture.pastes.burn(&burns, None).await.unwrap();
    fixture.pastes.delete(&deleted.code, &token(&deleted), None).await.unwrap();
    let target = Target::Code { code: taken.clone(), content_hash: None };
    let act = Act { who: "ann".to_owned(), why: Some("law".to_owned()) };
    fixture.pastes.takedown(&target, false, &act).await.unwrap();
    fixture.work().await;
    assert_eq!(fixture.objects(), 0);
    for code in [&burns, &deleted.code, &taken] {
        assert_eq!(fixture.deletion_status(code).await, "DELETED");
    }
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e28_end_of_one_paste_leaves_a_copy_and_the_next_of_its_name_alone() {
    let fixture = Fixture::new().await;
    let named = |text: &str| NewPaste { alias: Some("notes".to_owned()), ..new(text) };
    let first = fixture.pastes.create(named("same")).await.unwrap();
    let copy = fixture.paste("same").await;
    fixture.work().await;
    let token = Bearer::new(&first.delete_token).unwrap();
    fixture.pastes.delete(&first.code, &token, None).await.unwrap();
    // The name is used again for the same bytes before the job runs.
    fixture.pastes.create(named("same")).await.unwrap();
    fixture.work().await;
    assert_eq!(fixture.bytes(&first.code).await, b"same");
    assert_eq!(fixture.bytes(&copy).await, b"same");
    let ended = "select count(*) from pastes.pastes where deletion_status = 'DELETED'";
    assert_eq!(fixture.count(ended).await, 1, "it was found under its present name");
    fixture.assert_ref_counts().await;
}

async fn start(database: &TestDatabase, folder: &Path) -> Result<Pastes, StartError> {
    let engine = Leasehold::connect(&database.url()).await.unwrap();
    Pastes::start(engine, Store::local(folder).unwrap(), settings()).await
}

#[tokio::test]
async fn e39_service_refuses_the_store_of_another_database() {
    let (one, two) = (Fixture::new().await, Fixture::new().await);
    start(&one.database, &one.folder).await.map(drop).unwrap();
    for (database, folder) in [(&one, &two), (&two, &one)] {
        let refused = start(&database.database, &folder.folder).await.map(drop);
        assert!(matches!(refused, Err(StartError::AnotherStore { .. })), "{refused:?}");
    }
    let empty = std::env::temp_dir().join(format!("pastes-{}", uuid::Uuid::new_v4().simple()));
    let refused = start(&one.database, &empty).await.map(drop);
    let Err(error @ StartError::AnotherStore { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains(&*one.folder.to_string_lossy()), "{error}");
    std::fs::remove_dir_all(&empty).unwrap();
}

#[tokio::test]
async fn e39_start_continues_a_first_start_that_was_killed() {
    let fixture = Fixture::new().await;
    // The store has the id, but the table does not say where the store is.
    fixture.client.batch_execute("update pastes.store set location = null").await.unwrap();
    start(&fixture.database, &fixture.folder).await.map(drop).unwrap();
    let known = "select count(*) from pastes.store where location like 'file://%'";
    assert_eq!(fixture.count(known).await, 1);
    // The row exists, and no store has its id.
    let id = std::fs::read_dir(&fixture.folder).unwrap().map(|entry| entry.unwrap().path());
    let id = id.into_iter().find(|path| path.is_file()).unwrap();
    std::fs::remove_file(&id).unwrap();
    assert!(start(&fixture.database, &fixture.folder).await.is_err(), "its store has lost the id");
    fixture.client.batch_execute("update pastes.store set location = null").await.unwrap();
    start(&fixture.database, &fixture.folder).await.map(drop).unwrap();
    assert!(id.is_file());
}

#[tokio::test]
async fn e39_start_with_a_known_store_waits_for_no_other_start() {
    let fixture = Fixture::new().await;
    // Another process is inside its own comparison.
    let other = fixture.database.connect_directly().await;
    other.batch_execute("begin; select from pastes.store for update").await.unwrap();
    start(&fixture.database, &fixture.folder).await.map(drop).unwrap();
}
