//! Migrations: the engine's own schema, its own version table, its own order.
//!
//! # What is true
//! - Each migration runs in one transaction under a transaction-scoped lock: two migrators wait for
//!   each other, a killed one leaves nothing behind, and no lock outlives a pooled session.
//! - A migration that ran is never changed: its checksum is compared.
//! - The SQL functions are replaced as a whole whenever their text differs from what is stored.
//! - A binary refuses a schema that is newer than it knows.
//!
//! In reading order: this file has the history and the text of a schema; [`status`](mod@status) compares
//! it with a database; [`apply`] brings a database to it.

mod apply;
mod status;

use sha2::{Digest, Sha256};
use tokio_postgres::Client;

use crate::error::SchemaError;
use apply::LOCK;

pub use status::Status;

/// One step of the schema's history.
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "tables", sql: include_str!("../../migrations/0001_tables.sql") },
    Migration { version: 2, name: "sweep", sql: include_str!("../../migrations/0002_sweep.sql") },
    Migration { version: 3, name: "mirror", sql: include_str!("../../migrations/0003_mirror.sql") },
    Migration { version: 4, name: "watch", sql: include_str!("../../migrations/0004_watch.sql") },
];

/// The SQL functions and views, in the order in which they are made.
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("settings", include_str!("../../functions/010_settings.sql")),
    ("enqueue", include_str!("../../functions/020_enqueue.sql")),
    ("claim", include_str!("../../functions/030_claim.sql")),
    ("renew", include_str!("../../functions/040_renew.sql")),
    ("finish", include_str!("../../functions/050_finish.sql")),
    ("expire", include_str!("../../functions/060_expire.sql")),
    ("people", include_str!("../../functions/070_people.sql")),
    ("once", include_str!("../../functions/080_once.sql")),
    ("housekeeping", include_str!("../../functions/090_housekeeping.sql")),
    ("sweep", include_str!("../../functions/095_sweep.sql")),
    ("mirror", include_str!("../../functions/096_mirror.sql")),
    ("mirror_check", include_str!("../../functions/0961_mirror_check.sql")),
    ("mirror_sets", include_str!("../../functions/0962_mirror_sets.sql")),
    ("vacuum", include_str!("../../functions/0965_vacuum.sql")),
    ("watch", include_str!("../../functions/097_watch.sql")),
    ("watch_queues", include_str!("../../functions/0971_watch_queues.sql")),
    ("watch_others", include_str!("../../functions/0972_watch_others.sql")),
    ("watch_series", include_str!("../../functions/0973_watch_series.sql")),
    ("alarms", include_str!("../../functions/098_alarms.sql")),
    ("alarm_words", include_str!("../../functions/0981_alarm_words.sql")),
    ("alarm_people", include_str!("../../functions/0982_alarm_people.sql")),
    ("views", include_str!("../../functions/100_views.sql")),
    ("roles", include_str!("../../functions/110_roles.sql")),
];

const VERSION_TABLE: &str = include_str!("../../queries/version_table.sql");

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

fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes()).to_vec()
}
