//! Root may not run PostgreSQL or PgBouncer, so as root we run them as an unprivileged user.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// We are root, and /etc/passwd names no other user.
#[derive(Debug, thiserror::Error)]
#[error(
    "PostgreSQL does not run as root and /etc/passwd names no other user: add one with `useradd postgres`"
)]
pub struct NoUnprivilegedUser;

/// The user that a server runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs {
    pub name: String,
    uid: u32,
    gid: u32,
}

impl RunAs {
    /// Returns the user to run as; `None` unless we are root.
    pub fn choose() -> Result<Option<Self>, NoUnprivilegedUser> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::from_passwd(&passwd).map(Some).ok_or(NoUnprivilegedUser)
    }

    fn from_passwd(passwd: &str) -> Option<Self> {
        let users: Vec<Self> = passwd.lines().filter_map(Self::from_line).collect();
        let named = |name| users.iter().find(|user| user.name == name);
        named("postgres").or_else(|| named("nobody")).or(users.first()).cloned()
    }

    /// `name:password:uid:gid:…`; macOS writes ids like -2 there.
    fn from_line(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        let id = |at: usize| fields.get(at)?.parse::<i64>().ok().map(|id| id as u32);
        let (uid, gid) = (id(2)?, id(3)?);
        (uid != 0).then(|| Self { name: fields[0].to_owned(), uid, gid })
    }

    /// Starts this command as that user.
    pub fn apply(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Makes that user the owner of a path.
    pub fn give(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.uid), Some(self.gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\ndaemon:x:1:2::/:/bin/sh\nnobody:*:-2:-2::/:\n";

    #[test]
    fn choice_prefers_postgres_to_other_users() {
        let name = |passwd: &str| RunAs::from_passwd(passwd).map(|user| user.name);
        assert_eq!(name(&format!("{PASSWD}postgres:x:101:104::/:")), Some("postgres".into()));
        assert_eq!(name(PASSWD), Some("nobody".into()));
        assert_eq!(name("root:x:0:0::/:\ndaemon:x:1:2::/:"), Some("daemon".into()));
        assert_eq!(name("root:x:0:0::/:\nbroken line\n"), None);
    }

    #[test]
    fn negative_ids_wrap_as_in_the_system() {
        let user = RunAs::from_passwd(PASSWD).unwrap();
        assert_eq!((user.uid, user.gid), (4_294_967_294, 4_294_967_294));
    }
}
