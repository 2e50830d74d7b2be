use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{CommandError, NoUnprivilegedUser};

/// Why there is no private server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// No installed version was found.
    #[error(
        "PostgreSQL is not installed: `apt-get install postgresql` or `brew install postgresql`, \
         or set LEASEHOLD_PG_BIN to the directory of `initdb` and `postgres` (looked in {looked_in})"
    )]
    NotInstalled { looked_in: String },
    /// `LEASEHOLD_PG_BIN` names a directory without the programs; a search elsewhere would surprise.
    #[error("LEASEHOLD_PG_BIN is {}, but `initdb` and `postgres` are not there", .0.display())]
    NotInNamedDirectory(PathBuf),
    /// A data directory only fits the major version that created it.
    #[error(
        "{} was made by PostgreSQL {found}, installed is {installed}: install version {found}, \
         or choose another directory", .dir.display()
    )]
    OtherVersion { dir: PathBuf, found: String, installed: String },
    /// Two servers on one directory would destroy it.
    #[error(
        "a server (pid {pid}) is already running in {}: stop it with `kill -INT {pid}`, \
         or choose another directory", .dir.display()
    )]
    AlreadyRunning { dir: PathBuf, pid: u32 },
    /// As root we run the server as another user, who must be able to enter the directory.
    #[error(
        "user {user} cannot enter {}: choose a directory outside of private ones such as /root, \
         or run as a normal user", .dir.display()
    )]
    Unreachable { dir: PathBuf, user: String },
    #[error(transparent)]
    NoUnprivilegedUser(#[from] NoUnprivilegedUser),
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The server ended, or was not ready in time.
    #[error("PostgreSQL did not start: {why}; the end of {} says:\n{tail}", .log.display())]
    NotStarted { why: String, log: PathBuf, tail: String },
    #[error("PostgreSQL is still running {} s after the stop signal; its log is {}", .limit.as_secs(), .log.display())]
    NotStopped { limit: Duration, log: PathBuf },
    #[error("cannot copy the primary: {0}")]
    Copy(String),
    #[error("{what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// Names the step and the path that an I/O error belongs to.
pub(super) trait Naming<T> {
    fn naming(self, what: &'static str, path: &Path) -> Result<T, PostgresError>;
}

impl<T> Naming<T> for io::Result<T> {
    fn naming(self, what: &'static str, path: &Path) -> Result<T, PostgresError> {
        self.map_err(|source| PostgresError::Io { what, path: path.to_owned(), source })
    }
}
