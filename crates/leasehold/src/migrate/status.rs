//! Compares the schema in a database with that of this release.

use tokio_postgres::{Client, Error, GenericClient, Row};

use super::{RELEASE, Schema, digest};
use crate::database::{Database, Session};
use crate::error::{ConnectError, SchemaError};

/// The schema in the database, compared with that of this release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The newest migration that ran here; `None`: no schema.
    pub found: Option<i32>,
    /// The newest migration of this release.
    pub newest: i32,
    /// True if the stored functions are those of this release.
    pub functions_current: bool,
    /// How the stored functions compare with those of this release.
    pub functions: Functions,
    /// Migrations whose text differs from what ran here.
    pub changed: Vec<i32>,
    /// The migrations that ran here.
    pub(super) ran: Vec<i32>,
    /// Migrations of this release that did not run here.
    pub missing: Vec<i32>,
    /// The oldest release that works with everything in the database, as far as is known. `None`:
    /// something newer is there, without a record of it.
    pub oldest_reader: Option<i32>,
    /// True if the version table has the columns for release numbers.
    pub(super) has_releases: bool,
}

/// The stored functions, compared with those of this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Functions {
    /// None, or those of an older release or of another build of this one.
    Older,
    /// Those of this release.
    Current,
    /// Of a later release. They are kept.
    Newer,
}

impl Status {
    /// Returns why this release must not work on the database, if it must not.
    pub fn problem(&self) -> Option<SchemaError> {
        if let Some(version) = self.changed.first() {
            return Some(SchemaError::Changed { version: *version });
        }
        let found = match self.found {
            None => return Some(SchemaError::Missing),
            Some(found) => found,
        };
        if self.oldest_reader.is_none_or(|oldest| oldest > RELEASE) {
            return Some(SchemaError::New { found, known: self.newest });
        }
        if !self.missing.is_empty() {
            return Some(SchemaError::Old { found, needed: self.newest });
        }
        if self.functions == Functions::Older {
            return Some(SchemaError::OldFunctions);
        }
        None
    }

    /// Returns true if there is nothing to migrate, and nothing here is of a newer release.
    pub fn is_current(&self) -> bool {
        self.problem().is_none() && self.functions_current
    }
}

/// One row of the version table.
struct Noted {
    version: i32,
    checksum: Vec<u8>,
    release: Option<i32>,
    oldest_reader: Option<i32>,
}

impl Noted {
    fn of(row: &Row) -> Self {
        Self {
            version: row.get(0),
            checksum: row.get(1),
            release: row.get(2),
            oldest_reader: row.get(3),
        }
    }
}

impl Schema {
    /// Reads the state of the schema. Changes nothing.
    pub async fn status(&self, client: &Client) -> Result<Status, SchemaError> {
        let exists = "select to_regclass('leasehold.schema_version') is not null, \
                      exists (select from pg_attribute a where a.attname = 'oldest_reader' \
                      and a.attrelid = to_regclass('leasehold.schema_version'))";
        let rows = client.query_typed(&self.named(exists), &[]).await;
        let rows = rows.map_err(SchemaError::Database)?;
        let (exists, has_releases) =
            rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
        let noted = match exists {
            true => self.noted(client).await.map_err(SchemaError::Database)?,
            false => Vec::new(),
        };
        let functions = self.functions(noted.iter().find(|noted| noted.version == 0));
        let ran: Vec<i32> = noted.iter().map(|noted| noted.version).filter(|v| *v > 0).collect();
        let of = |version| self.migrations.iter().find(|migration| migration.version == version);
        let changed = noted
            .iter()
            .filter(|noted| {
                of(noted.version).is_some_and(|ours| digest(ours.sql) != noted.checksum)
            })
            .map(|noted| noted.version)
            .collect();
        let missing = self
            .migrations
            .iter()
            .map(|migration| migration.version)
            .filter(|version| !ran.contains(version))
            .collect();
        Ok(Status {
            found: ran.iter().max().copied(),
            newest: self.newest_version(),
            functions_current: functions == Functions::Current,
            functions,
            changed,
            missing,
            oldest_reader: self.oldest_reader(&noted),
            ran,
            has_releases,
        })
    }

    /// Returns the oldest release that works with every row of the version table: the strictest row
    /// decides.
    fn oldest_reader(&self, noted: &[Noted]) -> Option<i32> {
        let known = |version| self.migrations.iter().any(|ours| ours.version == version);
        let mut oldest = 0;
        for noted in noted {
            match noted.oldest_reader {
                Some(reader) => oldest = oldest.max(reader),
                // The first releases did not record it with their functions, which are older than ours.
                None if noted.version == 0 || known(noted.version) => {}
                None => return None,
            }
        }
        Some(oldest)
    }

    fn functions(&self, noted: Option<&Noted>) -> Functions {
        match noted {
            Some(noted) if noted.checksum == self.functions_checksum() => Functions::Current,
            Some(noted) if noted.release.unwrap_or(0) > RELEASE => Functions::Newer,
            _ => Functions::Older,
        }
    }

    /// Returns how the functions in the database compare with ours.
    pub(super) async fn functions_in(
        &self,
        client: &impl GenericClient,
    ) -> Result<Functions, Error> {
        let noted = self.noted(client).await?;
        Ok(self.functions(noted.iter().find(|noted| noted.version == 0)))
    }

    async fn noted(&self, client: &impl GenericClient) -> Result<Vec<Noted>, Error> {
        // Through JSON: the first releases created the table without the last two columns.
        let sql = "select v.version, v.checksum, (to_jsonb(v) ->> 'release')::int, \
                   (to_jsonb(v) ->> 'oldest_reader')::int \
                   from leasehold.schema_version v order by v.version";
        let rows = client.query_typed(&self.named(sql), &[]).await?;
        Ok(rows.iter().map(Noted::of).collect())
    }

    /// Opens a session on a database whose schema fits this release, for a service that starts.
    pub async fn session(&self, database: &Database) -> Result<Session, ConnectError> {
        let session = database.connect().await?;
        match self.status(&session).await?.problem() {
            Some(problem) => Err(problem.into()),
            None => Ok(session),
        }
    }
}
