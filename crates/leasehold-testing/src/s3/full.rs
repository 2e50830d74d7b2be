//! A complete S3 server of another vendor, in a separate process: running the same tests on both
//! shows that our own server behaves like a real one.
//!
//! # Invariants
//! - It is versitygw, which keeps objects as files, in [`FullS3Server::VERSION`]. It has one empty bucket
//!   and dies with the process that started it, like [`crate::postgres`].
//! - Nothing is built here: `scripts/test --prepare` does so once, into the user's cache.
//!
//! # What can go wrong
//! - The program is missing: the error says how to get it.

use std::env;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::S3Server;
use crate::process::{self, Supervisor};

const START_LIMIT: Duration = Duration::from_secs(60);
const PROGRAM: &str = "versitygw";
/// Another process may take a port between our search for a free one and its use.
const TRIES: usize = 5;

/// Why there is no full server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FullS3Error {
    #[error(
        "versitygw is not there (looked for {}): run `scripts/test --prepare`, or build it \
         yourself with Go: `GOBIN={} go install github.com/versity/versitygw/cmd/versitygw@{}`",
        .wanted.display(), .wanted.parent().unwrap_or(.wanted).display(), FullS3Server::VERSION
    )]
    NotBuilt { wanted: PathBuf },
    #[error("LEASEHOLD_VERSITYGW is {}, which is no file; set it to the path of the program", .0.display())]
    NotInNamedPlace(PathBuf),
    #[error("versitygw did not start: {why}; its log says:\n{tail}")]
    NotStarted { why: String, tail: String },
    #[error("cannot prepare a directory for versitygw: {0}")]
    Io(#[from] io::Error),
}

/// A running versitygw. Stopped when dropped. Bucket, region and keys are those of [`S3Server`].
pub struct FullS3Server {
    address: SocketAddr,
    dir: PathBuf,
    supervisor: Option<Supervisor>,
}

impl FullS3Server {
    /// What `scripts/test` builds; it reads this line.
    pub const VERSION: &str = "v1.8.0";

    /// Starts a server. Blocks for some tens of milliseconds.
    pub fn start() -> Result<Self, FullS3Error> {
        let program = find()?;
        let dir = process::short_temp_dir(None)?;
        let mut server =
            Self { address: (Ipv4Addr::LOCALHOST, 0).into(), dir: dir.clone(), supervisor: None };
        // A directory is a bucket. Metadata of objects goes into a separate directory, because not
        // every file system supports extended attributes.
        fs::create_dir_all(dir.join("data").join(S3Server::BUCKET))?;
        fs::create_dir_all(dir.join("meta"))?;
        let mut tries = 0;
        loop {
            tries += 1;
            match server.start_on_a_free_port(&program) {
                Err(FullS3Error::NotStarted { .. }) if tries < TRIES => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Returns the endpoint, without the bucket.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    fn start_on_a_free_port(&mut self, program: &Path) -> Result<(), FullS3Error> {
        self.address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let log_path = self.dir.join("versitygw.log");
        let (log, begin) = process::open_log(&log_path)?;
        // A random path: another server may answer on this port.
        let sign = format!("/leasehold-{:016x}", rand::random::<u64>());
        let command = self.command(program, &sign);
        let supervisor = Supervisor::start(&command, None, log, "TERM", Some(&self.dir))?;
        let supervisor = self.supervisor.insert(supervisor);
        let deadline = Instant::now() + START_LIMIT;
        let why = loop {
            if let Some(status) = supervisor.ended()? {
                break status.to_string();
            }
            if answers(self.address, &sign) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                break "it does not respond".to_owned();
            }
            process::pause(Duration::from_millis(10));
        };
        let tail = process::log_tail(&log_path, begin);
        // Killed explicitly: dropping the supervisor would remove the directory that the next try
        // needs.
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.kill();
        }
        Err(FullS3Error::NotStarted { why, tail })
    }

    fn command(&self, program: &Path, sign: &str) -> Command {
        let mut command = Command::new(program);
        // Settings for the user's own server must not affect this one.
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("VGW_") {
                command.env_remove(name);
            }
        }
        command.env("ROOT_ACCESS_KEY", S3Server::ACCESS_KEY);
        command.env("ROOT_SECRET_KEY", S3Server::SECRET_KEY);
        command.args(["--quiet", "--keep-alive", "--region", S3Server::REGION]);
        command.arg("--port").arg(self.address.to_string()).args(["--health", sign]);
        command.arg("posix").arg("--sidecar").arg(self.dir.join("meta"));
        command.arg(self.dir.join("data"));
        command
    }
}

impl Drop for FullS3Server {
    fn drop(&mut self) {
        self.supervisor = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns whether the server at this address is ours: it knows this health path.
fn answers(address: SocketAddr, sign: &str) -> bool {
    let limit = Duration::from_secs(10);
    let asked = || -> io::Result<[u8; 12]> {
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        write!(stream, "GET {sign} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut start = [0; 12];
        stream.read_exact(&mut start)?;
        Ok(start)
    };
    asked().is_ok_and(|start| start == *b"HTTP/1.1 200")
}

fn find() -> Result<PathBuf, FullS3Error> {
    if let Some(named) = env::var_os("LEASEHOLD_VERSITYGW").filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() { Ok(named) } else { Err(FullS3Error::NotInNamedPlace(named)) };
    }
    let folder = format!("{PROGRAM}-{}", FullS3Server::VERSION);
    let wanted = process::cache_dir().join(folder).join(PROGRAM);
    if wanted.is_file() { Ok(wanted) } else { Err(FullS3Error::NotBuilt { wanted }) }
}
