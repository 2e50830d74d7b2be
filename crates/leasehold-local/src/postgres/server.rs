use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_postgres::Config;

use super::binaries::Binaries;
use super::error::{Naming, PostgresError};
use super::options::Options;
use super::pidfile::PidFile;
use super::prepare::home;
use crate::process::{self, RunAs, Supervisor};

/// Recovery after a crash may take a while on a slow disk; a healthy start takes well under a second.
const START_LIMIT: Duration = Duration::from_secs(180);
const STOP_LIMIT: Duration = Duration::from_secs(120);

/// A private PostgreSQL server. Stopped when dropped.
pub struct PrivatePostgres {
    pub(super) options: Options,
    pub(super) binaries: Binaries,
    pub(super) user: Option<RunAs>,
    /// Holds `data`, `postgres.log` and, if its path is short, the socket directory.
    pub(super) dir: PathBuf,
    pub(super) socket_dir: PathBuf,
    pub(super) password: String,
    supervisor: Option<Supervisor>,
}

impl PrivatePostgres {
    /// A cluster for tests: removed with the server, and allowed to lose data when the machine stops.
    /// It loses none when processes are killed, so tests of crashes are valid.
    pub fn throwaway() -> Options {
        Options::new(None, false)
    }

    /// A cluster in a fresh directory, removed with the server. Fully durable while it lives.
    pub fn temporary() -> Options {
        Options::new(None, true)
    }

    /// A cluster that stays in `dir`: created there the first time, used again later.
    pub fn kept_in(dir: impl Into<PathBuf>) -> Options {
        Options::new(Some(dir.into()), true)
    }

    pub(super) fn start(options: Options) -> Result<Self, PostgresError> {
        let user = RunAs::choose()?;
        // The version of an existing cluster decides which binaries fit.
        let version = options.dir.as_ref().and_then(|dir| {
            Some((
                dir.clone(),
                fs::read_to_string(dir.join("data/PG_VERSION")).ok()?.trim().to_owned(),
            ))
        });
        let wanted = version.as_ref().map(|(dir, version)| (dir.as_path(), version.as_str()));
        let binaries = Binaries::find(wanted)?;
        let dir = home(&options, user.as_ref())?;
        let socket_dir = dir.join("run");
        let mut server = Self {
            options,
            binaries,
            user,
            dir,
            socket_dir,
            password: String::new(),
            supervisor: None,
        };
        server.prepare()?;
        server.start_again()?;
        Ok(server)
    }

    /// Starts the server again after [`stop`](Self::stop) or [`crash`](Self::crash).
    pub fn start_again(&mut self) -> Result<(), PostgresError> {
        if self.supervisor.is_some() {
            return Ok(());
        }
        self.refuse_a_second_server()?;
        // The pid file of a killed server still says "ready".
        let data = self.dir.join("data");
        let stale = PidFile::read(&data);
        let (log, begin) =
            process::open_log(&self.log_path()).naming("cannot open", &self.log_path())?;
        let remove = self.options.dir.is_none().then_some(self.dir.as_path());
        let supervisor = Supervisor::start(&self.command(), self.user.as_ref(), log, "INT", remove)
            .naming("cannot start a server in", &self.dir)?;
        let supervisor = self.supervisor.insert(supervisor);
        let deadline = Instant::now() + START_LIMIT;
        let why = loop {
            let file = PidFile::read(&data);
            let up = |file: PidFile| file.status == "ready" || file.status == "standby";
            if file != stale && file.is_some_and(up) {
                return Ok(());
            }
            match supervisor.ended().naming("cannot wait for the server in", &self.dir)? {
                Some(status) => break status.to_string(),
                None if Instant::now() >= deadline => {
                    break format!("not ready after {} s", START_LIMIT.as_secs());
                }
                None => process::pause(Duration::from_millis(10)),
            }
        };
        // Read first: the log may be removed with the directory.
        let (log, tail) = (self.log_path(), process::log_tail(&self.log_path(), begin));
        self.supervisor = None;
        Err(PostgresError::NotStarted { why, log, tail })
    }

    /// Stops the server: open transactions are rolled back, everything is written out.
    pub fn stop(&mut self) -> Result<(), PostgresError> {
        self.end("INT")
    }

    /// Stops the server as a crash would: nothing is written out, and the next start recovers.
    pub fn crash(&mut self) -> Result<(), PostgresError> {
        self.end("QUIT")
    }

    fn end(&mut self, signal: &str) -> Result<(), PostgresError> {
        let Some(supervisor) = &mut self.supervisor else {
            return Ok(());
        };
        // A server that is already gone cannot be signalled; the wait below sees that.
        let _ = supervisor.signal(signal);
        if !supervisor.wait(STOP_LIMIT).naming("cannot wait for the server in", &self.dir)? {
            return Err(PostgresError::NotStopped { limit: STOP_LIMIT, log: self.log_path() });
        }
        self.supervisor = None;
        Ok(())
    }

    /// Returns a URL that goes through the socket.
    pub fn url(&self, database: &str) -> String {
        socket_url(&self.socket_dir, self.port(), database)
    }

    /// Returns a URL for TCP, or `None` without [`Options::listen_tcp`].
    pub fn tcp_url(&self, database: &str) -> Option<String> {
        let port = self.options.tcp_port?;
        Some(format!("postgresql://postgres:{}@127.0.0.1:{port}/{database}", self.password))
    }

    /// Like [`url`](Self::url), for tokio-postgres.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config
            .host_path(&self.socket_dir)
            .port(self.port())
            .user("postgres")
            .dbname(database)
            .connect_timeout(Duration::from_secs(10));
        config
    }

    /// Returns the directory of the socket `.s.PGSQL.<port>`.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Returns the port that names the socket, and the TCP port if there is one.
    pub fn port(&self) -> u16 {
        self.options.tcp_port.unwrap_or(5432)
    }

    /// Returns the pid of the server while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.supervisor.as_ref()?;
        Some(PidFile::read(&self.dir.join("data"))?.pid)
    }

    /// Returns the path of the server's log.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("postgres.log")
    }

    /// Returns the directory that holds the cluster, its socket and its log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn refuse_a_second_server(&self) -> Result<(), PostgresError> {
        let data = self.dir.join("data");
        let begin = Instant::now();
        while let Some(file) = PidFile::read(&data).filter(PidFile::is_alive) {
            // A previous process was perhaps killed a moment ago and its server is still shutting
            // down.
            let timeout =
                if file.status == "stopping" { STOP_LIMIT } else { Duration::from_secs(1) };
            if begin.elapsed() >= timeout {
                return Err(PostgresError::AlreadyRunning { dir: self.dir.clone(), pid: file.pid });
            }
            process::pause(Duration::from_millis(20));
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = self.binaries.command("postgres");
        command.arg("-D").arg(self.dir.join("data"));
        let mut set = |key: &str, value: &str| {
            command.arg("-c").arg(format!("{key}={value}"));
        };
        set("unix_socket_directories", &self.socket_dir.to_string_lossy());
        set("listen_addresses", if self.options.tcp_port.is_some() { "127.0.0.1" } else { "" });
        set("port", &self.port().to_string());
        if !self.options.durable {
            // Only what a power failure would need is off. `synchronous_commit` and
            // `full_page_writes` stay on: recovery after a kill needs them.
            set("fsync", "off");
        }
        for (key, value) in &self.options.settings {
            set(key, value);
        }
        command
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // Dropping the supervisor stops the server, and removes a directory that is not kept.
        self.supervisor = None;
        if self.options.dir.is_none() {
            let _ = fs::remove_dir_all(&self.dir);
        }
        if !self.socket_dir.starts_with(&self.dir) {
            let _ = fs::remove_dir_all(&self.socket_dir);
        }
    }
}

/// Builds a URL for a socket. The directory may contain blanks, as on macOS.
pub fn socket_url(socket_dir: &Path, port: u16, database: &str) -> String {
    let mut dir = String::new();
    for byte in socket_dir.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                dir.push(byte as char);
            }
            other => dir.push_str(&format!("%{other:02X}")),
        }
    }
    format!("postgresql:///{database}?host={dir}&port={port}&user=postgres")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_url_encodes_blanks() {
        let url = socket_url(Path::new("/Users/a b/run"), 5432, "app");
        let config: Config = url.parse().expect("a URL");
        let hosts = format!("{:?}", config.get_hosts());
        assert!(hosts.contains("/Users/a b/run"), "{hosts}");
    }
}
