//! The directory of an index: who may read it, and to which database it belongs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use annotations::index::{TantivyIndex, TantivySettings, is_open_to_others};
use annotations::{Annotations, Index, StartError};

use crate::kind::TempDir;
use crate::rig::{Rig, settings, until};

/// Finds everything below a directory that other users may read.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.chain([dir.to_owned()]) {
        if std::fs::metadata(&path).unwrap().permissions().mode() & 0o077 != 0 {
            found.push(path.display().to_string());
        }
        if path.is_dir() && path != dir {
            open_to_others(&path, found);
        }
    }
}

#[tokio::test]
async fn f27_no_other_user_can_read_what_the_index_keeps() {
    let rig = Rig::alone().await;
    let dir = TempDir::new();
    let alba = rig.user("alba").await;
    rig.note(&alba, "a word of a closed group").await;
    let index = TantivyIndex::open(TantivySettings::new(dir.path())).await.unwrap();
    index.identity().await.unwrap();
    let index = Index::new(Arc::new(index));
    let served = Annotations::start(rig.engine.clone(), Some(index), settings()).await.unwrap();
    until(async || {
        rig.bring_forward().await;
        let worker = annotations::worker(&served, rig.engine.worker()).unwrap();
        worker.run_until_idle().await.unwrap();
        rig.count("select count(*) from leasehold.job").await == 0
    })
    .await;
    let mut found = Vec::new();
    open_to_others(dir.path(), &mut found);
    assert_eq!(found, [""; 0]);
    assert!(!is_open_to_others(dir.path()).unwrap());
    // An existing directory keeps its mode, and the service warns about it.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(is_open_to_others(dir.path()).unwrap());
}

#[tokio::test]
async fn f28_another_index_is_not_taken_without_a_word() {
    let rig = Rig::alone().await;
    let (one, other) = (TempDir::new(), TempDir::new());
    let start = async |dir: &TempDir, may_write: bool| {
        let settings = TantivySettings { may_write, ..TantivySettings::new(dir.path()) };
        let index = TantivyIndex::open(settings).await.unwrap();
        let identity = index.identity().await.unwrap();
        let asked = index.clone();
        let index = Index::new(Arc::new(index)).written_when(move || asked.is_writer());
        let index = match identity {
            Some(identity) => index.known_as(identity, dir.path().display().to_string()),
            None => index,
        };
        Annotations::start(rig.engine.clone(), Some(index), crate::rig::settings()).await.map(drop)
    };
    // A process that only searches does not make a new directory the database's own.
    start(&one, false).await.unwrap();
    start(&one, true).await.unwrap();
    start(&one, false).await.unwrap();
    for may_write in [true, false] {
        let refused = start(&other, may_write).await.unwrap_err();
        let StartError::OtherIndex { known, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*known, one.path().display().to_string());
    }
    // A directory that was moved is the same index.
    let moved = TempDir::new();
    std::fs::rename(one.path(), moved.path()).unwrap();
    start(&moved, true).await.unwrap();
    // A lost directory is not replaced by an empty one: users would find nothing.
    assert!(matches!(start(&one, true).await, Err(StartError::OtherIndex { .. })));
    let forgotten = rig.notes.forget_index().await.unwrap();
    assert_eq!(forgotten, Some(one.path().display().to_string()), "where it was recorded");
    start(&other, true).await.unwrap();
    assert!(matches!(start(&moved, true).await, Err(StartError::OtherIndex { .. })));
}
