//! Builds the handle: how it connects, how long it waits, and what it does about the schema.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::database::{CONNECT_LIMIT, Database, Limits, Pooler, STATEMENT_LIMIT};
use crate::engine::{Leasehold, Settings};
use crate::error::ConnectError;
use crate::fleet::Fleet;

/// What connecting does about the schema `leasehold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaCheck {
    /// Fails if the schema is missing or does not fit this release. Default.
    #[default]
    Check,
    /// Applies missing migrations first: for development, tests and small deployments. On a current schema
    /// it needs no right to create anything.
    Migrate,
    /// Does not look. A call fails later if the schema does not fit.
    None,
}

/// Whether sessions are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tls {
    /// By `sslmode` of the address, which is `prefer` if it is left out: TLS where the server offers
    /// it, except to hosts on this machine. Default.
    #[default]
    FromAddress,
    /// Never.
    Disable,
    /// Always: connecting fails if the server offers no TLS. Certificates are checked against those of the
    /// operating system.
    Require,
}

/// Settings of a [`Leasehold`] handle, from [`Leasehold::builder`].
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::{Leasehold, SchemaCheck};
///
/// # async fn connect() -> Result<(), leasehold::ConnectError> {
/// let leasehold = Leasehold::builder()
///     .max_connections(4)
///     .application_name("orders")
///     .connect_timeout(Duration::from_secs(5))
///     .schema(SchemaCheck::Migrate)
///     .connect("postgres://orders@db:5432/shop")
///     .await?;
/// # drop(leasehold);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it connects"]
pub struct LeaseholdBuilder {
    settings: Settings,
    limits: Limits,
    application_name: Option<String>,
    tls: Tls,
    pooler: Option<Pooler>,
    schema: SchemaCheck,
}

impl LeaseholdBuilder {
    /// The most connections of [`Leasehold::pool`], which enqueues and handlers use. They are opened when they
    /// are needed. A worker opens its own connections besides. Default: 16.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// How long opening a connection may take, all hosts of the address together, and how long a caller waits
    /// for one of the pool. Default: 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.limits.connect = timeout;
        self
    }

    /// How long an enqueue through the handle, a claim or a finish may take before its session is dropped.
    /// `enqueue_many` gets four times as long. Default: 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// `statement_timeout` of the handle's sessions: the server ends statements that take longer. Not set
    /// behind a pooler in transaction mode, whose sessions belong to other clients too. Default: 60 s.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.limits.statement = timeout;
        self
    }

    /// `application_name` of the sessions, as `pg_stat_activity` shows it. Default: that of the address, or
    /// `leasehold`.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Whether sessions are encrypted. Default: [`Tls::FromAddress`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// What is between this program and PostgreSQL. Default: `?pooler=` of the address, or
    /// [`Pooler::Detect`].
    pub fn pooler(mut self, pooler: Pooler) -> Self {
        self.pooler = Some(pooler);
        self
    }

    /// What connecting does about the schema. Default: [`SchemaCheck::Check`].
    pub fn schema(mut self, schema: SchemaCheck) -> Self {
        self.schema = schema;
        self
    }

    /// Connects to a URL or a `key=value` string, as [`Database::new`] reads it.
    pub async fn connect(self, url: &str) -> Result<Leasehold, ConnectError> {
        let (config, named) = Database::parse(url)?;
        let pooler = self.pooler.unwrap_or(named);
        self.open(config, pooler).await
    }

    /// Connects with a configuration of tokio-postgres.
    pub async fn connect_with(self, config: Config) -> Result<Leasehold, ConnectError> {
        let pooler = self.pooler.unwrap_or_default();
        self.open(config, pooler).await
    }

    /// Names several databases that one worker works side by side, each by a URL or a `key=value` string, with
    /// these settings. Opens nothing: a database that is down now is used as soon as it is up.
    ///
    /// A name has 1 to 64 letters, digits, `-`, `_` and `.`; it is in logs, lists and metrics. Two names of one
    /// database are refused: here if host, port and database name are equal, otherwise when a worker connects.
    ///
    /// ```no_run
    /// # #[derive(leasehold::Job, serde::Serialize, serde::Deserialize)]
    /// # #[job(name = "email.send", queue = "mail")]
    /// # struct SendEmail;
    /// # async fn send_email(_: SendEmail) {}
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let fleet = leasehold::Leasehold::builder()
    ///     .max_connections(4) // of each database
    ///     .fleet([("eu", "postgres://shop@eu/shop"), ("us", "postgres://shop@us/shop")])?;
    /// fleet.worker().queue("mail", 20).handle(send_email).run_until_signal().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fleet<N, U>(
        self,
        databases: impl IntoIterator<Item = (N, U)>,
    ) -> Result<Fleet, ConnectError>
    where
        N: Into<String>,
        U: AsRef<str>,
    {
        let mut named = Vec::new();
        for (name, url) in databases {
            let name = name.into();
            let at = |error| ConnectError::Settings(format!("database {name:?}: {error}"));
            let (config, pooler) = Database::parse(url.as_ref()).map_err(at)?;
            let database = self.database(config, self.pooler.unwrap_or(pooler)).map_err(at)?;
            named.push((name, database));
        }
        Fleet::new(named, self.settings, self.schema)
    }

    async fn open(self, config: Config, pooler: Pooler) -> Result<Leasehold, ConnectError> {
        let database = self.database(config, pooler)?;
        Leasehold::open(database, self.settings, self.schema).await
    }

    /// Returns the database with these settings. Opens nothing.
    fn database(&self, mut config: Config, pooler: Pooler) -> Result<Database, ConnectError> {
        self.check()?;
        if let Some(name) = &self.application_name {
            config.application_name(name);
        }
        match self.tls {
            Tls::FromAddress => {}
            Tls::Disable => {
                config.ssl_mode(SslMode::Disable);
            }
            Tls::Require => {
                config.ssl_mode(SslMode::Require);
            }
        }
        Ok(Database::with_limits(config, self.limits)?.with_pooler(pooler))
    }

    fn check(&self) -> Result<(), ConnectError> {
        let (most, shortest) = (10_000, Duration::from_millis(1));
        if !(1..=most).contains(&self.settings.max_connections) {
            return Err(ConnectError::Settings(format!(
                "max_connections is {}; it must be 1 to {most}",
                self.settings.max_connections
            )));
        }
        let times = [
            ("connect_timeout", self.limits.connect),
            ("call_timeout", self.settings.call_timeout),
            ("statement_timeout", self.limits.statement),
        ];
        match times.into_iter().find(|(_, time)| *time < shortest) {
            Some((name, time)) => {
                Err(ConnectError::Settings(format!("{name} is {time:?}; it must be at least 1 ms")))
            }
            None => Ok(()),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: CONNECT_LIMIT, statement: STATEMENT_LIMIT }
    }
}
