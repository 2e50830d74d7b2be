//! Where the files of a set are, and when they are synced to the disk.
//!
//! Tantivy by itself syncs every file as soon as it is written, and a list of its files before each of
//! them: some thirty syncs per commit. Other writes to the same disk queue behind them, and that
//! includes Postgres with a user's save.
//!
//! # Invariants
//! - A commit is the file `meta.json`. Everything that it names is synced before the file is replaced, and
//!   the file itself right after.
//! - Until then small files wait, and are synced together: several concurrent syncs cost the disk little
//!   more than one.
//! - A large file, which a merge makes, is synced piece by piece while it grows, with pauses: no small
//!   write of another process ever queues behind all of it.
//! - Files that no commit names, left by a process that died, are listed as ours and removed.
//!
//! # What can go wrong
//! - A sync fails. The system reports that once, and a second sync would succeed although the data is
//!   lost: so this writer commits nothing any more. A new writer starts at the last commit, which does
//!   not name the file.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};

use super::private;

/// Tantivy's list of the files that are its own.
const LIST: &str = ".managed.json";
/// How many bytes of a file may be unsynced.
const UNSYNCED: usize = 1 << 20;
/// The longest pause: one slow moment of the disk must not delay a merge for long.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Files that are synced at the same time.
const AT_ONCE: usize = 8;

/// A directory that syncs the files of a commit together.
#[derive(Clone, Debug)]
pub struct GroupSync {
    inner: MmapDirectory,
    path: Arc<Path>,
    pending: Arc<Mutex<Pending>>,
}

/// What the next commit must sync.
#[derive(Debug, Default)]
struct Pending {
    files: Vec<File>,
    list: Option<Vec<u8>>,
    /// A sync failed, and the writer may name that file.
    lost: bool,
}

impl GroupSync {
    pub fn open(path: &Path) -> tantivy::Result<Self> {
        let inner = MmapDirectory::open(path)?;
        Ok(Self { inner, path: path.into(), pending: Arc::default() })
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    /// Prepares for a new writer, which starts at the last commit: no commit will name what else was
    /// written.
    pub fn begin(&self) {
        let mut pending = self.pending();
        pending.files.clear();
        pending.lost = false;
    }

    /// Syncs what is pending, and its names.
    fn sync_pending(&self) -> io::Result<()> {
        let (files, list) = {
            let mut pending = self.pending();
            if pending.lost {
                return Err(io::Error::other("a file of this writer did not reach the disk"));
            }
            (std::mem::take(&mut pending.files), pending.list.take())
        };
        if let Err(error) = sync(&files) {
            self.pending().lost = true;
            return Err(error);
        }
        match list {
            Some(list) => self.inner.atomic_write(Path::new(LIST), &list)?,
            None if files.is_empty() => return Ok(()),
            None => {}
        }
        self.inner.sync_directory()
    }

    /// Returns the list, with every other file of the directory added.
    fn listed(&self) -> Result<Vec<u8>, OpenReadError> {
        let written = match self.inner.atomic_read(Path::new(LIST)) {
            Err(OpenReadError::FileDoesNotExist(_)) => Vec::new(),
            other => other?,
        };
        let mut all: BTreeSet<PathBuf> = match written.is_empty() {
            true => BTreeSet::new(),
            false => match serde_json::from_slice(&written) {
                Ok(all) => all,
                // Tantivy reports what is wrong with it.
                Err(_) => return Ok(written),
            },
        };
        let there = |error| OpenReadError::wrap_io_error(error, PathBuf::from(LIST));
        for entry in fs::read_dir(&self.path).map_err(there)? {
            let name = entry.map_err(there)?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                all.insert(name.into());
            }
        }
        serde_json::to_vec(&all).map_err(|error| there(error.into()))
    }
}

/// Syncs files, several at a time.
fn sync(files: &[File]) -> io::Result<()> {
    for some in files.chunks(AT_ONCE) {
        let Some((first, others)) = some.split_first() else { continue };
        std::thread::scope(|scope| {
            let others: io::Result<Vec<_>> = others
                .iter()
                .map(|file| std::thread::Builder::new().spawn_scoped(scope, || file.sync_data()))
                .collect();
            first.sync_data()?;
            let failed = |_| Err(io::Error::other("a file was not synced to the disk"));
            others?.into_iter().try_for_each(|other| other.join().unwrap_or_else(failed))
        })?;
    }
    Ok(())
}

impl Directory for GroupSync {
    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let opened = private::options().write(true).create_new(true).open(self.path.join(path));
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpenWriteError::FileAlreadyExists(path.to_owned()),
            _ => OpenWriteError::wrap_io_error(error, path.to_owned()),
        })?;
        let growing =
            GrowingFile { file: Some(file), unsynced: 0, pending: Arc::clone(&self.pending) };
        Ok(BufWriter::new(Box::new(growing)))
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        if path == Path::new(LIST) {
            self.pending().list = Some(data.to_vec());
            return Ok(());
        }
        self.sync_pending()?;
        self.inner.atomic_write(path, data)?;
        // The name, too: otherwise a power cut could undo a commit that was acknowledged.
        self.inner.sync_directory()
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if path == Path::new(LIST) {
            return self.listed();
        }
        self.inner.atomic_read(path)
    }

    /// Does nothing. Tantivy calls it before a commit, which syncs by itself, and after removing files,
    /// whose removal need not be durable.
    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.inner.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.inner.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.inner.exists(path)
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        // Creates the file first: tantivy's own would be readable for other users. If this fails,
        // tantivy reports the error.
        let _ = private::options().create(true).append(true).open(self.path.join(&lock.filepath));
        self.inner.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.inner.watch(callback)
    }
}

/// A file that is being written.
struct GrowingFile {
    file: Option<File>,
    unsynced: usize,
    pending: Arc<Mutex<Pending>>,
}

impl GrowingFile {
    fn file(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or_else(|| io::Error::other("this file is closed"))
    }
}

/// Leaves half of the disk's time to other writers.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of tantivy, which waits for the disk anyway"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

impl Write for GrowingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file()?.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= UNSYNCED {
            let started = Instant::now();
            self.file()?.sync_data()?;
            self.unsynced = 0;
            pause(started.elapsed().min(LONGEST_PAUSE));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for GrowingFile {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        if let Some(file) = self.file.take() {
            self.pending.lock().files.push(file);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tantivy::schema::{STORED, Schema};
    use tantivy::{Index, IndexSettings, IndexWriter, TantivyDocument};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path =
                std::env::temp_dir().join(format!("leasehold-{:016x}", rand::random::<u64>()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(directory: &GroupSync, name: &str, bytes: &[u8]) {
        let mut file = directory.open_write(Path::new(name)).unwrap();
        file.write_all(bytes).unwrap();
        file.terminate().unwrap();
    }

    #[test]
    fn commit_syncs_its_files_first_and_together() {
        let folder = Folder::new();
        let directory = GroupSync::open(&folder.0).unwrap();
        write(&directory, "a.term", b"words");
        write(&directory, "a.store", &vec![7; 3 * UNSYNCED]);
        directory.atomic_write(Path::new(LIST), b"[\"a.term\"]").unwrap();
        directory.sync_directory().unwrap();
        assert_eq!(directory.pending().files.len(), 2);
        assert!(!folder.0.join(LIST).exists());
        directory.atomic_write(Path::new("meta.json"), b"{}").unwrap();
        assert!(directory.pending().files.is_empty() && directory.pending().list.is_none());
        assert_eq!(fs::read(folder.0.join(LIST)).unwrap(), b"[\"a.term\"]");
        assert_eq!(fs::read(folder.0.join("meta.json")).unwrap(), b"{}");
    }

    #[test]
    fn failed_sync_stops_commits_until_a_new_writer_begins() {
        let folder = Folder::new();
        let directory = GroupSync::open(&folder.0).unwrap();
        // A device that cannot be synced.
        directory.pending().files.push(File::open("/dev/null").unwrap());
        let commit = || directory.atomic_write(Path::new("meta.json"), b"{}");
        commit().unwrap_err();
        commit().unwrap_err();
        assert!(!folder.0.join("meta.json").exists());
        directory.begin();
        commit().unwrap();
    }

    #[test]
    fn files_of_a_dead_process_are_removed() {
        let folder = Folder::new();
        let mut schema = Schema::builder();
        let text = schema.add_text_field("text", STORED);
        let settings = IndexSettings::default();
        let index =
            Index::create(GroupSync::open(&folder.0).unwrap(), schema.build(), settings).unwrap();
        drop(index);
        let left = folder.0.join("0123456789abcdef0123456789abcdef.store");
        fs::write(&left, b"half a file").unwrap();
        let index = Index::open(GroupSync::open(&folder.0).unwrap()).unwrap();
        let mut writer: IndexWriter = index.writer_with_num_threads(1, 15 << 20).unwrap();
        let mut note = TantivyDocument::default();
        note.add_text(text, "What giants?");
        writer.add_document(note).unwrap();
        writer.commit().unwrap();
        writer.garbage_collect_files().wait().unwrap();
        assert!(!left.exists());
        let again = Index::open(GroupSync::open(&folder.0).unwrap()).unwrap();
        assert_eq!(again.validate_checksum().unwrap().len(), 0);
        assert_eq!(again.reader().unwrap().searcher().num_docs(), 1);
    }
}
