//! A private OpenSearch in a separate process.
//!
//! # Invariants
//! - It is a whole OpenSearch of one node, in [`PrivateOpenSearch::VERSION`], with half a gigabyte of
//!   heap, on a loopback port. It dies with the process that started it, like [`crate::postgres`],
//!   and its data is removed.
//! - Starting takes ten seconds, so the tests of one process share one:
//!   [`PrivateOpenSearch::shared`]. Each test uses its own index prefix, [`fresh_prefix`].
//! - Nothing is downloaded here: `scripts/test --prepare` does so once, into the user's cache.
//!
//! # What can go wrong
//! - Java or the program is missing: the error says how to get it.
//! - Two processes choose the same port: the second one tries another.

mod java;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::process::{self, Supervisor};

/// For all tries together, on a machine where other servers start at the same time.
const START_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The program uses ports from 9201 to 9299 and searches upwards from its first.
const PORTS: std::ops::Range<u16> = 9200..9290;
const TRIES: usize = 5;
const MAIN: &str = "org.codelibs.opensearch.runner.OpenSearchRunner";

/// A nearly full disk must not make our indexes read-only; and one node is a cluster.
const SETTINGS: &str = "discovery.type: single-node\n\
    cluster.routing.allocation.disk.threshold_enabled: false\n\
    node.store.allow_mmap: false\n";

/// Why there is no OpenSearch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenSearchError {
    #[error(
        "Java 11 to 21 is not installed: `apt-get install default-jre-headless`, or set JAVA_HOME"
    )]
    NoJava,
    #[error("OpenSearch is not installed (looked for {}): run `scripts/test --prepare`", .0.display())]
    NotFetched(PathBuf),
    #[error("OpenSearch did not start: {why}; its log says:\n{tail}")]
    NotStarted { why: String, tail: String },
    #[error("OpenSearch did not end within {} s", STOP_LIMIT.as_secs())]
    NotEnded,
    #[error("cannot prepare a directory for OpenSearch: {0}")]
    Io(#[from] io::Error),
}

/// A running OpenSearch. Stopped when dropped.
pub struct PrivateOpenSearch {
    dir: PathBuf,
    address: SocketAddr,
    supervisor: Option<Supervisor>,
}

impl PrivateOpenSearch {
    /// What `scripts/test` fetches; it reads this line.
    pub const VERSION: &str = "2.19.1.0";

    /// Returns the server of this process. The first call blocks for some ten seconds.
    ///
    /// # Panics
    /// If it cannot be started: every test that needs it would fail anyway.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PrivateOpenSearch> = OnceLock::new();
        #[expect(clippy::panic, reason = "only tests call this, and all of them need it")]
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Starts a separate server. Blocks for some ten seconds.
    pub fn start() -> Result<Self, OpenSearchError> {
        let java = java::find().ok_or(OpenSearchError::NoJava)?;
        let jars = jars()?;
        let dir = process::short_temp_dir(None)?;
        fs::create_dir(dir.join("config"))?;
        fs::write(dir.join("config/opensearch.yml"), SETTINGS)?;
        let mut server = Self { dir, address: (Ipv4Addr::LOCALHOST, 0).into(), supervisor: None };
        let deadline = Instant::now() + START_LIMIT;
        let mut tries = 0;
        loop {
            tries += 1;
            match server.start_once(&java, &jars, deadline) {
                Err(OpenSearchError::NotStarted { .. })
                    if tries < TRIES && Instant::now() < deadline => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    fn start_once(
        &mut self,
        java: &Path,
        jars: &Path,
        deadline: Instant,
    ) -> Result<(), OpenSearchError> {
        let name = format!("leasehold-{:016x}", rand::random::<u64>());
        let first = PORTS.start + rand::random::<u16>() % (PORTS.end - PORTS.start);
        let log_path = self.dir.join("opensearch.log");
        let (log, begin) = process::open_log(&log_path)?;
        let mut command = Command::new(java);
        // Set for the user's own programs; here they would change what is tested.
        command.env_remove("JAVA_TOOL_OPTIONS").env_remove("_JAVA_OPTIONS");
        command.args(["-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-cp"]);
        command.arg(jars.join("*")).arg(MAIN);
        command.arg("-basePath").arg(&self.dir).arg("-confPath").arg(self.dir.join("config"));
        command.args(["-numOfNode", "1", "-clusterName", &name]);
        command.args(["-baseHttpPort", &first.to_string()]);
        // No data is kept, so it need not shut down cleanly.
        let supervisor = Supervisor::start(&command, None, log, "KILL", Some(&self.dir))?;
        let supervisor = self.supervisor.insert(supervisor);
        let why = loop {
            if let Some(status) = supervisor.ended()? {
                break status.to_string();
            }
            if let Some(port) = port_in(&log_path, begin) {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                match health(address) {
                    Some(answer) if answer.contains(&name) => {
                        self.address = address;
                        return Ok(());
                    }
                    // Our server can never get that port.
                    Some(_) => break "another program uses its port".to_owned(),
                    None => {}
                }
            }
            if Instant::now() >= deadline {
                break "it does not respond".to_owned();
            }
            process::pause(Duration::from_millis(100));
        };
        let tail = process::log_tail(&log_path, begin);
        // Killed explicitly: dropping the supervisor would remove the directory that the next try
        // needs.
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.kill();
        }
        Err(OpenSearchError::NotStarted { why, tail })
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), OpenSearchError> {
        let Some(mut supervisor) = self.supervisor.take() else { return Ok(()) };
        supervisor.signal("KILL")?;
        if supervisor.wait(STOP_LIMIT)? { Ok(()) } else { Err(OpenSearchError::NotEnded) }
    }

    /// Suspends the process: connections stay open, and no request is answered.
    pub fn freeze(&mut self) -> Result<(), OpenSearchError> {
        self.pass_on("STOP")
    }

    /// Resumes the process; it then handles the requests that came meanwhile.
    pub fn thaw(&mut self) -> Result<(), OpenSearchError> {
        self.pass_on("CONT")
    }

    fn pass_on(&mut self, signal: &str) -> Result<(), OpenSearchError> {
        match &mut self.supervisor {
            Some(supervisor) => Ok(supervisor.signal(signal)?),
            None => Ok(()),
        }
    }
}

impl Drop for PrivateOpenSearch {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns an index prefix for one test.
pub fn fresh_prefix() -> String {
    format!("t{:016x}", rand::random::<u64>())
}

fn jars() -> Result<PathBuf, OpenSearchError> {
    let dir = process::cache_dir().join(format!("opensearch-{}", PrivateOpenSearch::VERSION));
    if dir.is_dir() { Ok(dir) } else { Err(OpenSearchError::NotFetched(dir)) }
}

/// Finds the port that the program prints.
fn port_in(log: &Path, begin: u64) -> Option<u16> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(text.get(usize::try_from(begin).ok()?..)?).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("HTTP Port:"))?;
    line.trim().parse().ok()
}

/// Returns its health response once it can work.
fn health(address: SocketAddr) -> Option<String> {
    let limit = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let path = "/_cluster/health?wait_for_status=yellow&timeout=5s";
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.take(64 * 1024).read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}
