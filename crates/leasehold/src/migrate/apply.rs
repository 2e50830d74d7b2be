//! Brings a database to this release: one migration, one transaction, under a lock that ends with it.

use tokio_postgres::Client;

use super::{Migration, Schema, VERSION_TABLE, digest};
use crate::error::SchemaError;

// Waits at most a few seconds for another migrator or for a busy table, rather than letting every
// query queue up behind a lock that it cannot get.
pub(super) const LOCK: &str = "set local lock_timeout = '2s';\n\
    set local statement_timeout = '10min';\n\
    select pg_advisory_xact_lock(7305, 1);\n";

/// Runs a script in one transaction, again when a lock could not be had in time.
async fn run(client: &mut Client, version: i32, script: &str) -> Result<(), SchemaError> {
    for attempt in 0.. {
        let transaction = client.transaction().await.map_err(SchemaError::Database)?;
        let ran = match transaction.batch_execute(script).await {
            Ok(()) => transaction.commit().await,
            Err(error) => Err(error),
        };
        match ran {
            Ok(()) => return Ok(()),
            Err(error) if attempt < LOCK_TRIES && is_lock_timeout(&error) => {}
            Err(source) => return Err(SchemaError::Failed { version, source }),
        }
    }
    Ok(())
}

const LOCK_TRIES: usize = 30;

fn is_lock_timeout(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::SqlState;
    error.code().is_some_and(|code| {
        // The last one: two migrators made the schema in the same instant.
        *code == SqlState::LOCK_NOT_AVAILABLE
            || *code == SqlState::UNIQUE_VIOLATION
            || *code == SqlState::T_R_DEADLOCK_DETECTED
    })
}

impl Schema {
    /// Brings the schema to this release. Safe to call from many processes at once, and again.
    /// Answers with the versions that it applied.
    pub async fn up(&self, client: &mut Client) -> Result<Vec<i32>, SchemaError> {
        let mut applied = Vec::new();
        run(client, 0, &format!("{LOCK}{}", self.named(VERSION_TABLE))).await?;
        for migration in self.migrations {
            if self.apply(client, migration).await? {
                applied.push(migration.version);
            }
        }
        let status = self.status(client).await?;
        if let Some(problem) = status.problem() {
            return Err(problem);
        }
        if !status.functions_current {
            run(client, 0, &format!("{LOCK}{}", self.functions_sql())).await?;
        }
        Ok(applied)
    }

    async fn apply(&self, client: &mut Client, migration: &Migration) -> Result<bool, SchemaError> {
        let seen = format!(
            "{LOCK}do $run$ begin if not exists \
         (select from {}.schema_version where version = {}) then\n\
         create temporary table leasehold_pending () on commit drop; end if; end $run$;",
            self.name, migration.version
        );
        // One transaction: look under the lock, then run.
        for attempt in 0.. {
            let transaction = client.transaction().await.map_err(SchemaError::Database)?;
            let looked = transaction.batch_execute(&seen).await;
            if let Err(error) = looked {
                if attempt < LOCK_TRIES && is_lock_timeout(&error) {
                    drop(transaction);
                    continue;
                }
                return Err(SchemaError::Failed { version: migration.version, source: error });
            }
            let pending = transaction
                .query_typed("select to_regclass('pg_temp.leasehold_pending') is not null", &[])
                .await
                .map_err(SchemaError::Database)?;
            if !pending.first().is_some_and(|row| row.get(0)) {
                return Ok(false);
            }
            let text = format!(
                "{}{}",
                migration.sql,
                self.note_sql(migration.version, migration.name, &digest(migration.sql))
            );
            let ran = match transaction.batch_execute(&text).await {
                Ok(()) => transaction.commit().await,
                Err(error) => Err(error),
            };
            match ran {
                Ok(()) => return Ok(true),
                Err(error) if attempt < LOCK_TRIES && is_lock_timeout(&error) => {}
                Err(source) => {
                    return Err(SchemaError::Failed { version: migration.version, source });
                }
            }
        }
        Ok(false)
    }
}
