use std::path::PathBuf;

use super::{PostgresError, PrivatePostgres};

/// The options of a private server. Begin with [`PrivatePostgres::throwaway`],
/// [`PrivatePostgres::temporary`] or [`PrivatePostgres::kept_in`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory. `None`: a fresh directory that is removed with the server.
    pub(super) dir: Option<PathBuf>,
    pub(super) settings: Vec<(String, String)>,
    pub(super) tcp_port: Option<u16>,
    pub(super) durable: bool,
    /// The server that this one copies and follows.
    pub(super) follows: Option<Primary>,
}

/// Where a standby finds its primary.
#[derive(Debug, Clone)]
pub(super) struct Primary {
    pub(super) socket_dir: PathBuf,
    pub(super) port: u16,
    pub(super) data: PathBuf,
    pub(super) config: tokio_postgres::Config,
}

impl Primary {
    pub(super) fn of(postgres: &PrivatePostgres) -> Self {
        Self {
            socket_dir: postgres.socket_dir().to_owned(),
            port: postgres.port(),
            data: postgres.dir.join("data"),
            config: postgres.config("postgres"),
        }
    }
}

impl Options {
    pub(super) fn new(dir: Option<PathBuf>, durable: bool) -> Self {
        Self { dir, settings: Vec::new(), tcp_port: None, durable, follows: None }
    }

    /// Adds a server setting, as in `postgresql.conf`. The last one of a name counts.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// Also listens on 127.0.0.1. Every user of the machine can reach a port, so it requires a
    /// password, which [`PrivatePostgres::tcp_url`] contains. The socket requires none: only we can
    /// open it.
    pub fn listen_tcp(mut self, port: u16) -> Self {
        self.tcp_port = Some(port);
        self
    }

    /// Creates the cluster if there is none yet, and starts it.
    pub fn start(self) -> Result<PrivatePostgres, PostgresError> {
        PrivatePostgres::start(self)
    }
}
