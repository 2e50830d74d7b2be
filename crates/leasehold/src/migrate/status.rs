//! What stands in a database, beside what this release brings.

use tokio_postgres::Client;

use super::{Schema, digest};
use crate::database::{Database, Session};
use crate::error::{ConnectError, SchemaError};

/// What stands in the database, beside what this release brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The newest migration that ran here; `None`: no schema.
    pub found: Option<i32>,
    pub newest: i32,
    /// True when the stored functions are those of this release.
    pub functions_current: bool,
    /// Migrations whose text differs from what ran here.
    pub changed: Vec<i32>,
}

impl Status {
    /// The reason why this release must not work on the database, if any.
    pub fn problem(&self) -> Option<SchemaError> {
        if let Some(version) = self.changed.first() {
            return Some(SchemaError::Changed { version: *version });
        }
        match self.found {
            None => Some(SchemaError::Missing),
            Some(found) if found < self.newest => {
                Some(SchemaError::Old { found, needed: self.newest })
            }
            Some(found) if found > self.newest => {
                Some(SchemaError::New { found, known: self.newest })
            }
            Some(_) => None,
        }
    }

    pub fn is_current(&self) -> bool {
        self.problem().is_none() && self.functions_current
    }
}

impl Schema {
    /// Reads what stands in the database. Changes nothing.
    pub async fn status(&self, client: &Client) -> Result<Status, SchemaError> {
        let newest = self.newest_version();
        let exists = client
            .query_typed(
                &self.named("select to_regclass('leasehold.schema_version') is not null"),
                &[],
            )
            .await
            .map_err(SchemaError::Database)?;
        if !exists.first().is_some_and(|row| row.get(0)) {
            return Ok(Status {
                found: None,
                newest,
                functions_current: false,
                changed: Vec::new(),
            });
        }
        let rows = client
            .query_typed(
                &self.named(
                    "select version, checksum from leasehold.schema_version order by version",
                ),
                &[],
            )
            .await
            .map_err(SchemaError::Database)?;
        let mut found = None;
        let mut functions_current = false;
        let mut changed = Vec::new();
        for row in rows {
            let version: i32 = row.get(0);
            let checksum: Vec<u8> = row.get(1);
            if version == 0 {
                functions_current = checksum == self.functions_checksum();
                continue;
            }
            found = Some(version);
            let known = self.migrations.iter().find(|migration| migration.version == version);
            if known.is_some_and(|migration| digest(migration.sql) != checksum) {
                changed.push(version);
            }
        }
        Ok(Status { found, newest, functions_current, changed })
    }

    /// A session on a database that has this schema as this release needs it; for a service that
    /// starts.
    pub async fn session(&self, database: &Database) -> Result<Session, ConnectError> {
        let session = database.connect().await?;
        match self.status(&session).await?.problem() {
            Some(problem) => Err(problem.into()),
            None => Ok(session),
        }
    }
}
