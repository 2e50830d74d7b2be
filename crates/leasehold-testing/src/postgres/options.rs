use std::path::PathBuf;

use super::{PostgresError, PrivatePostgres};

/// How a private server is made. Begin with [`PrivatePostgres::throwaway`],
/// [`PrivatePostgres::temporary`] or [`PrivatePostgres::kept_in`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it lives. `None`: a fresh directory that is removed with the server.
    pub(super) dir: Option<PathBuf>,
    pub(super) settings: Vec<(String, String)>,
    pub(super) tcp_port: Option<u16>,
    pub(super) durable: bool,
}

impl Options {
    pub(super) fn new(dir: Option<PathBuf>, durable: bool) -> Self {
        Self { dir, settings: Vec::new(), tcp_port: None, durable }
    }

    /// A server setting, as in `postgresql.conf`. The last one of a name counts.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// Also listens on 127.0.0.1. Every user of the machine can reach a port, so it asks for a
    /// password, which [`PrivatePostgres::tcp_url`] contains. The socket asks for none: only we can
    /// open it.
    pub fn listen_tcp(mut self, port: u16) -> Self {
        self.tcp_port = Some(port);
        self
    }

    /// Makes the cluster where there is none yet, and starts it.
    pub fn start(self) -> Result<PrivatePostgres, PostgresError> {
        PrivatePostgres::start(self)
    }
}
