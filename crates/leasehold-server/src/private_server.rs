//! Where the private server of `leasehold dev` keeps its data, and how other commands find it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cli::address::Environment;

/// Returns the user's data directory. The server's user cannot enter root's home, so root gets a
/// directory of the system.
pub fn default_dir(environment: Environment<'_>) -> Option<PathBuf> {
    choose(environment, rustix::process::geteuid().is_root(), cfg!(target_os = "macos"))
}

fn choose(environment: Environment<'_>, root: bool, mac: bool) -> Option<PathBuf> {
    if let Some(data) = environment("XDG_DATA_HOME") {
        return Some(PathBuf::from(data).join("leasehold"));
    }
    if root && !mac {
        return Some(PathBuf::from("/var/lib/leasehold"));
    }
    let home = PathBuf::from(environment("HOME")?);
    Some(home.join(if mac {
        "Library/Application Support/leasehold"
    } else {
        ".local/share/leasehold"
    }))
}

/// The file with the URL of the server while `leasehold dev` runs, for other commands.
pub fn url_file(dir: &Path) -> PathBuf {
    dir.join("dev.url")
}

/// The file with the URL of the paste service, likewise.
pub fn pastes_file(dir: &Path) -> PathBuf {
    dir.join("pastes.url")
}

pub fn write_url(file: &Path, url: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(file)?;
    writeln!(file, "{url}")
}

pub fn forget_urls(dir: &Path) {
    // If a kill leaves them behind, the next command only fails to connect.
    for file in [url_file(dir), pastes_file(dir)] {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_dir_depends_on_the_system() {
        let home = |name: &str| (name == "HOME").then(|| "/home/ann".to_owned());
        let nothing = |_: &str| None;
        let at = |root, mac| choose(&home, root, mac).map(|dir| dir.display().to_string());
        assert_eq!(at(false, false).as_deref(), Some("/home/ann/.local/share/leasehold"));
        assert_eq!(
            at(false, true).as_deref(),
            Some("/home/ann/Library/Application Support/leasehold")
        );
        assert_eq!(at(true, false).as_deref(), Some("/var/lib/leasehold"));
        assert_eq!(choose(&nothing, false, false), None);
        let xdg = |name: &str| (name == "XDG_DATA_HOME").then(|| "/data".to_owned());
        assert_eq!(choose(&xdg, true, false), Some(PathBuf::from("/data/leasehold")));
    }
}
