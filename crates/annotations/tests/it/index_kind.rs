//! The two kinds of index, and a temporary directory for one of them.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    Tantivy,
    /// The server of this process, with a separate prefix per test.
    OpenSearch,
}

impl IndexKind {
    pub const BOTH: [Self; 2] = [Self::Tantivy, Self::OpenSearch];
}

/// A directory that is deleted after the test.
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
