//! A PgBouncer in transaction mode in front of a private server.
//!
//! # Invariants
//! - A client has a server connection only during a transaction; between two transactions another
//!   client may use it. Session state (settings, session locks, LISTEN, named statements) does not last.
//! - A client that can open the socket reaches every database of the server without a password. Only
//!   we can open it.
//! - It dies with the process that started it, like [`crate::postgres`].
//!
//! # What can go wrong
//! - PgBouncer is not installed, or refuses its settings: the error quotes its log.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio_postgres::Config;

use crate::PrivatePostgres;
use crate::process::{self, NoUnprivilegedUser, RunAs, Supervisor};

const START_LIMIT: Duration = Duration::from_secs(60);
/// There is no TCP port; this only names the socket.
const PORT: u16 = 6432;
/// Debian installs it outside a normal user's PATH.
const OTHER_PLACES: [&str; 4] =
    ["/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin"];

/// Why there is no pooler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PgBouncerError {
    #[error("PgBouncer is not installed: `apt-get install pgbouncer` or `brew install pgbouncer`")]
    NotInstalled,
    #[error(transparent)]
    NoUnprivilegedUser(#[from] NoUnprivilegedUser),
    #[error("PgBouncer did not start: {why}; its log says:\n{tail}")]
    NotStarted { why: String, tail: String },
    #[error("cannot prepare a directory for PgBouncer: {0}")]
    Io(#[from] io::Error),
}

/// A running PgBouncer. Stopped when dropped.
pub struct PgBouncer {
    dir: PathBuf,
    supervisor: Option<Supervisor>,
}

impl PgBouncer {
    /// Starts a pooler with at most `pool_size` server connections per database. Blocks for some tens
    /// of milliseconds.
    pub fn start(postgres: &PrivatePostgres, pool_size: u16) -> Result<Self, PgBouncerError> {
        Self::start_with(postgres, pool_size, &[])
    }

    /// Like [`start`](Self::start), with more lines for its settings, such as `server_round_robin =
    /// 1`.
    pub fn start_with(
        postgres: &PrivatePostgres,
        pool_size: u16,
        more: &[&str],
    ) -> Result<Self, PgBouncerError> {
        let program = find().ok_or(PgBouncerError::NotInstalled)?;
        let user = RunAs::choose()?;
        let dir = process::short_temp_dir(user.as_ref())?;
        let mut pooler = Self { dir, supervisor: None };
        let settings = pooler.dir.join("pgbouncer.ini");
        let mut text = pooler.settings(postgres, pool_size);
        more.iter().for_each(|line| text.push_str(&format!("{line}\n")));
        fs::write(&settings, text)?;
        if let Some(user) = &user {
            user.give(&settings)?;
        }
        let log_path = pooler.dir.join("pgbouncer.log");
        let (log, begin) = process::open_log(&log_path)?;
        let mut command = Command::new(program);
        command.arg(&settings);
        // SIGINT would wait for clients; SIGTERM ends at once.
        let remove = pooler.dir.clone();
        let supervisor = Supervisor::start(&command, user.as_ref(), log, "TERM", Some(&remove))?;
        let supervisor = pooler.supervisor.insert(supervisor);
        let deadline = Instant::now() + START_LIMIT;
        let why = loop {
            if UnixStream::connect(pooler.dir.join(format!(".s.PGSQL.{PORT}"))).is_ok() {
                return Ok(pooler);
            }
            match supervisor.ended()? {
                Some(status) => break status.to_string(),
                None if Instant::now() >= deadline => break "it accepts no connection".to_owned(),
                None => process::pause(Duration::from_millis(10)),
            }
        };
        Err(PgBouncerError::NotStarted { why, tail: process::log_tail(&log_path, begin) })
    }

    fn settings(&self, postgres: &PrivatePostgres, pool_size: u16) -> String {
        let (server_dir, server_port) = (postgres.socket_dir().display(), postgres.port());
        let dir = self.dir.display();
        format!(
            "[databases]\n\
             * = host={server_dir} port={server_port} user=postgres\n\
             [pgbouncer]\n\
             unix_socket_dir = {dir}\n\
             listen_port = {PORT}\n\
             listen_addr =\n\
             auth_type = any\n\
             admin_users = postgres\n\
             pool_mode = transaction\n\
             default_pool_size = {pool_size}\n\
             max_client_conn = 1000\n\
             server_idle_timeout = 600\n\
             server_connect_timeout = 60\n\
             server_login_retry = 1\n\
             query_wait_timeout = 120\n\
             ignore_startup_parameters = extra_float_digits,options,search_path,statement_timeout,\
             lock_timeout,idle_in_transaction_session_timeout,client_connection_check_interval\n"
        )
    }

    /// Returns a URL for clients.
    pub fn url(&self, database: &str) -> String {
        format!("postgresql:///{database}?host={}&port={PORT}&user=postgres", self.dir.display())
    }

    /// Like [`url`](Self::url), for tokio-postgres.
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config
            .host_path(&self.dir)
            .port(PORT)
            .user("postgres")
            .dbname(database)
            .connect_timeout(Duration::from_secs(10));
        config
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.supervisor = None;
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(OTHER_PLACES.iter().map(PathBuf::from))
        .map(|dir| dir.join("pgbouncer"))
        .find(|program: &PathBuf| Path::is_file(program))
}
