//! The two kinds of index, and a place for the one that has a directory.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tantivy,
    /// The server of this process, under a name of its own for each test.
    OpenSearch,
}

impl Kind {
    pub const BOTH: [Self; 2] = [Self::Tantivy, Self::OpenSearch];
}

/// A directory that goes with the test.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        let name = format!("leasehold-index-{:016x}", rand::random::<u64>());
        Self(std::env::temp_dir().join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
