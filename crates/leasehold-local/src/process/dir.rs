//! Directories that only their owner can enter.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::RunAs;

/// The longest directory that still leaves room for a socket's name: the whole path of a socket may
/// have 103 bytes on macOS and 107 on Linux.
pub const SOCKET_DIR_BYTES: usize = 80;

/// Creates one directory with mode 0700 that belongs to `owner`. It must not exist yet.
pub fn make_private_dir(path: &Path, owner: Option<&RunAs>) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    match owner {
        Some(owner) => owner.give(path),
        None => Ok(()),
    }
}

/// Creates a fresh private directory whose path is short enough to hold sockets.
pub fn short_temp_dir(owner: Option<&RunAs>) -> io::Result<PathBuf> {
    let system = std::env::temp_dir();
    // macOS has a temporary directory of some fifty bytes, and users set longer ones.
    let fits = system.as_os_str().len() + 20 <= SOCKET_DIR_BYTES;
    let root = if fits { system } else { PathBuf::from("/tmp") };
    // Fails rather than share: a name that is taken may belong to another user.
    let path = root.join(format!("leasehold-{:08x}", rand::random::<u32>()));
    make_private_dir(&path, owner)?;
    Ok(path)
}

/// Returns the user's directory for what was built or installed once: `LEASEHOLD_CACHE`, or
/// `leasehold` in the user's cache directory. `scripts/lib/machine.sh` uses the same one.
pub fn cache_dir() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = named("LEASEHOLD_CACHE") {
        return dir.into();
    }
    let caches = named("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(named("HOME").unwrap_or_default()).join(".cache");
    caches.unwrap_or_else(home).join("leasehold")
}
