//! Sessions: how the engine talks to Postgres.
//!
//! In reading order: this file opens sessions; [`hosts`] finds the server that accepts writes,
//! [`driver`] reads its socket, [`pooler`] detects whether a pooler shares sessions.
//!
//! # Invariants
//! - Every connection has a time limit to open, keeps TCP alive, and makes the server notice a
//!   client that vanished, so that no row stays locked behind a dead socket.
//! - A session is opened on a server that accepts writes, never on a standby.
//! - A session commits durably: `synchronous_commit` is raised to `on` where it was lower. It runs at
//!   READ COMMITTED, also if the database has another default.
//! - Behind a pooler in transaction mode the engine sets nothing on a session: other clients use it
//!   too.

mod driver;
mod hosts;
pub(crate) mod pool;
mod pooler;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config, Statement};

use crate::error::{ConnectError, SchemaError};
use hosts::Hosts;
pub use pooler::Pooler;

/// How long opening a session may take by default, all hosts of an address together.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a statement may take by default; see `queries/session.sql`.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// How long things may take on the sessions of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Opening a session.
    pub(crate) connect: Duration,
    /// A statement, by the server's clock.
    pub(crate) statement: Duration,
}

/// The oldest major version of PostgreSQL that the guarantees are tested on.
pub const OLDEST_SERVER: u32 = 15;

/// A database the engine may open sessions on.
#[derive(Clone)]
pub struct Database {
    config: Config,
    hosts: Arc<Hosts>,
    tls: driver::Tls,
    limits: Limits,
    pooler: Pooler,
    /// Whether a pooler shares sessions. Every clone shares it, because a session may find out later.
    pooled: Arc<AtomicBool>,
}

/// One open session. Dropping it closes the socket, even if the server does not reply.
pub struct Session {
    client: Client,
    driver: AbortHandle,
    /// Statements prepared on this connection. The engine's are few and fixed.
    statements: Mutex<HashMap<String, Statement>>,
}

impl Session {
    fn new(client: Client, driver: AbortHandle) -> Self {
        Self { client, driver, statements: Mutex::default() }
    }

    pub(crate) fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        self.statements.lock()
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
        // Ends the driver too: otherwise it would wait for replies on a dead connection for ever.
        self.driver.abort();
    }
}

impl Database {
    /// Reads a URL or a `key=value` string. Opens nothing.
    ///
    /// An address may name several hosts; sessions go to the one that accepts writes:
    /// `postgres://me@a:5432,b:5432/name`. It may name the pooler in front of the server: see
    /// [`Pooler`].
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let (config, pooler) = Self::parse(url)?;
        Ok(Self::from_config(config)?.with_pooler(pooler))
    }

    pub(crate) fn parse(url: &str) -> Result<(Config, Pooler), ConnectError> {
        if let Some((scheme, _)) = url.split_once("://")
            && !matches!(scheme, "postgres" | "postgresql")
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric())
        {
            return Err(ConnectError::BadUrl(format!(
                "it begins with {scheme}:// and not with postgres://"
            )));
        }
        let (url, pooler) = Pooler::take_from(url)?;
        let config = hosts::spell_out(&url).parse().map_err(|error: tokio_postgres::Error| {
            ConnectError::BadUrl(crate::error::describe(&error))
        })?;
        Ok((config, pooler))
    }

    /// Uses a configuration of tokio-postgres. Opens nothing. Timeouts and TCP keepalives of the configuration
    /// are replaced by those of the engine; the application name stays, and is `leasehold` if there is none.
    pub fn from_config(config: Config) -> Result<Self, ConnectError> {
        Self::with_limits(config, Limits::default())
    }

    pub(crate) fn with_limits(mut config: Config, limits: Limits) -> Result<Self, ConnectError> {
        config
            .connect_timeout(limits.connect)
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("leasehold");
        }
        hosts::ask_for_writes(&mut config)?;
        let (hosts, tls) =
            (Arc::new(Hosts::new(&config, limits.connect)), driver::tls_for(&config)?);
        let (pooler, pooled) = (Pooler::Detect, Arc::default());
        Ok(Self { config, hosts, tls, limits, pooler, pooled })
    }

    /// Declares what is between this program and PostgreSQL, which turns detection off.
    pub fn with_pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = pooler;
        self.pooled = Arc::new(AtomicBool::new(pooler == Pooler::Transaction));
        self
    }

    /// The same database for reads only: sessions may be on a server that accepts no writes.
    pub fn for_reading(mut self) -> Self {
        self.config.target_session_attrs(TargetSessionAttrs::Any);
        self.hosts = Arc::new(Hosts::new(&self.config, self.limits.connect));
        self
    }

    /// Returns true if a transaction-mode pooler is in front of the server; see
    /// [`Database::probe_pooler`].
    pub fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    fn set_pooled(&self, pooled: bool) {
        self.pooled.store(pooled, Ordering::Relaxed);
    }

    /// Records that the server does not know a statement which was prepared before: a pooler shares
    /// sessions, and the probe did not detect it.
    pub(crate) fn lost_a_statement(&self) {
        if self.pooler == Pooler::Detect && !self.pooled.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a prepared statement vanished: a pooler shares sessions between transactions; \
                 working without prepared statements. Add ?pooler=transaction to the database URL"
            );
        }
    }

    /// Returns the configuration that sessions are opened with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Opens a session and prepares it for durable work.
    pub async fn connect(&self) -> Result<Session, ConnectError> {
        let session = self.open().await?;
        self.prepare(&session).await?;
        Ok(session)
    }

    /// Gives a new session the engine's settings, unless a pooler shares it.
    pub(crate) async fn prepare(&self, session: &Client) -> Result<(), ConnectError> {
        if self.is_pooled() {
            return Ok(());
        }
        timed(session.batch_execute(include_str!("../../queries/session.sql"))).await?;
        if self.limits.statement != STATEMENT_LIMIT {
            // 0 would mean no limit at all.
            let limit = self.limits.statement.as_millis().clamp(1, i32::MAX as u128);
            timed(session.batch_execute(&format!("set statement_timeout = {limit}"))).await?;
        }
        Ok(())
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.limits.connect
    }

    async fn open(&self) -> Result<Session, ConnectError> {
        let (client, driver) = self.hosts.connect(&self.tls).await?;
        let task = tokio::spawn(driver.run(|_| ()));
        Ok(Session::new(client, task.abort_handle()))
    }

    /// Returns the two halves of a new connection, for the pool.
    pub(crate) async fn open_halves(&self) -> Result<(Client, JoinHandle<()>), ConnectError> {
        let (client, driver) = self.hosts.connect(&self.tls).await?;
        Ok((client, tokio::spawn(driver.run(|_| ()))))
    }

    /// Opens a session whose notifications go to `on_notification`. Only useful on a direct
    /// connection: a pooler forgets LISTEN.
    pub async fn listen(
        &self,
        on_notification: impl Fn(&str) + Send + 'static,
    ) -> Result<(Session, tokio::sync::oneshot::Receiver<()>), ConnectError> {
        let (ended, on_end) = tokio::sync::oneshot::channel();
        let (client, driver) = self.hosts.connect(&self.tls).await?;
        let listening = async move {
            driver.run(on_notification).await;
            // The listener may have stopped waiting.
            let _ = ended.send(());
        };
        let session = Session::new(client, tokio::spawn(listening).abort_handle());
        timed(session.batch_execute(include_str!("../../queries/listen_session.sql"))).await?;
        timed(session.batch_execute("listen leasehold_wake")).await?;
        Ok((session, on_end))
    }

    /// Rejects servers without the guarantees: too old, or a replica.
    pub async fn check_server(session: &Client) -> Result<(), ConnectError> {
        let facts = session.query_typed(
            "select current_setting('server_version_num')::int, current_setting('server_version'), \
             pg_is_in_recovery() or current_setting('transaction_read_only')::boolean, \
             current_setting('server_encoding')",
            &[],
        );
        match timed(facts).await?.first() {
            Some(row) => {
                check_facts(row.get(0), row.get(1), row.get(2))?;
                check_encoding(row.get(3))
            }
            None => Err(ConnectError::Schema(SchemaError::Missing)),
        }
    }
}

/// With any other encoding the server refuses a finish whose error text it cannot represent.
fn check_encoding(encoding: String) -> Result<(), ConnectError> {
    if encoding == "UTF8" { Ok(()) } else { Err(ConnectError::Encoding(encoding)) }
}

fn check_facts(version_num: i32, version: String, read_only: bool) -> Result<(), ConnectError> {
    if version_num < OLDEST_SERVER as i32 * 10_000 {
        return Err(ConnectError::OldServer { found: version, needed: OLDEST_SERVER });
    }
    if read_only {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b12_replica_is_refused() {
        let checked = check_facts(150018, "15.18".to_owned(), true);
        assert!(matches!(checked, Err(ConnectError::Replica)));
    }

    #[test]
    fn a25_database_in_another_encoding_is_refused_with_its_name() {
        assert!(check_encoding("UTF8".to_owned()).is_ok());
        let text = check_encoding("LATIN1".to_owned()).expect_err("not UTF-8").to_string();
        assert!(text.contains("LATIN1") && text.contains("ENCODING 'UTF8'"), "{text}");
    }

    #[test]
    fn old_server_is_refused_with_its_version() {
        let checked = check_facts(140012, "14.12".to_owned(), false);
        let text = checked.expect_err("14 is too old").to_string();
        assert!(text.contains("14.12") && text.contains("15"), "{text}");
        assert!(check_facts(150000, "15.0".to_owned(), false).is_ok());
    }

    #[test]
    fn invalid_url_error_shows_an_example() {
        let text = Database::new("mysql://x").err().expect("not a URL of PostgreSQL").to_string();
        assert!(text.contains("it begins with mysql:// and not with postgres://"), "{text}");
    }
}
