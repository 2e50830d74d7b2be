//! `--database [NAME=]URL`, repeated: several databases side by side.

use std::process::ExitCode;

use futures_util::future::join_all;
use leasehold::database::Database;
use leasehold::{Fleet, Leasehold};
use serde::Serialize;

use super::common::Common;
use super::db::Db;
use crate::exit::Failure;
use crate::output::Out;

/// The databases of a fleet.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Databases {
    /// Use these databases together, each with a name: eu=postgres://shop@eu/shop. Repeat for more. Without
    /// NAME= it is the name of the database. Precedes --database-url
    ///
    /// Put URLs with passwords into the environment, separated by spaces: every user of the machine can read a
    /// command line.
    #[arg(
        long = "database",
        value_name = "[NAME=]URL",
        env = "LEASEHOLD_DATABASES",
        hide_env_values = true,
        value_delimiter = ' ',
        value_parser = parse
    )]
    databases: Vec<Named>,
}

/// A database and its name. Its URL may have a password, so it is not shown.
#[derive(Clone)]
struct Named {
    name: String,
    url: String,
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.name.fmt(f)
    }
}

fn parse(text: &str) -> Result<Named, String> {
    let is_url =
        |text: &str| ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    if let Some((name, url)) = text.split_once('=')
        && is_url(url)
    {
        return Ok(Named { name: name.to_owned(), url: url.to_owned() });
    }
    if !is_url(text) {
        // It may be a password.
        return Err("it is no URL; write NAME=postgres://user@host:5432/database".to_owned());
    }
    let database = Database::new(text).map_err(|error| error.to_string())?;
    let config = database.config();
    let name = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Ok(Named { name: name.to_owned(), url: text.to_owned() })
}

/// What a command found out about each database.
pub struct Found<T> {
    /// With the name of the database, if the command line names any.
    pub of: Vec<(Option<String>, T)>,
    failed: Vec<(String, Failure)>,
}

/// A row of a list, with the name of its database.
#[derive(Serialize)]
pub struct Row<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<&'a str>,
    #[serde(flatten)]
    pub row: &'a T,
}

impl Databases {
    /// Returns the fleet that the command line names; `None`: it names no database, or `--database-url`.
    pub fn fleet(&self, common: &Common) -> Result<Option<Fleet>, Failure> {
        if self.databases.is_empty() {
            return Ok(None);
        }
        let mut builder = Leasehold::builder();
        if let Some(pooler) = common.pooler() {
            builder = builder.pooler(pooler);
        }
        let named = self.databases.iter().map(|one| (one.name.clone(), one.url.clone()));
        let fleet = builder.fleet(named).map_err(|error| {
            Failure::usage(error).hint("name each database once: --database eu=postgres://…")
        })?;
        Ok(Some(fleet))
    }

    /// Asks every database at the same time. Without `--database`: the one of the other options, and a failure is
    /// the command's.
    pub async fn ask<T>(
        &self,
        common: &Common,
        ask: impl AsyncFn(&Db) -> Result<T, Failure>,
    ) -> Result<Found<T>, Failure> {
        let Some(fleet) = self.fleet(common)? else {
            let found = ask(&common.db().await?).await?;
            return Ok(Found { of: vec![(None, found)], failed: Vec::new() });
        };
        let each = fleet.handles().map(async |engine| {
            let name = engine.name().unwrap_or_default().to_owned();
            let asked = async { ask(&common.db_of(engine.database()).await?).await };
            (name, asked.await)
        });
        let mut found = Found { of: Vec::new(), failed: Vec::new() };
        for (name, asked) in join_all(each).await {
            match asked {
                Ok(answer) => found.of.push((Some(name), answer)),
                Err(failure) => found.failed.push((name, failure)),
            }
        }
        Ok(found)
    }
}

impl<T> Found<T> {
    /// True if the rows need a column for their database.
    pub fn is_fleet(&self) -> bool {
        !self.failed.is_empty() || self.of.iter().any(|(name, _)| name.is_some())
    }

    /// Reports the databases without a result. Returns the exit code of the command.
    pub fn conclude(self, out: Out) -> ExitCode {
        for (name, failure) in &self.failed {
            out.warn(format!("database {name}: {}", failure.text()));
        }
        self.failed.first().map_or(ExitCode::SUCCESS, |(_, failure)| failure.code.into())
    }
}

/// Returns the header of a list, with the column of the database in front if it needs one.
pub fn header(is_fleet: bool, header: &[&'static str]) -> Vec<&'static str> {
    is_fleet.then_some("DATABASE").into_iter().chain(header.iter().copied()).collect()
}

/// Returns the cells of a row for such a header.
pub fn cells(
    database: Option<&str>,
    cells: impl IntoIterator<Item = String>,
) -> impl Iterator<Item = String> {
    database.map(str::to_owned).into_iter().chain(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_has_the_name_in_front_or_that_of_the_url() {
        let name = |text: &str| parse(text).map(|named| named.name);
        assert_eq!(name("eu=postgres://me@db/shop?sslmode=disable"), Ok("eu".to_owned()));
        assert_eq!(name("postgres://me@db/shop?sslmode=disable"), Ok("shop".to_owned()));
        for refused in ["eu", "eu=host=db password=s3cret", "mysql://db/shop"] {
            let error = name(refused).expect_err("refused");
            assert!(error.contains("NAME=postgres://") && !error.contains("s3cret"), "{error}");
        }
    }
}
