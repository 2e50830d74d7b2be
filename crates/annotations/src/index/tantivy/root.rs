//! The directory: its writer, its current set, and all its sets.
//!
//! # Invariants
//! - One process writes: the one that holds the lock on the file `writer`. The system releases the lock
//!   when that process ends, however it ends.
//! - The file `current` names the set that is searched. It is replaced by a rename, so that it names the
//!   old set or the new one and never half a name.
//! - Every set is a sub-directory with a name that no other set ever had.
//! - The file `identity` identifies the index: a database recognizes its own by it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::private;

const LOCK: &str = "writer";
const POINTER: &str = "current";
const IDENTITY: &str = "identity";
/// The last set that could not be opened, kept for operators to examine.
const BROKEN: &str = "broken";
/// Enough for the time in milliseconds.
const NAME_BYTES: usize = 20;

#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    lock: Mutex<Option<File>>,
    /// False: this process never takes the lock.
    may_write: bool,
}

impl Root {
    /// Creates the directory if there is none, and becomes its writer if it may and there is no other.
    pub fn open(dir: PathBuf, may_write: bool) -> io::Result<Self> {
        private::make_dir(&dir)?;
        if private::is_open_to_others(&dir)? {
            tracing::warn!(
                dir = %dir.display(),
                "other users of this machine can read the search index, which has the words of closed \
                 groups; run: chmod 700"
            );
        }
        let root = Self { dir, lock: Mutex::new(None), may_write };
        root.is_writer()?;
        Ok(root)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether this process is the writer. Tries again each time: the other one may have ended.
    pub fn is_writer(&self) -> io::Result<bool> {
        let mut lock = self.lock.lock();
        if lock.is_some() || !self.may_write {
            return Ok(lock.is_some());
        }
        let path = self.dir.join(LOCK);
        let file = private::options().create(true).append(true).open(path)?;
        match file.try_lock() {
            Ok(()) => *lock = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(lock.is_some())
    }

    /// Returns the current set. `None`: there is none yet, or the file names none.
    pub fn current(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(self.dir.join(POINTER)) {
            Ok(text) if is_name(text.trim()) => Ok(Some(text.trim().to_owned())),
            Ok(_) => {
                tracing::warn!(dir = %self.dir.display(), "the file `current` names no set");
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes searches use another set.
    pub fn point(&self, name: &str) -> io::Result<()> {
        private::replace(&self.dir, POINTER, name)
    }

    /// Returns the identity of the index, which stays when the directory is moved. `None`: there is none
    /// yet, and this process may not write one.
    pub fn identity(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(self.dir.join(IDENTITY)) {
            Ok(text) if is_identity(text.trim()) => return Ok(Some(text.trim().to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            Err(error) => return Err(error),
        }
        if !self.is_writer()? {
            return Ok(None);
        }
        let fresh = format!("{:032x}", rand::random::<u128>());
        private::replace(&self.dir, IDENTITY, &fresh)?;
        Ok(Some(fresh))
    }

    pub fn set_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.set_dir(name).is_dir()
    }

    /// Returns the number of the newest set, current or not.
    fn newest(&self) -> io::Result<Option<i64>> {
        let mut newest = None;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let name = name.to_str().filter(|name| is_name(name));
            newest = newest.max(name.and_then(|name| name.get(1..)?.parse().ok()));
        }
        Ok(newest)
    }

    /// Returns the newest set: it becomes the current one if that is unknown.
    pub fn newest_name(&self) -> io::Result<Option<String>> {
        Ok(self.newest()?.map(name_of))
    }

    /// Returns a name that no set has, even if the clock went back.
    pub fn fresh_name(&self) -> io::Result<String> {
        let next = self.newest()?.map_or(0, |newest| newest.saturating_add(1));
        Ok(name_of(Timestamp::now().as_millisecond().max(next)))
    }

    /// Moves a set that cannot be read out of the way.
    pub fn quarantine(&self, name: &str) -> io::Result<()> {
        let broken = self.dir.join(BROKEN);
        self.remove_dir(&broken)?;
        fs::rename(self.set_dir(name), broken)
    }

    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.remove_dir(&self.set_dir(name))
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

fn is_identity(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn name_of(number: i64) -> String {
    format!("g{number:013}")
}

/// Returns whether this is the name of a set. No other text becomes part of a path.
pub fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix('g').unwrap_or_default();
    !digits.is_empty() && digits.len() <= NAME_BYTES && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        let name = format!("leasehold-root-{:016x}", rand::random::<u64>());
        Root::open(std::env::temp_dir().join(name), true).unwrap()
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[test]
    fn pointer_names_the_current_set_and_garbage_names_none() {
        let root = root();
        assert_eq!(root.current().unwrap(), None);
        root.point("g1").unwrap();
        assert_eq!(root.current().unwrap().as_deref(), Some("g1"));
        for garbage in [&b"../../etc"[..], b"", b"g", b"g1/..", b"\xff\xfe", b"g1\0"] {
            fs::write(root.dir.join(POINTER), garbage).unwrap();
            assert_eq!(root.current().unwrap(), None, "{garbage:?}");
        }
    }

    #[test]
    fn f28_directory_keeps_the_identity_that_its_writer_created() {
        let first = root();
        let again = |may_write| Root { dir: first.dir.clone(), lock: Mutex::new(None), may_write };
        let asking = std::mem::ManuallyDrop::new(again(false));
        assert_eq!(asking.identity().unwrap(), None);
        let identity = first.identity().unwrap();
        assert!(identity.is_some());
        assert_eq!(asking.identity().unwrap(), identity);
        assert_eq!(first.identity().unwrap(), identity);
        assert_ne!(root().identity().unwrap(), identity);
    }

    #[test]
    fn second_root_becomes_the_writer_when_the_first_ends() {
        let first = root();
        let again = |may_write| Root { dir: first.dir.clone(), lock: Mutex::new(None), may_write };
        let (second, asking) = (again(true), again(false));
        assert!(first.is_writer().unwrap());
        assert!(!second.is_writer().unwrap());
        *first.lock.lock() = None;
        assert!(!asking.is_writer().unwrap(), "a process that may not write never takes the lock");
        assert!(second.is_writer().unwrap());
    }

    #[test]
    fn fresh_name_is_new_after_the_clock_went_back() {
        let root = root();
        let future = "g9999999999999";
        fs::create_dir(root.set_dir(future)).unwrap();
        assert_eq!(root.fresh_name().unwrap(), "g10000000000000");
    }
}
