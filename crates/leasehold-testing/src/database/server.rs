//! The one server of a test process, and the template in it.

use std::env;
use std::future::Future;
use std::sync::OnceLock;

use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::error::TestDatabaseError;
use super::{LIMIT, name};
use crate::{PgBouncer, PrivatePostgres};

/// Server connections per database through the pooler: few, so that clients do share them.
const POOL_SIZE: u16 = 8;

/// The start of each database's comment on a borrowed server.
const MARK: &str = "leasehold test, made at ";

/// Databases that were created at least a day ago by runs that were killed, and that are not in use.
const LEFT_OVER: &str = "
    select d.datname
      from pg_database d
     where shobj_description(d.oid, 'pg_database') like 'leasehold test, made at %'
       and substr(shobj_description(d.oid, 'pg_database'), 25)::timestamptz < now() - interval '1 day'
       and not exists (select from pg_stat_activity a where a.datid = d.oid)";

/// How to reach any database of one server.
#[derive(Clone)]
pub(super) struct Address {
    /// Both lead to the database from which databases are created.
    admin: Config,
    admin_url: String,
}

impl Address {
    pub(super) fn of(postgres: &PrivatePostgres) -> Self {
        Self { admin: postgres.config("postgres"), admin_url: postgres.url("postgres") }
    }

    fn through(pgbouncer: &PgBouncer) -> Self {
        Self { admin: pgbouncer.config("postgres"), admin_url: pgbouncer.url("postgres") }
    }

    fn named(url: String) -> Result<Self, TestDatabaseError> {
        let admin: Config =
            url.parse().map_err(|error: Error| TestDatabaseError::BadUrl(error.to_string()))?;
        with_database(&url, "x")
            .ok_or_else(|| TestDatabaseError::BadUrl("it is no URL".to_owned()))?;
        Ok(Self { admin, admin_url: url })
    }

    pub(super) fn admin(&self) -> Config {
        self.admin.clone()
    }

    pub(super) fn config(&self, database: &str) -> Config {
        let mut config = self.admin.clone();
        config.dbname(database);
        config
    }

    pub(super) fn url(&self, database: &str) -> String {
        // Every address was checked when it was created.
        with_database(&self.admin_url, database).unwrap_or_default()
    }
}

/// Returns the same URL for another database, or `None` if it is no URL.
fn with_database(url: &str, database: &str) -> Option<String> {
    let (scheme, rest) =
        url.split_once("://").filter(|(scheme, _)| scheme.starts_with("postgres"))?;
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, format!("?{query}")),
        None => (rest, String::new()),
    };
    let host = place.split('/').next().unwrap_or_default();
    Some(format!("{scheme}://{host}/{database}{query}"))
}

/// Lives until the process ends; then the server's supervisor stops it and removes its directory.
pub(super) struct SharedServer {
    pub direct: Address,
    template: String,
    /// Kept only so that it lives as long as this.
    _postgres: Option<PrivatePostgres>,
    pgbouncer: Option<PgBouncer>,
}

impl SharedServer {
    /// Returns the server of this process. Blocks; the first call starts it.
    pub(super) fn get() -> Result<&'static Self, TestDatabaseError> {
        static SHARED: OnceLock<Result<SharedServer, TestDatabaseError>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(Clone::clone)
    }

    fn start() -> Result<Self, TestDatabaseError> {
        let named = env::var("LEASEHOLD_TEST_URL").ok().filter(|url| !url.is_empty());
        let (direct, postgres) = match named {
            Some(url) => (Address::named(url)?, None),
            None => {
                let postgres = PrivatePostgres::throwaway()
                    .set("max_connections", "200")
                    .set("shared_buffers", "64MB")
                    .start()
                    .map_err(|error| TestDatabaseError::Server(error.to_string()))?;
                (Address::of(&postgres), Some(postgres))
            }
        };
        let pgbouncer = start_pooler(postgres.as_ref())?;
        let template = name::unique("lh_template");
        on_its_own_runtime(async {
            if postgres.is_none() {
                remove_left_over(&direct).await?;
            }
            make_migrated(&direct, &template).await
        })?;
        Ok(Self { direct, template, _postgres: postgres, pgbouncer })
    }

    pub(super) fn pooled(&self) -> Option<Address> {
        self.pgbouncer.as_ref().map(Address::through)
    }

    /// Creates one more database.
    pub(super) async fn clone_template(&self, name: &str) -> Result<(), TestDatabaseError> {
        create(&self.direct, name, Some(&self.template)).await
    }
}

fn start_pooler(
    postgres: Option<&PrivatePostgres>,
) -> Result<Option<PgBouncer>, TestDatabaseError> {
    let wanted = env::var("LEASEHOLD_TEST_POOLER").unwrap_or_default();
    let refused = |why: &str| {
        Err(TestDatabaseError::Server(format!("LEASEHOLD_TEST_POOLER={wanted}: {why}")))
    };
    match (wanted.as_str(), postgres) {
        ("", _) => Ok(None),
        ("pgbouncer", Some(postgres)) => match PgBouncer::start(postgres, POOL_SIZE) {
            Ok(pgbouncer) => Ok(Some(pgbouncer)),
            Err(error) => refused(&error.to_string()),
        },
        ("pgbouncer", None) => refused("not possible with LEASEHOLD_TEST_URL; unset one of them"),
        _ => refused("the only pooler known is `pgbouncer`"),
    }
}

/// Creates a database and migrates it. No session stays connected to it, so it can be copied.
pub(super) async fn make_migrated(address: &Address, name: &str) -> Result<(), TestDatabaseError> {
    create(address, name, None).await?;
    let step = TestDatabaseError::sql("connect to the new database");
    let (mut client, task) = connect(&address.config(name)).await.map_err(step)?;
    leasehold::migrate::up(&mut client).await.map_err(|error| TestDatabaseError::Sql {
        step: "migrate the new database".to_owned(),
        why: error.to_string(),
    })?;
    drop(client);
    let _ = task.await;
    Ok(())
}

async fn create(
    address: &Address,
    name: &str,
    template: Option<&str>,
) -> Result<(), TestDatabaseError> {
    let from = template.map(|template| format!(" template \"{template}\"")).unwrap_or_default();
    let (client, _task) = connect(&address.admin)
        .await
        .map_err(TestDatabaseError::sql("connect to the server for test databases"))?;
    let step = TestDatabaseError::sql("create a database");
    once_left(&client, &format!("create database \"{name}\"{from}")).await.map_err(step)?;
    let sign = format!(
        "do $$ begin execute format('comment on database %I is %L', '{name}', '{MARK}' || now()); end $$"
    );
    client.batch_execute(&sign).await.map_err(TestDatabaseError::sql("sign a database"))
}

/// Copies or drops a database. The server waits five seconds for other sessions to leave it,
/// autovacuum among them. This retries until they have left, or until the limit of the whole step.
pub(super) async fn once_left(client: &Client, sql: &str) -> Result<(), Error> {
    loop {
        match client.batch_execute(sql).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {}
            other => return other,
        }
    }
}

async fn remove_left_over(address: &Address) -> Result<(), TestDatabaseError> {
    let step = TestDatabaseError::sql("connect to the server for test databases");
    let (client, _task) = connect(&address.admin).await.map_err(step)?;
    let step = TestDatabaseError::sql("look for databases of earlier runs");
    for row in client.query(LEFT_OVER, &[]).await.map_err(step)? {
        // Another run may remove it at the same time.
        let name: String = row.get(0);
        let _ = client.batch_execute(&format!("drop database if exists \"{name}\"")).await;
    }
    Ok(())
}

/// Returns a connection and the task that drives it.
pub(super) async fn connect(config: &Config) -> Result<(Client, JoinHandle<()>), Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok((client, task))
}

/// Runs `work` to its end on a runtime that nothing else uses. Async code must not call it.
pub(super) fn on_its_own_runtime<T>(
    work: impl Future<Output = Result<T, TestDatabaseError>>,
) -> Result<T, TestDatabaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| TestDatabaseError::Server(format!("cannot start a runtime: {error}")))?;
    let late = |_| TestDatabaseError::Server(format!("no response after {} s", LIMIT.as_secs()));
    runtime.block_on(async { tokio::time::timeout(LIMIT, work).await.map_err(late)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_keeps_all_but_its_database() {
        let change = |url| with_database(url, "new");
        assert_eq!(
            change("postgres://me:secret@host:5433/old?sslmode=disable").as_deref(),
            Some("postgres://me:secret@host:5433/new?sslmode=disable")
        );
        assert_eq!(
            change("postgresql:///old?host=/run/x&user=me").as_deref(),
            Some("postgresql:///new?host=/run/x&user=me")
        );
        assert_eq!(change("postgres://host").as_deref(), Some("postgres://host/new"));
        assert_eq!(change("host=/run/x dbname=old"), None);
    }

    #[test]
    fn mark_has_the_length_that_the_query_expects() {
        assert!(LEFT_OVER.contains(MARK) && LEFT_OVER.contains(&format!(", {})", MARK.len() + 1)));
    }
}
