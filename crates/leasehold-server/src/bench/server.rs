//! The database of a benchmark: on the server that the user names, or on a private one with durable
//! settings.

use anyhow::{Context, Result, bail};
use leasehold::database::{Database, Session};
use leasehold_local::PrivatePostgres;

pub struct BenchServer {
    pub url: String,
    admin_url: Option<String>,
    name: String,
    _private: Option<PrivatePostgres>,
}

impl BenchServer {
    /// Creates a database for the run, on the server at `url` or on a private one.
    pub async fn start(url: Option<&str>) -> Result<Self> {
        let name = format!("leasehold_bench_{}", std::process::id());
        let (private, admin_url) = match url {
            Some(url) => (None, url.to_owned()),
            None => {
                let server = tokio::task::spawn_blocking(|| {
                    PrivatePostgres::temporary()
                        .set("shared_buffers", "1GB")
                        .set("max_wal_size", "8GB")
                        .start()
                })
                .await?
                .context(
                    "no private PostgreSQL could be started; set DATABASE_URL to use another",
                )?;
                let url = server.url("postgres");
                (Some(server), url)
            }
        };
        let admin = Database::new(&admin_url)?.connect().await?;
        durable(&admin).await?;
        admin.batch_execute(&format!("create database {name}")).await?;
        let url = with_database(&admin_url, &name)?;
        let mut session = Database::new(&url)?.connect().await?;
        leasehold::migrate::up(&mut session).await?;
        session.batch_execute(super::raw::TABLES).await?;
        let admin_url = private.is_none().then_some(admin_url);
        Ok(Self { url, admin_url, name, _private: private })
    }

    pub async fn session(&self) -> Result<Session> {
        Ok(Database::new(&self.url)?.connect().await?)
    }

    /// Drops the database if the server is not private.
    pub async fn finish(self) -> Result<()> {
        if let Some(url) = &self.admin_url {
            let admin = Database::new(url)?.connect().await?;
            admin
                .batch_execute(&format!("drop database if exists {} with (force)", self.name))
                .await?;
        }
        Ok(())
    }
}

/// Fails if durability is off: such figures would mean nothing.
async fn durable(session: &Session) -> Result<()> {
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        let rows = session
            .query_typed(
                "select current_setting($1)",
                &[(&setting, tokio_postgres::types::Type::TEXT)],
            )
            .await?;
        let value: String = rows.first().context("no setting")?.get(0);
        if value == "off" {
            bail!(
                "{setting} is off on this server: figures without durability compare with nothing; turn it on"
            );
        }
    }
    Ok(())
}

fn with_database(url: &str, name: &str) -> Result<String> {
    if let Some((head, tail)) = url.split_once("://") {
        let (address, query) = tail.split_once('?').map_or((tail, None), |(a, q)| (a, Some(q)));
        let host = address.split_once('/').map_or(address, |(host, _)| host);
        let query = query.map_or(String::new(), |query| format!("?{query}"));
        return Ok(format!("{head}://{host}/{name}{query}"));
    }
    let kept: Vec<&str> =
        url.split_whitespace().filter(|part| !part.starts_with("dbname=")).collect();
    Ok(format!("{} dbname={name}", kept.join(" ")))
}

/// Measures the bytes of WAL written since its start.
pub struct WalMeter(String);

impl WalMeter {
    pub async fn start(session: &Session) -> Result<Self> {
        let rows = session.query_typed("select pg_current_wal_insert_lsn()::text", &[]).await?;
        Ok(Self(rows.first().context("no LSN")?.get(0)))
    }

    pub async fn bytes(&self, session: &Session) -> Result<f64> {
        let rows = session
            .query_typed(
                "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8",
                &[(&self.0, tokio_postgres::types::Type::TEXT)],
            )
            .await?;
        Ok(rows.first().context("no LSN")?.get(0))
    }
}

/// Writes a checkpoint, so that one run does not pay for the dirty pages of the last one.
pub async fn checkpoint(session: &Session) -> Result<()> {
    // Needs a privilege that a server of the user may not grant; the figure is then a little noisier.
    let _ = session.batch_execute("checkpoint").await;
    Ok(())
}
