//! A separate, migrated database for each test.
//!
//! ```no_run
//! # async fn test() {
//! use leasehold_testing::TestDatabase;
//! let database = TestDatabase::new().await;
//! let client = database.connect().await;
//! # }
//! ```
//!
//! # Invariants
//! - The first test of a process starts one throwaway server and migrates one template; every
//!   database is a copy of that, which takes some tens of milliseconds.
//! - No connection is shared between tests: each `#[tokio::test]` has its own runtime, and a connection
//!   dies with the runtime that drives it.
//! - Databases are created and dropped on a separate thread and runtime, so a test with a paused
//!   clock works.
//!
//! # Environment
//! - `LEASEHOLD_TEST_URL`: use this server instead of a private one. Its user must be allowed to
//!   create databases. A later run removes what a killed run left there, after a day.
//! - `LEASEHOLD_TEST_POOLER=pgbouncer`: [`TestDatabase::url`] and every connection made from it go
//!   through [`crate::pgbouncer`] in transaction mode. Not together with `LEASEHOLD_TEST_URL`.
//! - `LEASEHOLD_PG_BIN`: see [`crate::postgres`].
//!
//! # What can go wrong
//! - No server can be started: every test fails with the same message, which says what to install.

mod error;
mod name;
mod server;

use std::thread;
use std::time::Duration;

use tokio_postgres::{Client, Config};

pub use error::TestDatabaseError;
use server::{Address, SharedServer, connect, on_its_own_runtime, once_left};

use crate::PrivatePostgres;

/// A database for one test. Dropping it drops the database and disconnects every client.
pub struct TestDatabase {
    name: String,
    direct: Address,
    pooled: Option<Address>,
}

impl TestDatabase {
    /// Creates a fresh, migrated database. Panics on failure: see [`try_new`](Self::try_new).
    #[expect(clippy::panic, reason = "the test fails here")]
    pub async fn new() -> Self {
        match Self::try_new().await {
            Ok(database) => database,
            Err(error) => panic!("no test database: {error}"),
        }
    }

    pub async fn try_new() -> Result<Self, TestDatabaseError> {
        let name = name::unique("lh");
        tokio::task::spawn_blocking(move || {
            let server = SharedServer::get()?;
            on_its_own_runtime(server.clone_template(&name))?;
            let (direct, pooled) = (server.direct.clone(), server.pooled());
            Ok(Self { name, direct, pooled })
        })
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Creates a fresh, migrated database on a server that the test has for itself, for example to
    /// crash it.
    pub async fn on(postgres: &PrivatePostgres) -> Result<Self, TestDatabaseError> {
        let direct = Address::of(postgres);
        let name = name::unique("lh");
        let (address, made) = (direct.clone(), name.clone());
        tokio::task::spawn_blocking(move || {
            on_its_own_runtime(server::make_migrated(&address, &made))
        })
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        Ok(Self { name, direct, pooled: None })
    }

    /// Returns the name of the database; it ends with the name of the test.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL for the code under test: through a pooler if the environment names one.
    pub fn url(&self) -> String {
        self.pooled.as_ref().unwrap_or(&self.direct).url(&self.name)
    }

    /// Like [`url`](Self::url), for tokio-postgres.
    pub fn config(&self) -> Config {
        self.pooled.as_ref().unwrap_or(&self.direct).config(&self.name)
    }

    /// Returns a URL without a pooler.
    pub fn direct_url(&self) -> String {
        self.direct.url(&self.name)
    }

    /// Like [`direct_url`](Self::direct_url), for tokio-postgres.
    pub fn direct_config(&self) -> Config {
        self.direct.config(&self.name)
    }

    /// Opens a connection by [`config`](Self::config). Its task ends with the client, or with the
    /// runtime of the test.
    pub async fn connect(&self) -> Client {
        self.connect_by(self.config()).await
    }

    /// Opens a connection without a pooler.
    pub async fn connect_directly(&self) -> Client {
        self.connect_by(self.direct_config()).await
    }

    #[expect(clippy::panic, reason = "the test fails here")]
    async fn connect_by(&self, config: Config) -> Client {
        match connect(&config).await {
            Ok((client, _task)) => client,
            Err(error) => panic!("cannot connect to test database {}: {error:?}", self.name),
        }
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let sql = format!("drop database if exists \"{}\" with (force)", self.name);
        let config = self.direct.admin();
        // On a separate thread: this one may be driving a runtime, perhaps one that is shutting down.
        let dropping = thread::spawn(move || {
            on_its_own_runtime(async {
                let step = TestDatabaseError::sql;
                let (client, _task) = connect(&config).await.map_err(step("connect"))?;
                once_left(&client, &sql).await.map_err(step("drop"))
            })
        });
        // Best effort: a test that crashed its server has none to ask.
        let _ = dropping.join();
    }
}

/// No step of creating or dropping a database may take longer.
const LIMIT: Duration = Duration::from_secs(180);
