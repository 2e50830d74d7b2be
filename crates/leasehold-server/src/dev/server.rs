//! The database of `leasehold dev`: a named one, or a private server.

use std::path::{Path, PathBuf};

use leasehold::database::Database;
use leasehold_local::PrivatePostgres;
use leasehold_local::postgres::{PostgresError, socket_url};

use crate::cli::{Common, address};
use crate::exit::Failure;
use crate::private_server;

/// The database inside a private server.
const DATABASE: &str = "leasehold";

pub enum Server {
    /// The user's server; `stop` leaves it running.
    Named { url: String, origin: &'static str },
    /// Our own; it stops with this process.
    Private { url: String, postgres: Box<PrivatePostgres> },
}

impl Server {
    /// Uses the database that a flag or variable names, or starts a private one.
    pub async fn find(data: Option<PathBuf>, common: &Common) -> Result<Self, Failure> {
        let dir = data.clone().or_else(|| private_server::default_dir(&address::environment));
        if let Some((url, origin)) =
            address::named(common.database_url.as_deref(), &address::environment)
        {
            // The URL was copied from an earlier run: it is our private server, which we start.
            let ours = dir
                .as_ref()
                .and_then(|dir| std::path::absolute(dir).ok())
                .is_some_and(|dir| url == socket_url(&dir.join("run"), 5432, DATABASE));
            if !ours && data.is_some() {
                return Err(Failure::usage(format!(
                    "--data is for a private server, but {origin} names another one"
                ))
                .hint("remove --data, or unset the other"));
            }
            if !ours {
                return Ok(Self::Named { url, origin });
            }
        }
        let dir = dir.ok_or_else(|| {
            Failure::usage("HOME is not set, so the private server has no directory")
                .hint("name a directory: --data DIR")
        })?;
        let kept = dir.clone();
        let started = tokio::task::spawn_blocking(move || PrivatePostgres::kept_in(kept).start())
            .await
            .map_err(Failure::failed)?;
        let postgres = started.map_err(|error| explain(error, &dir))?;
        make_database(&socket_url(postgres.socket_dir(), postgres.port(), "postgres")).await?;
        let url = socket_url(postgres.socket_dir(), postgres.port(), DATABASE);
        private_server::write_url(&private_server::url_file(postgres.dir()), &url)?;
        Ok(Self::Private { url, postgres: Box::new(postgres) })
    }

    pub fn url(&self) -> &str {
        match self {
            Self::Named { url, .. } | Self::Private { url, .. } => url,
        }
    }

    /// Stops a private server, which writes everything to disk.
    pub async fn stop(self) -> Result<(), Failure> {
        let Self::Private { mut postgres, .. } = self else { return Ok(()) };
        private_server::forget_urls(postgres.dir());
        let stopped =
            tokio::task::spawn_blocking(move || postgres.stop()).await.map_err(Failure::failed)?;
        stopped.map_err(Failure::failed)
    }
}

async fn make_database(admin: &str) -> Result<(), Failure> {
    let session = Database::new(admin)?.connect().await?;
    let sql = format!("select from pg_database where datname = '{DATABASE}'");
    if session.query_typed(&sql, &[]).await?.is_empty() {
        session.batch_execute(&format!("create database {DATABASE}")).await?;
    }
    Ok(())
}

fn explain(error: PostgresError, dir: &Path) -> Failure {
    match error {
        PostgresError::AlreadyRunning { pid, .. } => {
            let use_it = std::fs::read_to_string(private_server::url_file(dir))
                .map(|url| format!("use it: export DATABASE_URL='{}'; or ", url.trim()))
                .unwrap_or_default();
            Failure::conflict(format!(
                "leasehold dev is already running in {} (server pid {pid})",
                dir.display()
            ))
            .hint(format!("{use_it}choose another directory: --data DIR"))
        }
        PostgresError::Unreachable { .. } => Failure::failed(error)
            .hint("name a directory that the user postgres can enter: --data /var/lib/leasehold"),
        error => Failure::failed(error),
    }
}
