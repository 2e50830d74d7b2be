//! Brings a database to this release: one transaction per migration, under a lock that ends with it.

use tokio_postgres::{Client, Error, Transaction};

use super::{Functions, Migration, Schema, VERSION_TABLE, digest};
use crate::error::SchemaError;

// Waits at most a few seconds for another migrator or for a busy table. Otherwise every query would
// queue behind a lock that the migration cannot get.
pub(super) const LOCK: &str = "set local lock_timeout = '2s';\n\
    set local statement_timeout = '10min';\n\
    select pg_advisory_xact_lock(7305, 1);\n";

const LOCK_TRIES: usize = 30;

fn may_pass(error: &Error) -> bool {
    use tokio_postgres::error::SqlState;
    error.code().is_some_and(|code| {
        *code == SqlState::LOCK_NOT_AVAILABLE
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            // Two migrators created the schema at the same instant.
            || *code == SqlState::UNIQUE_VIOLATION
    })
}

impl Schema {
    /// Brings the schema to this release. Safe to call from many processes at once, and again. A schema
    /// of a newer release stays as it is. Returns the versions that it applied.
    pub async fn up(&self, client: &mut Client) -> Result<Vec<i32>, SchemaError> {
        let found = self.status(client).await?;
        match found.problem() {
            // Nothing to do. A role without the right to create anything gets here too.
            None => return Ok(Vec::new()),
            Some(problem) if !problem.is_solved_by_up() => return Err(problem),
            Some(_) => {}
        }
        if !found.has_releases {
            self.run(client, Step::VersionTable).await?;
        }
        let mut applied = Vec::new();
        for migration in self.migrations.iter().filter(|one| !found.ran.contains(&one.version)) {
            if self.run(client, Step::Migration(migration)).await? {
                applied.push(migration.version);
            }
        }
        self.run(client, Step::Functions).await?;
        match self.status(client).await?.problem() {
            Some(problem) => Err(problem),
            None => Ok(applied),
        }
    }

    /// Runs one step in a transaction under the lock, and retries it if a lock timed out. Returns false
    /// if another migrator was first.
    async fn run(&self, client: &mut Client, step: Step<'_>) -> Result<bool, SchemaError> {
        let mut attempt = 0;
        loop {
            let transaction = client.transaction().await.map_err(SchemaError::Database)?;
            let ran = match self.run_in(&transaction, step).await {
                Ok(ran) => transaction.commit().await.map(|()| ran),
                Err(error) => Err(error),
            };
            match ran {
                Ok(ran) => return Ok(ran),
                Err(error) if attempt < LOCK_TRIES && may_pass(&error) => attempt += 1,
                Err(source) => return Err(SchemaError::Failed { version: step.version(), source }),
            }
        }
    }

    async fn run_in(&self, transaction: &Transaction<'_>, step: Step<'_>) -> Result<bool, Error> {
        transaction.batch_execute(LOCK).await?;
        // Check again under the lock: what was read before may have changed.
        match step {
            Step::VersionTable => transaction.batch_execute(&self.named(VERSION_TABLE)).await?,
            Step::Migration(migration) => {
                let Migration { version, name, sql } = migration;
                let seen = format!(
                    "select exists (select from {}.schema_version where version = {version})",
                    self.name
                );
                let rows = transaction.query_typed(&seen, &[]).await?;
                if rows.first().is_some_and(|row| row.get(0)) {
                    return Ok(false);
                }
                transaction.batch_execute(sql).await?;
                let note = self.note_sql(*version, name, &digest(sql));
                transaction.batch_execute(&note).await?;
            }
            Step::Functions => {
                // A newer release may have migrated in between.
                if self.functions_in(transaction).await? != Functions::Older {
                    return Ok(false);
                }
                transaction.batch_execute(&self.functions_sql()).await?;
            }
        }
        Ok(true)
    }
}

/// One transaction on the way to this release.
#[derive(Clone, Copy)]
enum Step<'a> {
    VersionTable,
    Migration(&'a Migration),
    Functions,
}

impl Step<'_> {
    fn version(self) -> i32 {
        match self {
            Self::Migration(migration) => migration.version,
            Self::VersionTable | Self::Functions => 0,
        }
    }
}
