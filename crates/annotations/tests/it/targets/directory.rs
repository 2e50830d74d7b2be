//! The directory of tantivy: crashes, a second process, damage.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use annotations::index::{SearchIndex as _, TantivyIndex, TantivySettings};
use leasehold::mirror::{Range, Target, TargetError, Targets as _, Written};

use super::fixture::{asking, digest_of, gone, held, living, note, put, write};
use crate::fixture::until;
use crate::index_kind::TempDir;

const CHILD_DIR: &str = "LEASEHOLD_TEST_INDEX_DIR";

async fn try_open(dir: &Path) -> Result<TantivyIndex, TargetError> {
    let limit = Duration::from_secs(120);
    TantivyIndex::open(TantivySettings { limit, ..TantivySettings::new(dir) }).await
}

/// Opens the directory as the writer. A process that another test forks has copies of our locks until it
/// executes its program, so a lock that was just released may be held a little longer.
async fn open(dir: &Path) -> TantivyIndex {
    let mut opened = None;
    until(async || {
        opened = try_open(dir).await.ok().filter(TantivyIndex::is_writer);
        opened.is_some()
    })
    .await;
    opened.unwrap()
}

async fn set(index: &TantivyIndex) -> Arc<dyn Target> {
    let current = index.current().await.unwrap();
    index.open(&current).await.unwrap()
}

#[tokio::test]
async fn documents_and_tombstones_survive_a_restart() {
    let dir = TempDir::new();
    let index = open(dir.path()).await;
    let name = index.current().await.unwrap();
    let before = set(&index).await;
    before.write(&[put("a", 3, note("kept", 1)), gone("b", 2)]).await.unwrap();
    drop((index, before));
    let index = open(dir.path()).await;
    assert_eq!(index.current().await.unwrap(), name);
    let after = set(&index).await;
    assert_eq!(after.digest(&Range::default()).await.unwrap(), digest_of([("a", 3)]));
    assert_eq!(write(&after, put("b", 1, note("late", 1))).await, Ok(Written::Newer));
    assert_eq!(index.search(&asking()).await.unwrap().hits.len(), 1);
}

/// The child of the test below: writes for ever, and prints what was acknowledged. Does nothing unless
/// that test starts it.
#[tokio::test]
async fn process_writer_main() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let index = open(&PathBuf::from(dir)).await;
    let set = set(&index).await;
    for n in 1.. {
        write(&set, put(&format!("k{n}"), n, note("text", n))).await.unwrap();
        write(&set, put("same", n, note("text", n))).await.unwrap();
        println!("answered {n}");
    }
}

#[tokio::test]
async fn f7_kill_between_writes_loses_no_acknowledged_write() {
    let dir = TempDir::new();
    for round in 1..=3_i64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "targets::directory::process_writer_main", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map(|line| line.unwrap());
        let mut numbers =
            numbers.filter_map(|line| line.split_once("answered ")?.1.parse::<i64>().ok());
        let answered = numbers.find(|n| *n >= 5 * round).unwrap();
        // In the middle of the next write, most likely.
        child.kill().unwrap();
        child.wait().unwrap();
        let answered = numbers.last().unwrap_or(answered);
        let index = open(dir.path()).await;
        assert!(index.is_writer(), "the lock of a dead process is no lock");
        assert!(!dir.path().join("broken").exists(), "a kill is no damage");
        let set = set(&index).await;
        for n in 1..=answered {
            assert_eq!(held(&set, &format!("k{n}")).await, living(n));
        }
        let same = held(&set, "same").await.unwrap();
        assert!(same.version >= answered, "{same:?} of {answered}");
        // One copy of each, also of the one that was written over and over.
        let listed = set.list(&Range::default(), 10_000).await.unwrap();
        assert_eq!(listed.iter().filter(|(key, _)| key == "same").count(), 1);
        let digest = set.digest(&Range::default()).await.unwrap();
        let sum = listed.iter().map(|(key, held)| (key.as_str(), held.version));
        assert_eq!(digest, digest_of(sum));
    }
}

#[tokio::test]
async fn second_process_follows_and_takes_over() {
    let dir = TempDir::new();
    let first = open(dir.path()).await;
    let writing = set(&first).await;
    write(&writing, put("a", 1, note("x", 1))).await.unwrap();
    // A lock belongs to an open file, so two of them here are equivalent to two processes.
    let second = try_open(dir.path()).await.unwrap();
    assert!(first.is_writer() && !second.is_writer());
    let reading = set(&second).await;
    assert_eq!(held(&reading, "a").await, living(1));
    let refused = reading.write(&[put("b", 1, note("x", 1))]).await;
    assert!(matches!(refused, Err(TargetError::Down(why)) if why.contains("another process")));
    assert!(second.create().await.is_err());
    assert!(second.swap(&second.current().await.unwrap()).await.is_err());
    // It sees a commit, and a swap, some time later.
    write(&writing, put("b", 1, note("x", 1))).await.unwrap();
    until(async || held(&reading, "b").await == living(1)).await;
    let new = first.create().await.unwrap();
    let built = first.open(&new).await.unwrap();
    write(&built, put("c", 1, note("x", 1))).await.unwrap();
    first.swap(&new).await.unwrap();
    assert_eq!(second.current().await.unwrap(), new);
    let found = second.search(&asking()).await.unwrap();
    assert_eq!(found.hits[0].id, "c");
    drop((first, writing, built));
    until(async || second.is_writer()).await;
    // The set that it had opened for reading can write from now on.
    assert_eq!(write(&reading, put("b", 2, note("x", 2))).await, Ok(Written::Stored));
    let writing = set(&second).await;
    assert_eq!(write(&writing, put("d", 1, note("x", 2))).await, Ok(Written::Stored));
    assert_eq!(held(&writing, "c").await, living(1));
}

/// Opens a directory after damage: it must be usable, with any part of it missing.
async fn usable_and_empty(dir: &Path, what: &str) {
    let index = open(dir).await;
    let set = set(&index).await;
    assert_eq!(held(&set, "a").await, None, "{what}");
    assert_eq!(set.digest(&Range::default()).await.unwrap().count, 0, "{what}");
    assert!(index.search(&asking()).await.unwrap().hits.is_empty(), "{what}");
    assert_eq!(write(&set, put("a", 1, note("again", 1))).await, Ok(Written::Stored), "{what}");
    assert_eq!(index.search(&asking()).await.unwrap().hits.len(), 1, "{what}");
}

async fn filled() -> (TempDir, PathBuf) {
    let dir = TempDir::new();
    let index = open(dir.path()).await;
    let name = index.current().await.unwrap();
    let set = set(&index).await;
    set.write(&[put("a", 3, note("kept", 1)), put("b", 1, note("kept", 2))]).await.unwrap();
    let inside = dir.path().join(name);
    (dir, inside)
}

#[tokio::test]
async fn f14_damaged_set_is_moved_and_replaced_by_an_empty_one() {
    let files = |inside: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(inside).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
        files.sort();
        files
    };
    let (_, inside) = filled().await;
    let kinds: Vec<String> = {
        let (_dir, inside) = filled().await;
        let name = |path: &PathBuf| path.extension().map(|e| e.to_string_lossy().into_owned());
        files(&inside).iter().filter_map(name).collect()
    };
    drop(inside);
    assert!(kinds.iter().any(|kind| kind == "fast"), "{kinds:?}");
    for kind in kinds {
        // The lock files have nothing to damage.
        if kind.contains("lock") {
            continue;
        }
        for damage in ["flipped", "cut", "gone"] {
            let (dir, inside) = filled().await;
            let path = files(&inside)
                .into_iter()
                .find(|path| path.extension().is_some_and(|e| e.to_string_lossy() == kind))
                .unwrap();
            // A list of files to clean up; the index is complete without it.
            if path.ends_with(".managed.json") {
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            match damage {
                "flipped" => {
                    let at = bytes.len() / 3;
                    bytes[at] ^= 0x55;
                    fs::write(&path, &bytes).unwrap();
                }
                "cut" => fs::write(&path, &bytes[..bytes.len() / 2]).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
            let what = format!("{} {damage}", path.display());
            usable_and_empty(dir.path(), &what).await;
            assert!(inside.is_dir(), "{what}");
            assert!(dir.path().join("broken").is_dir(), "{what}");
        }
    }
}

#[tokio::test]
async fn f14_lost_directory_or_pointer_is_created_again() {
    let (dir, inside) = filled().await;
    fs::remove_dir_all(&inside).unwrap();
    usable_and_empty(dir.path(), "the set is lost").await;

    let (dir, _) = filled().await;
    fs::remove_dir_all(dir.path()).unwrap();
    usable_and_empty(dir.path(), "everything is lost").await;

    // Without its pointer the newest set is searched.
    for garbage in [Some(&b"nonsense"[..]), Some(&[0xff, 0xfe]), Some(b""), None] {
        let (dir, inside) = filled().await;
        match garbage {
            Some(garbage) => fs::write(dir.path().join("current"), garbage).unwrap(),
            None => fs::remove_file(dir.path().join("current")).unwrap(),
        }
        let index = open(dir.path()).await;
        let name = inside.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(index.current().await.unwrap(), name);
        assert_eq!(held(&set(&index).await, "a").await, living(3));
    }
}

#[tokio::test]
async fn removed_set_refuses_writes() {
    let dir = TempDir::new();
    let index = open(dir.path()).await;
    index.current().await.unwrap();
    let name = index.create().await.unwrap();
    let other = index.open(&name).await.unwrap();
    write(&other, put("a", 1, note("x", 1))).await.unwrap();
    index.remove(&name).await.unwrap();
    let refused = other.write(&[put("b", 1, note("x", 1))]).await;
    assert!(matches!(refused, Err(TargetError::Down(why)) if why.contains("removed")));
    assert!(!dir.path().join(&name).exists());
}
