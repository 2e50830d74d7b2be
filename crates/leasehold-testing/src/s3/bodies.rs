//! The bytes of objects: appended to large files, which are deleted once no body in them is needed.
//!
//! One file per object would be simpler, but then a thousand deletes would be a thousand changes of a
//! directory, which take seconds on a busy disk.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;

/// A file of at least this size gets no more bytes.
const FULL: u64 = 64 * 1024 * 1024;

/// Where the bytes of one object are stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    file: u64,
    offset: u64,
    length: usize,
}

pub(super) struct Bodies {
    dir: PathBuf,
    files: HashMap<u64, Segment>,
    /// The file that is written to.
    current: u64,
}

struct Segment {
    file: File,
    length: u64,
    /// How many bodies in it are still referenced.
    needed: u64,
}

impl Bodies {
    pub(super) fn in_dir(dir: PathBuf) -> Self {
        Self { dir, files: HashMap::new(), current: 0 }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<Place> {
        if self.files.get(&self.current).is_none_or(|segment| segment.length >= FULL) {
            self.current += 1;
            let path = self.path(self.current);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            self.files.insert(self.current, Segment { file, length: 0, needed: 0 });
        }
        let segment = self.files.get_mut(&self.current).ok_or(io::ErrorKind::NotFound)?;
        let place = Place { file: self.current, offset: segment.length, length: bytes.len() };
        segment.file.write_all_at(bytes, place.offset)?;
        segment.length += bytes.len() as u64;
        segment.needed += 1;
        Ok(place)
    }

    pub(super) fn read(&self, place: Place) -> io::Result<Bytes> {
        let segment = self.files.get(&place.file).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; place.length];
        segment.file.read_exact_at(&mut bytes, place.offset)?;
        Ok(bytes.into())
    }

    /// Overwrites a body with bytes of the same length.
    pub(super) fn overwrite(&self, place: Place, bytes: &[u8]) -> io::Result<()> {
        let segment = self.files.get(&place.file).ok_or(io::ErrorKind::NotFound)?;
        segment.file.write_all_at(bytes, place.offset)
    }

    pub(super) fn remove(&mut self, place: Place) -> io::Result<()> {
        let Some(segment) = self.files.get_mut(&place.file) else {
            return Ok(());
        };
        segment.needed -= 1;
        if segment.needed > 0 || segment.length < FULL {
            return Ok(());
        }
        self.files.remove(&place.file);
        fs::remove_file(self.path(place.file))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("bodies-{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_file_is_removed_with_its_last_body() {
        let dir = std::env::temp_dir().join(format!("bodies-{:08x}", rand::random::<u32>()));
        fs::create_dir(&dir).unwrap();
        let mut bodies = Bodies::in_dir(dir.clone());
        let files = || fs::read_dir(&dir).unwrap().count();
        let small = bodies.add(b"small").unwrap();
        let large = bodies.add(&vec![7; FULL as usize]).unwrap();
        let next = bodies.add(b"next").unwrap();
        assert_eq!(files(), 2);
        bodies.remove(large).unwrap();
        assert_eq!(bodies.read(small).unwrap(), "small");
        bodies.remove(small).unwrap();
        assert_eq!(files(), 1);
        assert_eq!(bodies.read(next).unwrap(), "next");
        bodies.remove(next).unwrap();
        assert_eq!(files(), 1, "it is still written to");
        fs::remove_dir_all(dir).unwrap();
    }
}
