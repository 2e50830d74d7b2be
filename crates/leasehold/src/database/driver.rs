//! The half of a connection that reads the socket, for every transport.

use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, NoTlsStream};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::ConnectError;

/// How sessions are encrypted. `None`: every host is on this machine, or the URL disables TLS.
pub(super) type Tls = Option<MakeRustlsConnect>;

type TlsStream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Reads the socket of one session.
pub(super) enum Driver {
    Plain(Box<Connection<Socket, NoTlsStream>>),
    Tls(Box<Connection<Socket, TlsStream>>),
}

impl Driver {
    pub(super) async fn connect(
        config: &Config,
        tls: &Tls,
    ) -> Result<(Client, Self), tokio_postgres::Error> {
        match tls {
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                Ok((client, Self::Tls(Box::new(connection))))
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                Ok((client, Self::Plain(Box::new(connection))))
            }
        }
    }

    /// Runs until the session ends. An error reaches the caller of the statement that it cut short.
    pub(super) async fn run(self, on_notification: impl Fn(&str) + Send) {
        match self {
            Self::Plain(connection) => messages(*connection, on_notification).await,
            Self::Tls(connection) => messages(*connection, on_notification).await,
        }
    }
}

async fn messages<S, T>(mut connection: Connection<S, T>, on_notification: impl Fn(&str) + Send)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) =
        std::future::poll_fn(|context| connection.poll_message(context)).await
    {
        match message {
            AsyncMessage::Notification(note) => on_notification(note.payload()),
            // For example, a commit that did not wait for its standby.
            AsyncMessage::Notice(notice) if notice.severity() == "WARNING" => {
                tracing::warn!(notice = notice.message(), "PostgreSQL warns");
            }
            AsyncMessage::Notice(notice) => tracing::debug!(notice = notice.message()),
            _ => {}
        }
    }
}

/// Returns a TLS connector if the configuration requires TLS, or if a host is on another machine and the
/// configuration does not disable TLS.
pub(super) fn tls_for(config: &Config) -> Result<Tls, ConnectError> {
    let remote = config
        .get_hosts()
        .iter()
        .any(|host| matches!(host, tokio_postgres::config::Host::Tcp(name) if !is_loopback(name)));
    match config.get_ssl_mode() {
        SslMode::Disable => Ok(None),
        SslMode::Require => Ok(Some(tls_connector()?)),
        _ if remote => Ok(Some(tls_connector()?)),
        _ => Ok(None),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn tls_connector() -> Result<MakeRustlsConnect, ConnectError> {
    let roots = rustls_native_certs::load_native_certs();
    let mut store = rustls::RootCertStore::empty();
    store.add_parsable_certificates(roots.certs);
    if store.is_empty() {
        return Err(ConnectError::Tls(
            "no root certificates were found; install ca-certificates".to_owned(),
        ));
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConnectError::Tls(error.to_string()))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}
