//! The connection from the proxy to the server.

use std::io;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

#[derive(Clone)]
pub(super) enum Upstream {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// Either kind of stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    pub(super) fn first_of(config: &Config) -> io::Result<Self> {
        let port = config.get_ports().first().copied().unwrap_or(5432);
        match config.get_hosts().first() {
            Some(Host::Tcp(host)) => Ok(Self::Tcp(host.clone(), port)),
            Some(Host::Unix(dir)) => Ok(Self::Unix(dir.join(format!(".s.PGSQL.{port}")))),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "the config names no host")),
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(host, port) => Box::new(TcpStream::connect((host.as_str(), *port)).await?),
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}
