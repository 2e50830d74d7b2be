//! Checks a declaration: does it match the table, and does Postgres accept the SQL?

use std::time::Duration;

use tokio_postgres::types::Type;

use super::declaration::Mirror;
use super::install::made;
use super::key::KeyKind;
use super::statements::Statements;
use crate::WorkerError;
use crate::error::CallError;
use crate::link::{Link, Param};
use crate::mirror::sets::TargetError;
use crate::table::{TableError, UserTable, check_statement, quote_table};

/// The same as for every call of a worker.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(30);

pub(super) const DECLARE: &str = "select leasehold_internal.declare_mirror($1, $2, $3, $4, $5, $6, $7, $8, \
     make_interval(secs => $9), make_interval(secs => $10), make_interval(secs => $11), $12, $13)";

/// $1 table, $2 triggers. How many of them are enabled, and whether the one for updates is that of an
/// earlier release, which does not pass the former versions of the rows.
const TRIGGERS: &str = "select count(*) filter (where t.tgenabled <> 'D'), \
            coalesce(bool_or(t.tgtype & 16 = 16 and t.tgtype & 1 = 0 and t.tgoldtable is null), false) \
       from pg_trigger t where t.tgrelid = to_regclass($1) and t.tgname = any ($2)";

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
    /// The database did not respond, or refused. Nothing is lost; retry.
    #[error("the mirror's statement failed: {0}")]
    Call(#[from] CallError),
    /// The store did not respond, or refused. Nothing is lost; retry.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A worker that was started for the mirror stopped.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl MirrorError {
    pub(super) fn of_table(mirror: &Mirror, error: TableError) -> Self {
        match error {
            TableError::Call(error) => Self::Call(error),
            error => Self::Table(format!("mirror {:?}: {error}", mirror.name)),
        }
    }
}

/// A mirror that was checked against its table.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) kind: KeyKind,
    pub(crate) statements: Statements,
}

/// What the database stores about a mirror.
pub(super) struct Declaration<'a> {
    mirror: &'a Mirror,
    /// With its schema: other sessions have other search paths.
    table: &'a str,
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
    pub(super) fn declaration<'a>(&'a self, table: &'a str, kind: KeyKind) -> Declaration<'a> {
        let seconds = [
            self.verify_after.as_secs_f64(),
            self.tombstones.as_secs_f64(),
            self.check_every.unwrap_or(Duration::from_secs(2)).as_secs_f64(),
        ];
        let int = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let numbers = [int(self.range), int(self.claim_size)];
        Declaration { mirror: self, table, kind: kind.as_str(), seconds, numbers }
    }

    /// Returns the kind of the key, if the table has such a column.
    pub(super) fn key_kind(&self, table: &UserTable) -> Result<KeyKind, MirrorError> {
        let column = table.find(&self.key);
        column.and_then(|column| KeyKind::of_type(&column.base_type)).ok_or_else(|| {
            MirrorError::Table(format!(
                "mirror {:?}: {} has no column {:?} of type text, uuid or bigint; name the one that \
                 tells rows apart with .key(column)",
                self.name,
                quote_table(&self.table),
                self.key
            ))
        })
    }
}

impl Prepared {
    /// Checks the declaration, the table and the statements, and stores the declaration for SQL
    /// functions and other programs.
    pub(crate) async fn new(mirror: &Mirror, link: &Link) -> Result<Self, MirrorError> {
        mirror.check()?;
        let (table, kind) = read_table(mirror, link).await?;
        let prepared = Self { kind, statements: Statements::of(mirror, kind) };
        prepared.try_statements(mirror, link).await?;
        link.query(DECLARE, &mirror.declaration(&table, kind).params()).await?;
        Ok(prepared)
    }

    /// Lets Postgres check every statement, so that an error in `document` fails the start and not the
    /// first change.
    async fn try_statements(&self, mirror: &Mirror, link: &Link) -> Result<(), MirrorError> {
        let Statements { versions, documents, listed, digest, first_keys, next_keys, raise } =
            &self.statements;
        const KEYS: Type = Type::TEXT_ARRAY;
        for (sql, types) in [
            (documents, &[KEYS][..]),
            (versions, &[KEYS, Type::TEXT]),
            (listed, &[KEYS]),
            (digest, &[KEYS]),
            (first_keys, &[Type::INT8]),
            (next_keys, &[Type::INT8, Type::TEXT]),
            (raise, &[Type::TEXT, Type::INT8]),
        ] {
            check_statement(link, sql, types).await.map_err(|error| match error {
                TableError::Unfit(why) => MirrorError::Declaration(format!(
                    "mirror {:?}: Postgres does not accept the statement made from document, key or \
                     version: {why}",
                    mirror.name
                )),
                error => MirrorError::of_table(mirror, error),
            })?;
        }
        Ok(())
    }
}

/// Compares the declaration with the catalogue. Every error says what to do. Returns the table with its
/// schema, and the kind of its key.
async fn read_table(mirror: &Mirror, link: &Link) -> Result<(String, KeyKind), MirrorError> {
    let quoted = quote_table(&mirror.table);
    let unfit = |error| MirrorError::of_table(mirror, error);
    let wrong = |what: String| Err(MirrorError::Table(format!("mirror {:?}: {what}", mirror.name)));
    let columns = [&*mirror.key, &*mirror.version];
    let table = UserTable::read(link, &mirror.table, &columns).await.map_err(unfit)?;
    let kind = mirror.key_kind(&table)?;
    table.must_identify(&mirror.key).map_err(unfit)?;
    let version = table.find(&mirror.version);
    if version.is_none_or(|version| version.base_type != "bigint" || !version.not_null) {
        return wrong(format!(
            "{quoted} has no column {:?} of type bigint not null; Mirror::install adds it",
            mirror.version
        ));
    }
    let triggers = ["version", "insert", "update", "delete"].map(|what| made(mirror, what));
    let params = [(&quoted as _, Type::TEXT), (&&triggers[..] as _, Type::TEXT_ARRAY)];
    let found = link.query(TRIGGERS, &params).await?;
    if found.first().is_none_or(|row| row.get::<_, i64>(0) < 4) {
        return wrong(format!(
            "{quoted} has not all triggers of this mirror, so that changes would make no jobs; call \
             Mirror::install in a migration"
        ));
    }
    if found.first().is_some_and(|row| row.get(1)) {
        tracing::warn!(
            mirror = mirror.name,
            "the triggers are those of an earlier release, so that every change under way counts as a \
             difference; call Mirror::install in a migration"
        );
    }
    Ok((table.full_name().to_owned(), kind))
}
