//! A local store, many files at a time.
//!
//! A task a file would cost more than the file. Nobody reads a key before its upload was recorded, so
//! files are written in place; what a crash leaves half written is found and replaced by the next
//! attempt.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{ObjectKey, StoreError, verified};

/// Writes files, syncs them and their folders to disk, and reads them back.
pub fn put(folder: &Path, objects: &[(ObjectKey, Bytes)]) -> Vec<Result<(), StoreError>> {
    let mut folders = BTreeSet::new();
    let written: Vec<io::Result<Option<File>>> = objects
        .iter()
        .map(|(key, bytes)| create(&folder.join(key.to_string()), bytes, &mut folders))
        .collect();
    // All are written before the first is synced: the file system then flushes many at once.
    let mut answers: Vec<Result<(), StoreError>> =
        written.into_iter().map(|file| sync(file).map_err(failed)).collect();
    if let Err(error) = folders.iter().try_for_each(|folder| File::open(folder)?.sync_all()) {
        let why = error.to_string();
        answers.iter_mut().for_each(|answer| *answer = Err(StoreError::Failed(why.clone())));
    }
    for (answer, (key, bytes)) in answers.iter_mut().zip(objects) {
        if answer.is_ok() {
            *answer = check_or_replace(&folder.join(key.to_string()), key, bytes);
        }
    }
    answers
}

/// `None`: the file is there already.
fn create(path: &Path, bytes: &Bytes, folders: &mut BTreeSet<PathBuf>) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.parent().ok_or(error)?;
            fs::create_dir_all(parent)?;
            // A folder that is new must be found again after a power cut.
            folders.extend(parent.ancestors().skip(1).take(2).map(Path::to_owned));
            options.open(path)?
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
            tracing::warn!(%key, why, "a file had other bytes; writing it again");
            replace(path, bytes).map_err(failed)?;
            check()
        }
        answer => answer,
    }
}

/// Writes beside the file and puts the new one in its place.
fn replace(path: &Path, bytes: &Bytes) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes files. One that is not there is removed already.
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
