//! The directory: who may write in it, which set is searched, and which sets there are.
//!
//! # What is true
//! - One process writes: whoever has the lock on the file `writer`. The system takes the lock away
//!   when that process ends, however it ends.
//! - The file `current` names the set that is searched. It is replaced by a rename, so that it names
//!   the old set or the new one and never half a name.
//! - Every set is a sub-directory with a name that no other set ever had.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

const LOCK: &str = "writer";
const POINTER: &str = "current";
/// What could not be opened is kept once, for whoever wants to know what happened.
const BROKEN: &str = "broken";
/// Room for the time in milliseconds.
const NAME_BYTES: usize = 20;

#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    lock: Mutex<Option<File>>,
    /// False: this process leaves the lock to others.
    may_write: bool,
}

impl Root {
    /// Makes the directory if there is none, and becomes its writer if it may and nobody else is.
    pub fn open(dir: PathBuf, may_write: bool) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let root = Self { dir, lock: Mutex::new(None), may_write };
        root.is_writer()?;
        Ok(root)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this process writes. Asks again each time: the other one may have ended.
    pub fn is_writer(&self) -> io::Result<bool> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_some() || !self.may_write {
            return Ok(lock.is_some());
        }
        let path = self.dir.join(LOCK);
        let file = File::options().create(true).append(true).open(path)?;
        match file.try_lock() {
            Ok(()) => *lock = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(lock.is_some())
    }

    /// The set that is searched. `None`: there is none yet, or the file names none.
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

    /// Lets searches go to another set.
    pub fn point(&self, name: &str) -> io::Result<()> {
        let draft = self.dir.join("current.new");
        let mut file = File::create(&draft)?;
        file.write_all(name.as_bytes())?;
        // Before the rename: after a power cut the name may be there and its bytes not.
        file.sync_all()?;
        fs::rename(&draft, self.dir.join(POINTER))?;
        File::open(&self.dir)?.sync_all()
    }

    pub fn set_dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.set_dir(name).is_dir()
    }

    /// The number of the newest set that is there, whether or not it is searched.
    fn newest(&self) -> io::Result<Option<i64>> {
        let mut newest = None;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let name = name.to_str().filter(|name| is_name(name));
            newest = newest.max(name.and_then(|name| name.get(1..)?.parse().ok()));
        }
        Ok(newest)
    }

    /// The newest set that is there: searched when nobody knows which one is.
    pub fn newest_name(&self) -> io::Result<Option<String>> {
        Ok(self.newest()?.map(name_of))
    }

    /// A name that no set has, also where the clock went back.
    pub fn fresh_name(&self) -> io::Result<String> {
        let next = self.newest()?.map_or(0, |newest| newest.saturating_add(1));
        Ok(name_of(Timestamp::now().as_millisecond().max(next)))
    }

    /// Takes a set that cannot be read out of the way.
    pub fn set_aside(&self, name: &str) -> io::Result<()> {
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

fn name_of(number: i64) -> String {
    format!("g{number:013}")
}

/// Nothing else becomes part of a path.
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
    fn a_pointer_is_read_back_and_garbage_in_it_is_none() {
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
    fn two_roots_in_one_directory_have_one_writer_and_the_second_follows() {
        let first = root();
        let again = |may_write| Root { dir: first.dir.clone(), lock: Mutex::new(None), may_write };
        let (second, asking) = (again(true), again(false));
        assert!(first.is_writer().unwrap());
        assert!(!second.is_writer().unwrap());
        *first.lock.lock().unwrap() = None;
        assert!(!asking.is_writer().unwrap(), "it leaves the place to one that does the work");
        assert!(second.is_writer().unwrap());
    }

    #[test]
    fn names_are_new_even_when_the_clock_goes_back() {
        let root = root();
        let future = "g9999999999999";
        fs::create_dir(root.set_dir(future)).unwrap();
        assert_eq!(root.fresh_name().unwrap(), "g10000000000000");
    }
}
