//! A directory for one run, removed on drop.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A full store has thousands of directories; each thread removes its share.
const REMOVERS: usize = 4;

pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory below `parent`, or below the system's temporary directory.
    pub fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("leasehold-bench-{:08x}", rand::random::<u32>()));
        fs::create_dir(&path)
            .with_context(|| format!("no directory could be made at {}", path.display()))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates an empty directory in it.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Deepest first, in parallel: one thread takes minutes for ten million files.
        let mut folders = Vec::new();
        collect(&self.0, 3, &mut folders);
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..REMOVERS {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(folder) = folders.get(at) else {
                            return;
                        };
                        let _ = fs::remove_dir_all(folder);
                    }
                });
            }
        });
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Collects the directories `depth` levels below a path.
fn collect(path: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    if depth == 0 {
        folders.push(path.to_path_buf());
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth - 1, folders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_directory_is_removed() {
        let scratch = Scratch::new(None).unwrap();
        let path = scratch.path().to_path_buf();
        let deep = scratch.fresh("store/blobs/abc/deeper").unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        fs::write(path.join("top"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
