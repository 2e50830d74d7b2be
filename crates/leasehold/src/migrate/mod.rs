//! Migrations: the engine's own schema, its own version table, its own order.
//!
//! # Invariants
//! - Each migration runs in one transaction under a transaction-scoped lock: two migrators wait for
//!   each other, a killed one leaves nothing behind, and no lock outlives a pooled session.
//! - A migration that ran is never changed: its checksum is compared.
//! - The SQL functions are replaced as a whole when their text differs from what is stored, and never
//!   by an older release. A program refuses functions that are older than its own.
//! - Each row of the version table records the oldest release whose programs work with it. A program of
//!   that release or a later one works on a newer schema; an older one refuses it.
//! - On a current schema nothing is locked, written or created.
//!
//! In reading order: this file has the history and the text of a schema; [`status`](mod@status) compares
//! it with a database; [`apply`] brings a database to it.

mod apply;
mod status;

use sha2::{Digest, Sha256};
use tokio_postgres::Client;

use crate::error::SchemaError;
use apply::LOCK;

pub use status::{Functions, Status};

/// One step of the schema's history.
#[doc(hidden)]
pub struct Migration {
    /// From 1, without gaps.
    pub version: i32,
    /// The name of the file, without its number.
    pub name: &'static str,
    /// The statements, run in one transaction.
    pub sql: &'static str,
}

/// Every migration, in order.
#[doc(hidden)]
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "jobs", sql: include_str!("../../migrations/0001_jobs.sql") },
    Migration { version: 2, name: "sweep", sql: include_str!("../../migrations/0002_sweep.sql") },
    Migration { version: 3, name: "mirror", sql: include_str!("../../migrations/0003_mirror.sql") },
    Migration {
        version: 4,
        name: "measure",
        sql: include_str!("../../migrations/0004_measure.sql"),
    },
    Migration { version: 5, name: "bounds", sql: include_str!("../../migrations/0005_bounds.sql") },
    Migration {
        version: 6,
        name: "claimed_ahead",
        sql: include_str!("../../migrations/0006_claimed_ahead.sql"),
    },
];

/// The SQL functions and views, in the order of their creation.
#[doc(hidden)]
pub const FUNCTIONS: &[(&str, &str)] = &[
    ("queue/settings", include_str!("../../functions/queue/settings.sql")),
    ("queue/enqueue", include_str!("../../functions/queue/enqueue.sql")),
    ("queue/reserved", include_str!("../../functions/queue/reserved.sql")),
    ("queue/wake", include_str!("../../functions/queue/wake.sql")),
    ("queue/claim", include_str!("../../functions/queue/claim.sql")),
    ("queue/renew", include_str!("../../functions/queue/renew.sql")),
    ("queue/finish", include_str!("../../functions/queue/finish.sql")),
    ("queue/fail", include_str!("../../functions/queue/fail.sql")),
    ("queue/reclaim", include_str!("../../functions/queue/reclaim.sql")),
    ("queue/expire", include_str!("../../functions/queue/expire.sql")),
    ("queue/once", include_str!("../../functions/queue/once.sql")),
    ("operator/jobs", include_str!("../../functions/operator/jobs.sql")),
    ("operator/queues", include_str!("../../functions/operator/queues.sql")),
    ("operator/schedules", include_str!("../../functions/operator/schedules.sql")),
    ("housekeeping/history", include_str!("../../functions/housekeeping/history.sql")),
    ("housekeeping/schedules", include_str!("../../functions/housekeeping/schedules.sql")),
    ("housekeeping/workers", include_str!("../../functions/housekeeping/workers.sql")),
    ("housekeeping/prune", include_str!("../../functions/housekeeping/prune.sql")),
    ("housekeeping/housekeep", include_str!("../../functions/housekeeping/housekeep.sql")),
    ("sweep/runs", include_str!("../../functions/sweep/runs.sql")),
    ("mirror/changes", include_str!("../../functions/mirror/changes.sql")),
    ("mirror/check", include_str!("../../functions/mirror/check.sql")),
    ("mirror/sets", include_str!("../../functions/mirror/sets.sql")),
    ("measure/vacuum", include_str!("../../functions/measure/vacuum.sql")),
    ("measure/sample", include_str!("../../functions/measure/sample.sql")),
    ("measure/queues", include_str!("../../functions/measure/queues.sql")),
    ("measure/others", include_str!("../../functions/measure/others.sql")),
    ("measure/series", include_str!("../../functions/measure/series.sql")),
    ("alarm/evaluate", include_str!("../../functions/alarm/evaluate.sql")),
    ("alarm/notify", include_str!("../../functions/alarm/notify.sql")),
    ("operator/alarms", include_str!("../../functions/operator/alarms.sql")),
    ("views", include_str!("../../functions/views.sql")),
    ("operator/lookup", include_str!("../../functions/operator/lookup.sql")),
    ("comments", include_str!("../../functions/comments.sql")),
    ("roles", include_str!("../../functions/roles.sql")),
];

/// The number of this release. It grows with each release: the parts of the package's version, a
/// thousand values each.
pub const RELEASE: i32 = number_of(env!("CARGO_PKG_VERSION"));

/// The oldest release whose programs work on the schema of this one. 0: all of them. Raise it to the
/// release that removes or changes what older programs call.
pub const OLDEST_READER: i32 = 0;

/// `1.2.3` is 1 002 003. Anything after the third number is ignored.
const fn number_of(version: &str) -> i32 {
    let (bytes, mut parts, mut part, mut index) = (version.as_bytes(), [0; 3], 0, 0);
    while index < bytes.len() && part < 3 {
        match bytes[index] {
            digit @ b'0'..=b'9' => parts[part] = parts[part] * 10 + (digit - b'0') as i32,
            b'.' => part += 1,
            _ => break,
        }
        index += 1;
    }
    (parts[0] * 1000 + parts[1]) * 1000 + parts[2]
}

const VERSION_TABLE: &str = include_str!("../../queries/version_table.sql");

/// A schema with its own history: the engine's, or that of a service on top of it.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Schema {
    /// The name of the schema in the database.
    pub name: &'static str,
    /// In order, oldest first.
    pub migrations: &'static [Migration],
    /// Name and text of each file of functions and views, in the order in which they are created.
    pub functions: &'static [(&'static str, &'static str)],
}

/// The engine's own schema.
#[doc(hidden)]
pub const ENGINE: Schema =
    Schema { name: "leasehold", migrations: MIGRATIONS, functions: FUNCTIONS };

/// Returns the version that this release needs.
pub fn newest_version() -> i32 {
    ENGINE.newest_version()
}

/// Reads the state of the schema. Changes nothing.
pub async fn status(client: &Client) -> Result<Status, SchemaError> {
    ENGINE.status(client).await
}

/// Brings the schema to this release. Safe to call from many processes at once, and again. Returns the
/// versions that it applied.
pub async fn up(client: &mut Client) -> Result<Vec<i32>, SchemaError> {
    ENGINE.up(client).await
}

/// Returns the whole schema as text, for operators who run their own migrations.
pub fn sql() -> String {
    ENGINE.sql()
}

impl Schema {
    /// Returns the version that this release needs.
    pub fn newest_version(&self) -> i32 {
        self.migrations.last().map_or(0, |migration| migration.version)
    }

    /// Returns the whole schema as text, for operators who run their own migrations.
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
        let mut text = self.named(&format!(
            "do $guard$ begin if exists (select from leasehold.schema_version \
             where version = 0 and release > {RELEASE}) then \
             raise exception 'the functions and views of schema leasehold are of a newer release' \
             using errcode = 'LH010', hint = 'Use that release or a newer one; it works with this schema.'; \
             end if; end $guard$;\n"
        ));
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
            "\ninsert into {}.schema_version (version, name, checksum, release, oldest_reader) \
             values ({version}, '{name}', '\\x{hex}', {RELEASE}, {OLDEST_READER}) \
             on conflict (version) do update \
             set checksum = excluded.checksum, applied_at = statement_timestamp(), \
             release = excluded.release, oldest_reader = excluded.oldest_reader;\n",
            self.name
        )
    }

    /// Rewrites a statement about the engine's version table for this schema's.
    fn named(&self, statement: &str) -> String {
        statement.replace("leasehold", self.name)
    }
}

fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i9_changed_functions_change_the_pinned_checksum_of_their_release() {
        let checksum: String =
            ENGINE.functions_checksum().iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{RELEASE} {checksum}");
        let pinned = include_str!("../../functions/pinned.txt");
        assert!(
            pinned.lines().any(|pinned| pinned == line),
            "the SQL functions are not those that crates/leasehold/functions/pinned.txt names.\n\
             1. If release {RELEASE} was published, raise `version` in Cargo.toml first: two programs \
             with one number and different functions would replace each other's.\n\
             2. Write this line, in place of the last one while its release is unpublished:\n{line}\n"
        );
    }

    #[test]
    fn i9_release_numbers_grow_with_the_version() {
        let numbers = ["0.1.0", "0.1.1", "0.2.0", "0.10.0", "1.0.0", "1.2.3"].map(number_of);
        assert!(numbers.is_sorted() && numbers.windows(2).all(|two| two[0] < two[1]));
        assert_eq!(number_of("1.2.3-rc.4"), number_of("1.2.3"));
        const { assert!(RELEASE > 0 && OLDEST_READER <= RELEASE) };
    }
}
