//! Checks a declaration: does it match the table, and does Postgres accept the SQL?

use std::time::Duration;

use tokio_postgres::types::Type;

use super::declare::Mirror;
use super::install::made;
use super::statements::{KeyKind, Statements};
use super::target::TargetError;
use crate::error::{CallError, describe};
use crate::link::{Link, Param};
use crate::sweep::table;

/// The same as for every call of a worker.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(30);

const NO_TEXT: Option<String> = None;
const NO_TEXTS: Option<Vec<String>> = None;
const NO_LONG: Option<i64> = None;

/// Why a mirror cannot run, or why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// The declaration contradicts itself; the text says how to fix it.
    #[error("{0}")]
    Declaration(String),
    /// The table does not match the declaration; the text says what is missing.
    #[error("{0}")]
    Table(String),
    /// The request does not fit the state of the mirror; the text says what does.
    #[error("{0}")]
    State(String),
    /// The database did not answer, or refused. Nothing is lost; retry.
    #[error("the mirror's statement failed: {0}")]
    Call(#[from] CallError),
    /// The store did not answer, or refused. Nothing is lost; retry.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A worker that was started for the mirror stopped.
    #[error(transparent)]
    Worker(#[from] crate::error::WorkerError),
}

/// Converts Postgres's error about a statement that was made from the declaration.
pub(super) fn refused(mirror: &Mirror, error: tokio_postgres::Error) -> MirrorError {
    if error.as_db_error().is_some() {
        let text = describe(&error);
        MirrorError::Table(format!(
            "mirror {:?}: the table could not be prepared: {text}",
            mirror.name
        ))
    } else {
        MirrorError::Call(CallError::Database(error))
    }
}

/// A mirror that was checked against its table.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(super) kind: KeyKind,
    pub(crate) statements: Statements,
}

/// What the database stores about a mirror.
pub(super) struct Declaration<'a> {
    mirror: &'a Mirror,
    /// With its schema: other sessions have other search paths.
    table: String,
    kind: &'static str,
    seconds: [f64; 3],
    numbers: [i32; 2],
}

impl Declaration<'_> {
    pub(super) fn params(&self) -> [Param<'_>; 13] {
        let Mirror { name, key, version, queue, job, field, .. } = self.mirror;
        [
            (name as _, Type::TEXT),
            (&self.table as _, Type::TEXT),
            (key as _, Type::TEXT),
            (&self.kind as _, Type::TEXT),
            (version as _, Type::TEXT),
            (queue as _, Type::TEXT),
            (job as _, Type::TEXT),
            (field as _, Type::TEXT),
            (&self.seconds[0] as _, Type::FLOAT8),
            (&self.seconds[1] as _, Type::FLOAT8),
            (&self.seconds[2] as _, Type::FLOAT8),
            (&self.numbers[0] as _, Type::INT4),
            (&self.numbers[1] as _, Type::INT4),
        ]
    }
}

impl Mirror {
    pub(super) fn declaration(&self, table: String, kind: KeyKind) -> Declaration<'_> {
        let seconds = [
            self.verify_after.as_secs_f64(),
            self.tombstones.as_secs_f64(),
            self.check_every.unwrap_or(Duration::from_secs(2)).as_secs_f64(),
        ];
        let int = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let numbers = [int(self.range), int(self.batch)];
        Declaration { mirror: self, table, kind: kind.as_str(), seconds, numbers }
    }
}

impl Prepared {
    /// Checks the declaration, the table and the statements, and stores the declaration for SQL
    /// functions and other programs.
    pub(super) async fn new(mirror: &Mirror, link: &Link) -> Result<Self, MirrorError> {
        mirror.check()?;
        let (table, kind) = look(mirror, link).await?;
        let prepared = Self { kind, statements: Statements::of(mirror, kind) };
        prepared.try_statements(mirror, link).await?;
        let sql = "select leasehold.declare_mirror($1, $2, $3, $4, $5, $6, $7, $8, \
                   make_interval(secs => $9), make_interval(secs => $10), make_interval(secs => $11), \
                   $12, $13)";
        link.query(sql, &mirror.declaration(table, kind).params()).await?;
        Ok(prepared)
    }

    /// Lets Postgres parse every statement, so that an error in `document` fails the start and not the
    /// first change. `explain` runs nothing.
    async fn try_statements(&self, mirror: &Mirror, link: &Link) -> Result<(), MirrorError> {
        let Statements { versions, documents, listed, digest, first_keys, next_keys, raise } =
            &self.statements;
        let keys = (&NO_TEXTS as _, Type::TEXT_ARRAY);
        let (text, long) = ((&NO_TEXT as _, Type::TEXT), (&NO_LONG as _, Type::INT8));
        let one: Vec<Param<'_>> = vec![keys.clone()];
        for (sql, params) in [
            (documents, one.clone()),
            (versions, vec![keys, text.clone()]),
            (listed, one.clone()),
            (digest, one),
            (first_keys, vec![long.clone()]),
            (next_keys, vec![long.clone(), text.clone()]),
            (raise, vec![text, long]),
        ] {
            match link.query(&format!("explain {sql}"), &params).await {
                Ok(_) => {}
                Err(CallError::Database(error)) if error.as_db_error().is_some() => {
                    return Err(MirrorError::Declaration(format!(
                        "mirror {:?}: Postgres does not accept the statement made from document, key \
                         or version: {}",
                        mirror.name,
                        describe(&error)
                    )));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Compares the declaration with the catalogue. Every error says what to do. Returns the table with its
/// schema, and the kind of its key.
async fn look(mirror: &Mirror, link: &Link) -> Result<(String, KeyKind), MirrorError> {
    let quoted = table(&mirror.table);
    let triggers: Vec<String> =
        ["version", "insert", "update", "delete"].map(|what| made(mirror, what)).into();
    let names = [&mirror.key, &mirror.version].map(String::as_str);
    let rows = link
        .query(
            include_str!("../../queries/mirror_table.sql"),
            &[
                (&quoted, Type::TEXT),
                (&&names[..], Type::TEXT_ARRAY),
                (&triggers, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    let wrong = |what: String| Err(MirrorError::Table(format!("mirror {:?}: {what}", mirror.name)));
    let [key, version] = &rows[..] else {
        return wrong(format!(
            "there is no table {quoted}; create it, or write it as schema.table"
        ));
    };
    if key.get::<_, &str>("relkind") != "r" || key.get::<_, bool>("inherited") {
        return wrong(format!(
            "{quoted} is not a plain table; mirror each partition or child by itself"
        ));
    }
    let (kind, not_null): (Option<String>, Option<bool>) = (key.get("type"), key.get("attnotnull"));
    let Some(kind) = kind.as_deref().and_then(KeyKind::of_type) else {
        return wrong(format!(
            "{quoted}.{} is not a column of type text, uuid or bigint; name the one that tells rows \
             apart with .key(column)",
            mirror.key
        ));
    };
    if not_null != Some(true) || !key.get::<_, bool>("is_unique") {
        return wrong(format!(
            "{quoted}.{} does not tell rows apart; it must be not null and have a unique index",
            mirror.key
        ));
    }
    let (kind_of_version, not_null): (Option<String>, Option<bool>) =
        (version.get("type"), version.get("attnotnull"));
    if kind_of_version.as_deref() != Some("bigint") || not_null != Some(true) {
        return wrong(format!(
            "{quoted} has no column {:?} of type bigint not null; Mirror::install adds it",
            mirror.version
        ));
    }
    if key.get::<_, i64>("triggers") < 4 {
        return wrong(format!(
            "{quoted} has not all triggers of this mirror, so that changes would make no jobs; call \
             Mirror::install in a migration"
        ));
    }
    if key.get::<_, bool>("silent") {
        tracing::warn!(
            mirror = mirror.name,
            "the triggers are those of an earlier release, so that every change under way counts as a \
             difference; call Mirror::install in a migration"
        );
    }
    let (schema, relation): (&str, &str) = (key.get("schema"), key.get("relation"));
    Ok((format!("{schema}.{relation}"), kind))
}
