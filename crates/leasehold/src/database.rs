//! Sessions: how the engine talks to Postgres.
//!
//! # What is true
//! - Every connection has a time limit to open, keeps TCP alive, and makes the server notice a
//!   client that vanished, so that no row stays locked behind a dead socket.
//! - A session commits durably: `synchronous_commit` is raised to `on` where it was lower.
//! - Through a pooler in transaction mode nothing is set on the session: it belongs to others too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_postgres::{Client, Config, Statement};

use crate::error::{ConnectError, SchemaError};

pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The oldest major version of PostgreSQL that the promises are tested on.
pub const OLDEST_SERVER: u32 = 15;

/// A database the engine may open sessions on.
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
    pooled: bool,
}

/// One open session. Dropping it closes the socket, even when the server does not answer.
pub struct Session {
    client: Client,
    driver: AbortHandle,
    /// Statements prepared on this connection. Ours are few and fixed.
    statements: Mutex<HashMap<String, Statement>>,
}

impl Session {
    fn new(client: Client, driver: AbortHandle) -> Self {
        Self { client, driver, statements: Mutex::default() }
    }

    pub(crate) fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::Deref for Session {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Ends the driver too: left alone it would wait for replies on a dead connection for ever.
        self.driver.abort();
    }
}

impl Database {
    /// Reads a URL or a `key=value` string. Opens nothing.
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            ConnectError::BadUrl(crate::error::describe(&error))
        })?;
        Self::from_config(config)
    }

    pub fn from_config(mut config: Config) -> Result<Self, ConnectError> {
        config
            .connect_timeout(CONNECT_LIMIT)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        let wants_tls = !matches!(config.get_ssl_mode(), tokio_postgres::config::SslMode::Disable)
            && config.get_hosts().iter().any(|host| {
                matches!(host, tokio_postgres::config::Host::Tcp(name) if !is_loopback(name))
            });
        let tls = if wants_tls { Some(tls_connector()?) } else { None };
        Ok(Self { config, tls, pooled: false })
    }

    /// Finds out whether a pooler shares sessions between transactions: two connections that are
    /// open at the same time then answer with the same backend. A busy pooler may give two
    /// different ones, so this asks more than once.
    pub async fn probe_pooler(&mut self) -> Result<bool, ConnectError> {
        let one = self.open().await?;
        let two = self.open().await?;
        for _ in 0..5 {
            let first: i32 = backend_pid(&one).await?;
            let second: i32 = backend_pid(&two).await?;
            if first == second {
                self.pooled = true;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when a transaction-mode pooler stands in between; see [`Database::probe_pooler`].
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    pub(crate) fn tls(&self) -> Option<&tokio_postgres_rustls::MakeRustlsConnect> {
        self.tls.as_ref()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Opens a session and prepares it for durable work.
    pub async fn connect(&self) -> Result<Session, ConnectError> {
        let session = self.open().await?;
        if !self.pooled {
            let settings = session.batch_execute(include_str!("../queries/session.sql"));
            tokio::time::timeout(CONNECT_LIMIT, settings)
                .await
                .map_err(|_| ConnectError::TimedOut(CONNECT_LIMIT))?
                .map_err(ConnectError::Unreachable)?;
        }
        Ok(session)
    }

    async fn open(&self) -> Result<Session, ConnectError> {
        let opening = async {
            match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    Ok(Session::new(client, drive(connection)))
                }
                None => {
                    let (client, connection) = self.config.connect(tokio_postgres::NoTls).await?;
                    Ok(Session::new(client, drive(connection)))
                }
            }
        };
        tokio::time::timeout(CONNECT_LIMIT, opening)
            .await
            .map_err(|_| ConnectError::TimedOut(CONNECT_LIMIT))?
            .map_err(ConnectError::Unreachable)
    }

    /// Opens a session whose notifications go to `on_notification`. Only useful on a direct
    /// connection: a pooler forgets LISTEN.
    pub async fn listen(
        &self,
        on_notification: impl Fn(&str) + Send + 'static,
    ) -> Result<(Session, tokio::sync::oneshot::Receiver<()>), ConnectError> {
        let (ended, on_end) = tokio::sync::oneshot::channel();
        let session = match &self.tls {
            Some(tls) => {
                let connecting = self.config.connect(tls.clone());
                let (client, connection) = timed(connecting).await?;
                Session::new(client, forward(connection, on_notification, ended))
            }
            None => {
                let connecting = self.config.connect(tokio_postgres::NoTls);
                let (client, connection) = timed(connecting).await?;
                Session::new(client, forward(connection, on_notification, ended))
            }
        };
        timed(session.batch_execute("listen leasehold_wake")).await?;
        Ok((session, on_end))
    }

    /// Refuses servers that the promises do not hold on: too old, or a replica.
    pub async fn check_server(session: &Client) -> Result<(), ConnectError> {
        let facts = session.query_typed(
            "select current_setting('server_version_num')::int, \
             current_setting('server_version'), pg_is_in_recovery()",
            &[],
        );
        match timed(facts).await?.first() {
            Some(row) => check_facts(row.get(0), row.get(1), row.get(2)),
            None => Err(ConnectError::Schema(SchemaError::Missing)),
        }
    }
}

fn check_facts(version_num: i32, version: String, replica: bool) -> Result<(), ConnectError> {
    if version_num < OLDEST_SERVER as i32 * 10_000 {
        return Err(ConnectError::OldServer { found: version, needed: OLDEST_SERVER });
    }
    if replica {
        return Err(ConnectError::Replica);
    }
    Ok(())
}

async fn timed<T>(
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, ConnectError> {
    tokio::time::timeout(CONNECT_LIMIT, call)
        .await
        .map_err(|_| ConnectError::TimedOut(CONNECT_LIMIT))?
        .map_err(ConnectError::Unreachable)
}

async fn backend_pid(session: &Client) -> Result<i32, ConnectError> {
    // Unnamed and typed: a pooler may hand the next statement to another backend.
    let rows = timed(session.query_typed("select pg_backend_pid()", &[])).await?;
    match rows.first() {
        Some(row) => Ok(row.get(0)),
        None => Err(ConnectError::Schema(SchemaError::Missing)),
    }
}

fn drive<S, T>(connection: tokio_postgres::Connection<S, T>) -> AbortHandle
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    // An error here reaches the caller of the statement that it cut short.
    tokio::spawn(async move { drop(connection.await) }).abort_handle()
}

fn forward<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    on_notification: impl Fn(&str) + Send + 'static,
    ended: tokio::sync::oneshot::Sender<()>,
) -> AbortHandle
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let messages = async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let tokio_postgres::AsyncMessage::Notification(note) = message {
                on_notification(note.payload());
            }
        }
        // Nobody may be waiting any more.
        let _ = ended.send(());
    };
    tokio::spawn(messages).abort_handle()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn tls_connector() -> Result<tokio_postgres_rustls::MakeRustlsConnect, ConnectError> {
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
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b12_a_replica_is_refused() {
        let answer = check_facts(150018, "15.18".to_owned(), true);
        assert!(matches!(answer, Err(ConnectError::Replica)));
    }

    #[test]
    fn an_old_server_is_refused_with_its_version() {
        let answer = check_facts(140012, "14.12".to_owned(), false);
        let text = answer.expect_err("14 is too old").to_string();
        assert!(text.contains("14.12") && text.contains("15"), "{text}");
        assert!(check_facts(150000, "15.0".to_owned(), false).is_ok());
    }

    #[test]
    fn a_bad_url_says_what_a_good_one_looks_like() {
        let text = Database::new("mysql://x").err().expect("not a URL of ours").to_string();
        assert!(text.contains("postgres://"), "{text}");
    }
}
