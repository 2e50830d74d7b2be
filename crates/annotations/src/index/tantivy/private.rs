//! Directories and files that no other user of the machine may read: the index also has the words of
//! closed groups.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Creates a directory. An existing one stays as it is.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir)
}

/// Returns options that create a private file.
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.mode(FILE);
    options
}

/// Replaces a file as a whole: after a power cut it is the old one or the new one.
pub fn replace(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let draft = dir.join(format!("{name}.new"));
    let mut file = options().write(true).create(true).truncate(true).open(&draft)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    // Before the rename: otherwise a power cut could leave the name without its bytes.
    file.sync_all()?;
    fs::rename(&draft, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// Returns whether other users of the machine have access to a directory.
pub fn is_open_to_others(dir: &Path) -> io::Result<bool> {
    Ok(fs::metadata(dir)?.permissions().mode() & 0o077 != 0)
}
