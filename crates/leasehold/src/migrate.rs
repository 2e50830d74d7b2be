//! Migrations: the engine's own schema, its own version table, its own order.
//!
//! # What is true
//! - Each migration runs in one transaction under a transaction-scoped lock: two migrators wait for
//!   each other, a killed one leaves nothing behind, and no lock outlives a pooled session.
//! - A migration that ran is never changed: its checksum is compared.
//! - The SQL functions are replaced as a whole whenever their text differs from what is stored.
//! - A binary refuses a schema that is newer than it knows.

use sha2::{Digest, Sha256};
use tokio_postgres::Client;

use crate::database::{Database, Session};
use crate::error::{ConnectError, SchemaError};

/// One step of the schema's history.
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "tables", sql: include_str!("../migrations/0001_tables.sql") },
    Migration { version: 2, name: "sweep", sql: include_str!("../migrations/0002_sweep.sql") },
    Migration { version: 3, name: "mirror", sql: include_str!("../migrations/0003_mirror.sql") },
    Migration { version: 4, name: "watch", sql: include_str!("../migrations/0004_watch.sql") },
];

/// The SQL functions and views, in the order in which they are made.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("settings", include_str!("../functions/010_settings.sql")),
    ("enqueue", include_str!("../functions/020_enqueue.sql")),
    ("claim", include_str!("../functions/030_claim.sql")),
    ("renew", include_str!("../functions/040_renew.sql")),
    ("finish", include_str!("../functions/050_finish.sql")),
    ("expire", include_str!("../functions/060_expire.sql")),
    ("people", include_str!("../functions/070_people.sql")),
    ("once", include_str!("../functions/080_once.sql")),
    ("housekeeping", include_str!("../functions/090_housekeeping.sql")),
    ("sweep", include_str!("../functions/095_sweep.sql")),
    ("mirror", include_str!("../functions/096_mirror.sql")),
    ("mirror_check", include_str!("../functions/0961_mirror_check.sql")),
    ("mirror_sets", include_str!("../functions/0962_mirror_sets.sql")),
    ("vacuum", include_str!("../functions/0965_vacuum.sql")),
    ("watch", include_str!("../functions/097_watch.sql")),
    ("watch_queues", include_str!("../functions/0971_watch_queues.sql")),
    ("watch_others", include_str!("../functions/0972_watch_others.sql")),
    ("watch_series", include_str!("../functions/0973_watch_series.sql")),
    ("alarms", include_str!("../functions/098_alarms.sql")),
    ("views", include_str!("../functions/100_views.sql")),
    ("roles", include_str!("../functions/110_roles.sql")),
];

const VERSION_TABLE: &str = include_str!("../queries/version_table.sql");

/// A schema of its own with its own history: the engine's, or that of a service on top of it.
#[derive(Clone, Copy)]
pub struct Schema {
    /// The name of the schema in the database.
    pub name: &'static str,
    pub migrations: &'static [Migration],
    pub functions: &'static [(&'static str, &'static str)],
}

/// The engine's own schema.
pub const ENGINE: Schema =
    Schema { name: "leasehold", migrations: MIGRATIONS, functions: FUNCTIONS };

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

/// The version this release needs.
pub fn newest_version() -> i32 {
    ENGINE.newest_version()
}

/// Reads what stands in the database. Changes nothing.
pub async fn status(client: &Client) -> Result<Status, SchemaError> {
    ENGINE.status(client).await
}

/// Brings the schema to this release. Safe to call from many processes at once, and again.
/// Answers with the versions that it applied.
pub async fn up(client: &mut Client) -> Result<Vec<i32>, SchemaError> {
    ENGINE.up(client).await
}

/// The whole schema as text, for people who run their own migrations.
pub fn sql() -> String {
    ENGINE.sql()
}

impl Schema {
    /// The version this release needs.
    pub fn newest_version(&self) -> i32 {
        self.migrations.last().map_or(0, |migration| migration.version)
    }

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

    /// The whole schema as text, for people who run their own migrations.
    pub fn sql(&self) -> String {
        let mut text = format!("begin;\n{LOCK}{}\n", self.named(VERSION_TABLE));
        for migration in self.migrations {
            text.push_str(migration.sql);
            text.push_str(&self.note_sql(
                migration.version,
                migration.name,
                &digest(migration.sql),
            ));
        }
        text.push_str(&self.functions_sql());
        text.push_str("commit;\n");
        text
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

    fn functions_sql(&self) -> String {
        let mut text = String::new();
        for (_, sql) in self.functions {
            text.push_str(sql);
            text.push('\n');
        }
        text.push_str(&self.note_sql(0, "functions", &self.functions_checksum()));
        text
    }

    fn functions_checksum(&self) -> Vec<u8> {
        let all: String = self.functions.iter().map(|(_, sql)| *sql).collect();
        digest(&all)
    }

    fn note_sql(&self, version: i32, name: &str, checksum: &[u8]) -> String {
        let hex: String = checksum.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "\ninsert into {}.schema_version (version, name, checksum) \
         values ({version}, '{name}', '\\x{hex}') on conflict (version) do update \
         set checksum = excluded.checksum, applied_at = statement_timestamp();\n",
            self.name
        )
    }

    /// A statement about the engine's version table, for this schema's.
    fn named(&self, statement: &str) -> String {
        statement.replace("leasehold", self.name)
    }
}

// Waits at most a few seconds for another migrator or for a busy table, rather than letting every
// query queue up behind a lock that it cannot get.
const LOCK: &str = "set local lock_timeout = '2s';\n\
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

fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes()).to_vec()
}
