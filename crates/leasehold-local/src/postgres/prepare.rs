//! Creates a cluster if there is none yet.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::{Naming, PostgresError};
use super::options::Options;
use super::server::PrivatePostgres;
use crate::process::{self, RunAs};

/// A durable cluster is flushed to a disk that other processes may keep busy.
const INITDB_LIMIT: Duration = Duration::from_secs(300);
/// For a shell that does nothing, on a machine where other servers start at the same time.
const ENTER_LIMIT: Duration = Duration::from_secs(60);

impl PrivatePostgres {
    /// Creates what is missing in the directory.
    pub(super) fn prepare(&mut self) -> Result<(), PostgresError> {
        self.check_reachable()?;
        if self.dir.join("run").as_os_str().len() > process::SOCKET_DIR_BYTES {
            let dir = process::short_temp_dir(self.user.as_ref());
            self.socket_dir =
                dir.naming("cannot make a socket directory below", Path::new("/tmp"))?;
        } else if !self.socket_dir.exists() {
            process::make_private_dir(&self.socket_dir, self.user.as_ref())
                .naming("cannot make", &self.socket_dir)?;
        }
        self.password = self.read_or_make_password()?;
        if self.dir.join("data/PG_VERSION").exists() {
            return Ok(());
        }
        if let Some(primary) = &self.options.follows {
            return self.copy(primary);
        }
        // Created aside and renamed: if we die on the way, no later start takes half a cluster for a
        // whole one.
        let (half, whole) = (self.dir.join("data.new"), self.dir.join("data"));
        if half.exists() {
            fs::remove_dir_all(&half).naming("cannot remove", &half)?;
        }
        process::make_private_dir(&half, self.user.as_ref()).naming("cannot make", &half)?;
        let password_file = self.socket_dir.join("password");
        write_private(&password_file, &self.password).naming("cannot write", &password_file)?;
        if let Some(user) = &self.user {
            user.give(&password_file).naming("cannot change the owner of", &password_file)?;
        }
        let mut initdb = self.binaries.command("initdb");
        initdb.arg("-D").arg(&half).arg("--pwfile").arg(&password_file);
        initdb.args(["-U", "postgres", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
        if !self.options.durable {
            initdb.arg("--no-sync");
        }
        self.as_user(&mut initdb);
        let made = process::run(&mut initdb, INITDB_LIMIT);
        let _ = fs::remove_file(&password_file);
        made?;
        fs::rename(&half, &whole).naming("cannot make", &whole)
    }

    /// The password of the TCP port is kept with a cluster that is kept.
    fn read_or_make_password(&self) -> Result<String, PostgresError> {
        let path = self.dir.join("password");
        if let Ok(known) = fs::read_to_string(&path) {
            return Ok(known);
        }
        let password = format!("{:032x}", rand::random::<u128>());
        write_private(&path, &password).naming("cannot write", &path)?;
        Ok(password)
    }

    fn check_reachable(&self) -> Result<(), PostgresError> {
        let Some(user) = &self.user else {
            return Ok(());
        };
        let mut enter = Command::new("/bin/sh");
        enter.args(["-c", "cd \"$1\"", "sh"]).arg(&self.dir);
        self.as_user(&mut enter);
        let unreachable =
            || PostgresError::Unreachable { dir: self.dir.clone(), user: user.name.clone() };
        process::run(&mut enter, ENTER_LIMIT).map(drop).map_err(|_| unreachable())
    }

    pub(super) fn as_user(&self, command: &mut Command) {
        command.current_dir("/");
        if let Some(user) = &self.user {
            user.apply(command);
        }
    }
}

/// Returns the directory of the cluster, created if it is missing.
pub(super) fn home(options: &Options, user: Option<&RunAs>) -> Result<PathBuf, PostgresError> {
    let Some(dir) = &options.dir else {
        return process::short_temp_dir(user)
            .naming("cannot make a directory below", &std::env::temp_dir());
    };
    if !dir.exists() {
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).naming("cannot make", parent)?;
        }
        process::make_private_dir(dir, user).naming("cannot make", dir)?;
    }
    // The server runs in another working directory, so the path must be absolute.
    fs::canonicalize(dir).naming("cannot find", dir)
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
