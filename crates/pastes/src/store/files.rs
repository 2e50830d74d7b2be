//! A local store that writes many files per task: one task per file would cost more than the file.
//!
//! Files are written in place, because no reader uses a key before its upload was recorded. The next
//! attempt finds and replaces a file that a crash left half written.
//!
//! Only this system user can read folders and files: pastes are protected by links that cannot be
//! guessed, and other users of the machine have no link.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{ObjectKey, StoreError, verified};

/// Creates a folder and its parents where they are missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    builder.mode(0o700);
    builder.create(folder)
}

/// Returns the options for creating a file that must not exist yet.
fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    options.mode(0o600);
    options
}

/// Writes files, syncs them and their folders to disk, and reads them back.
pub fn put(folder: &Path, objects: &[(ObjectKey, Bytes)]) -> Vec<Result<(), StoreError>> {
    let mut folders = BTreeSet::new();
    let written: Vec<io::Result<Option<File>>> = objects
        .iter()
        .map(|(key, bytes)| create(&folder.join(key.to_string()), bytes, &mut folders))
        .collect();
    // Write all files before syncing the first: the file system then flushes many at once.
    let mut results: Vec<Result<(), StoreError>> =
        written.into_iter().map(|file| sync(file).map_err(failed)).collect();
    if let Err(error) = folders.iter().try_for_each(|folder| File::open(folder)?.sync_all()) {
        let why = error.to_string();
        results.iter_mut().for_each(|result| *result = Err(StoreError::Failed(why.clone())));
    }
    for (result, (key, bytes)) in results.iter_mut().zip(objects) {
        if result.is_ok() {
            *result = check_or_replace(&folder.join(key.to_string()), key, bytes);
        }
    }
    results
}

/// Creates a file. Returns `None` if it already exists.
fn create(path: &Path, bytes: &Bytes, folders: &mut BTreeSet<PathBuf>) -> io::Result<Option<File>> {
    let mut file = match new_file().open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.parent().ok_or(error)?;
            make_folder(parent)?;
            // Sync the parents, too, so that a new folder survives a power cut.
            folders.extend(parent.ancestors().skip(1).take(2).map(Path::to_owned));
            new_file().open(path)?
        }
        opened => opened?,
    };
    folders.extend(path.parent().map(Path::to_owned));
    file.write_all(bytes)?;
    Ok(Some(file))
}

fn sync(file: io::Result<Option<File>>) -> io::Result<()> {
    match file? {
        Some(file) => file.sync_all(),
        None => Ok(()),
    }
}

fn check_or_replace(path: &Path, key: &ObjectKey, bytes: &Bytes) -> Result<(), StoreError> {
    let check = || {
        let found = Bytes::from(fs::read(path).map_err(failed)?);
        verified(&found, &key.content_hash, bytes.len())
    };
    match check() {
        Err(StoreError::WrongBytes(why)) => {
            tracing::warn!(%key, why, "a file does not have the right bytes; writing it again");
            replace(path, bytes).map_err(failed)?;
            check()
        }
        checked => checked,
    }
}

/// Writes the whole file, or leaves one that exists: of two processes that call it, one writes.
pub fn write_once(path: &Path, bytes: &Bytes) -> Result<(), StoreError> {
    let write = || {
        let beside = write_beside(path, bytes)?;
        // A rename would replace the file of another process.
        let linked = fs::hard_link(&beside, path);
        fs::remove_file(&beside)?;
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_folder_of(path),
        }
    };
    write().map_err(failed)
}

/// Writes a temporary file and renames it over the old one.
fn replace(path: &Path, bytes: &Bytes) -> io::Result<()> {
    let beside = write_beside(path, bytes)?;
    fs::rename(&beside, path)?;
    sync_folder_of(path)
}

/// Writes a temporary file in the same folder, and syncs it to disk.
fn write_beside(path: &Path, bytes: &Bytes) -> io::Result<PathBuf> {
    let beside = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let mut file = new_file().open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(beside)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes files. A missing file counts as removed.
pub fn delete(folder: &Path, keys: &[ObjectKey]) -> Vec<Result<(), StoreError>> {
    keys.iter()
        .map(|key| match fs::remove_file(folder.join(key.to_string())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        })
        .collect()
}

fn failed(error: io::Error) -> StoreError {
    StoreError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e39_id_of_a_folder_is_written_once() {
        let name = format!("pastes-id-{}", uuid::Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        make_folder(&folder).expect("a folder");
        let path = folder.join("id");
        for id in ["one", "two"] {
            write_once(&path, &Bytes::from_static(id.as_bytes())).expect("it is there");
        }
        assert_eq!(fs::read(&path).expect("a file"), b"one");
        assert_eq!(
            fs::read_dir(&folder).expect("a folder").count(),
            1,
            "nothing is left beside it"
        );
        fs::remove_dir_all(&folder).expect("a folder");
    }
}
