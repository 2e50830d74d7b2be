//! A second server that follows the first: streaming replication between two private servers.
//!
//! The copy is made by SQL and by the file system: packages with only the PostgreSQL server have no
//! `pg_basebackup`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::backup;
use super::error::{Naming, PostgresError};
use super::options::{Options, Primary};
use super::server::PrivatePostgres;
use crate::process;

/// Files of the running server that are not data, and the WAL, which is copied last.
const NOT_COPIED: [&str; 9] = [
    "postmaster.pid",
    "postmaster.opts",
    "pg_wal",
    "pg_replslot",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
];
/// Of those, the directories that a server expects to find.
const EMPTY: [&str; 6] =
    ["pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots", "pg_stat_tmp"];
/// Until a promoted server accepts writes.
const PROMOTE_LIMIT: Duration = Duration::from_secs(120);

impl PrivatePostgres {
    /// A throwaway copy of a running server that follows it. The settings of the primary do not
    /// change: it confirms commits at once unless its `synchronous_standby_names` says otherwise.
    pub fn standby_of(primary: &Self) -> Options {
        Options { follows: Some(Primary::of(primary)), ..Self::throwaway() }
    }

    /// Copies the primary into an empty data directory.
    pub(super) fn copy(&self, primary: &Primary) -> Result<(), PostgresError> {
        let data = self.dir.join("data");
        let copy = || self.copy_files(primary, &data);
        let label = backup::run(&primary.config, copy).map_err(PostgresError::Copy)??;
        let follow = format!(
            "primary_conninfo = 'host={} port={} user=postgres'\n",
            primary.socket_dir.display(),
            primary.port
        );
        let settings = data.join("postgresql.auto.conf");
        let mut known = fs::read_to_string(&settings).naming("cannot read", &settings)?;
        known.push_str(&follow);
        for (file, text) in [
            (settings, known),
            (data.join("backup_label"), label),
            (data.join("standby.signal"), String::new()),
        ] {
            fs::write(&file, text).naming("cannot write", &file)?;
            self.give(&file)?;
        }
        // Last: it contains everything that was written while the files were copied.
        self.copy_tree(&primary.data.join("pg_wal"), &data.join("pg_wal"), &[])
    }

    fn copy_files(&self, primary: &Primary, to: &Path) -> Result<(), PostgresError> {
        self.copy_tree(&primary.data, to, &NOT_COPIED)?;
        for empty in EMPTY {
            let dir = to.join(empty);
            process::make_private_dir(&dir, self.user.as_ref()).naming("cannot make", &dir)?;
        }
        Ok(())
    }

    /// Copies a directory without the entries of these names. Files that vanish meanwhile are left out, as
    /// the server expects of a copy of a running cluster.
    fn copy_tree(&self, from: &Path, to: &Path, without: &[&str]) -> Result<(), PostgresError> {
        process::make_private_dir(to, self.user.as_ref()).naming("cannot make", to)?;
        for entry in fs::read_dir(from).naming("cannot read", from)? {
            let entry = entry.naming("cannot read", from)?;
            let (name, source) = (entry.file_name(), entry.path());
            let target = to.join(&name);
            if name.to_str().is_some_and(|name| without.contains(&name)) {
                continue;
            }
            let kind = match entry.file_type() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                kind => kind.naming("cannot read the kind of", &source)?,
            };
            if kind.is_dir() {
                self.copy_tree(&source, &target, &[])?;
                continue;
            }
            match fs::copy(&source, &target) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                copied => {
                    copied.naming("cannot copy", &source)?;
                    self.give(&target)?;
                }
            }
        }
        Ok(())
    }

    fn give(&self, path: &Path) -> Result<(), PostgresError> {
        match &self.user {
            Some(user) => user.give(path).naming("cannot change the owner of", path),
            None => Ok(()),
        }
    }

    /// Makes a standby the primary. Returns when it accepts writes.
    pub fn promote(&self) -> Result<(), PostgresError> {
        let mut promoting = self.binaries.command("pg_ctl");
        promoting.arg("promote").arg("-D").arg(self.dir.join("data"));
        promoting.arg("--wait").arg(format!("--timeout={}", PROMOTE_LIMIT.as_secs()));
        self.as_user(&mut promoting);
        process::run(&mut promoting, PROMOTE_LIMIT).map(drop).map_err(PostgresError::from)
    }

    /// Deletes this server's data and starts it again, under the same address, as a standby.
    pub fn come_back_as_standby_of(&mut self, primary: &Self) -> Result<(), PostgresError> {
        self.crash()?;
        let data = self.dir.join("data");
        fs::remove_dir_all(&data).naming("cannot remove", &data)?;
        self.options.follows = Some(Primary::of(primary));
        self.copy(&Primary::of(primary))?;
        self.start_again()
    }
}
