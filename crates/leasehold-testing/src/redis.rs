//! A private Redis on its own socket.
//!
//! # Invariants
//! - It listens on a socket that only we can open, on no port, and persists nothing: after a kill it
//!   is empty.
//! - It dies with the process that started it, like [`crate::postgres`].
//!
//! # What can go wrong
//! - Redis is not installed, or refuses its settings: the error quotes its log.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ::redis::AsyncConnectionConfig;
use ::redis::aio::MultiplexedConnection;

use crate::process::{self, NoUnprivilegedUser, RunAs, Supervisor};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The library would wait half a second for a reply, which is too short on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const OTHER_PLACES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];

/// Why there is no Redis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    #[error("Redis is not installed: `apt-get install redis-server` or `brew install redis`")]
    NotInstalled,
    #[error(transparent)]
    NoUnprivilegedUser(#[from] NoUnprivilegedUser),
    #[error("Redis did not start: {why}; its log says:\n{tail}")]
    NotStarted { why: String, tail: String },
    #[error("Redis did not end within {} s", STOP_LIMIT.as_secs())]
    NotEnded,
    #[error("cannot prepare a directory for Redis: {0}")]
    Io(#[from] io::Error),
    #[error("Redis refused: {0}")]
    Refused(#[from] ::redis::RedisError),
}

/// A running Redis. Stopped when dropped.
pub struct PrivateRedis {
    dir: PathBuf,
    program: PathBuf,
    user: Option<RunAs>,
    supervisor: Option<Supervisor>,
}

impl PrivateRedis {
    /// Starts a server. Blocks for some tens of milliseconds.
    pub fn start() -> Result<Self, RedisError> {
        let program = find().ok_or(RedisError::NotInstalled)?;
        let user = RunAs::choose()?;
        let dir = process::short_temp_dir(user.as_ref())?;
        let mut server = Self { dir, program, user, supervisor: None };
        server.restart()?;
        Ok(server)
    }

    /// Starts it again, empty and at the same address, after [`stop`](Self::stop) or
    /// [`kill`](Self::kill).
    pub fn restart(&mut self) -> Result<(), RedisError> {
        self.supervisor = None;
        let log_path = self.dir.join("redis.log");
        let (log, begin) = process::open_log(&log_path)?;
        let mut command = Command::new(&self.program);
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocketperm",
            "700",
        ]);
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(&self.dir);
        let user = self.user.as_ref();
        let supervisor = Supervisor::start(&command, user, log, "TERM", Some(&self.dir))?;
        let socket = self.socket();
        let supervisor = self.supervisor.insert(supervisor);
        let deadline = Instant::now() + START_LIMIT;
        let why = loop {
            if UnixStream::connect(&socket).is_ok() {
                return Ok(());
            }
            match supervisor.ended()? {
                Some(status) => break status.to_string(),
                None if Instant::now() >= deadline => break "it does not respond".to_owned(),
                None => process::pause(Duration::from_millis(10)),
            }
        };
        Err(RedisError::NotStarted { why, tail: process::log_tail(&log_path, begin) })
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    /// Returns a URL for clients.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Stops it cleanly.
    pub fn stop(&mut self) -> Result<(), RedisError> {
        self.end("TERM")
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), RedisError> {
        self.end("KILL")
    }

    fn end(&mut self, signal: &str) -> Result<(), RedisError> {
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(()) };
        supervisor.signal(signal)?;
        if supervisor.wait(STOP_LIMIT)? { Ok(()) } else { Err(RedisError::NotEnded) }
    }

    /// Suspends the process: connections stay open, and no request is answered.
    pub fn freeze(&mut self) -> Result<(), RedisError> {
        self.pass_on("STOP")
    }

    /// Resumes the process; it then handles the requests that came meanwhile.
    pub fn thaw(&mut self) -> Result<(), RedisError> {
        self.pass_on("CONT")
    }

    fn pass_on(&mut self, signal: &str) -> Result<(), RedisError> {
        match &mut self.supervisor {
            Some(supervisor) => Ok(supervisor.signal(signal)?),
            None => Ok(()),
        }
    }

    /// Deletes every key.
    pub async fn flush(&self) -> Result<(), RedisError> {
        let mut connection = self.connect().await?;
        ::redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
        Ok(())
    }

    /// Opens a separate connection, for queries of the test.
    pub async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let client = ::redis::Client::open(self.url())?;
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_LIMIT))
            .set_response_timeout(Some(ANSWER_LIMIT));
        Ok(client.get_multiplexed_async_connection_with_config(&patient).await?)
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // A frozen server would not react to SIGTERM.
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(OTHER_PLACES.iter().map(PathBuf::from))
        .map(|dir| dir.join("redis-server"))
        .find(|program: &PathBuf| Path::is_file(program))
}
